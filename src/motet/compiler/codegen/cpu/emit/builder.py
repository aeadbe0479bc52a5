"""A layer over llvmlite's IR builder: constant-folding index arithmetic, loops, vectors.

An *index* is a Python int if it is known, else an `ir.Value` of type i64. Arithmetic on known indices is folded, so
that one generator serves static and dynamic shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

Index = int | ir.Value

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
PTR = ir.PointerType()


class Splat(ir.Constant):
    """A vector with `number` in every lane, in LLVM's short form. llvmlite would write every lane, which is most of the
    text of an elementary function."""

    def __init__(self, kind: ir.VectorType, number: float | None) -> None:
        self.each = ir.Constant(kind.element, number)
        super().__init__(kind, [self.each] * kind.count)

    def _get_reference(self) -> str:
        return f"splat ({self.each.type} {self.each.get_reference()})"


class Builder(ir.IRBuilder):
    """An IR builder that stands in a function, at the end of a block.

    `scales` says that the code may use AVX-512's multiplication by powers of two (see `float_lanes`).
    """

    scales = False
    # The number whose sine or cosine was computed last, the block that followed, and what the other one shares.
    last_angle: tuple[ir.Value, ir.Block, tuple[ir.Value, ...]] | None = None

    # -- indices ---------------------------------------------------------------------------------

    def index(self, value: Index) -> ir.Value:
        return ir.Constant(I64, value) if isinstance(value, int) else value

    def iadd(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0:
            return b
        if b == 0:
            return a
        return self.add(self.index(a), self.index(b), flags=("nsw",))

    def isub(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self.sub(self.index(a), self.index(b), flags=("nsw",))

    def imul(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1:
            return b
        if b == 1:
            return a
        return self.mul(self.index(a), self.index(b), flags=("nsw",))

    def idiv(self, a: Index, b: Index) -> Index:
        """Quotient of non-negative indices, rounded down."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        return a if b == 1 else self.udiv(self.index(a), self.index(b))

    def irem(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a % b
        return 0 if b == 1 else self.urem(self.index(a), self.index(b))

    def imin(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        x, y = self.index(a), self.index(b)
        return self.select(self.icmp_signed("<", x, y), x, y)

    def imax(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        x, y = self.index(a), self.index(b)
        return self.select(self.icmp_signed(">", x, y), x, y)

    def iceil(self, a: Index, b: int) -> Index:
        """Quotient of non-negative indices, rounded up."""
        return self.idiv(self.iadd(a, b - 1), b)

    # -- memory ----------------------------------------------------------------------------------

    def at(self, base: ir.Value, offset: Index, element: ir.Type) -> ir.Value:
        """Address of `base[offset]`, counted in elements."""
        if isinstance(offset, int) and offset == 0:
            return base
        return self.gep(base, [self.index(offset)], inbounds=True, source_etype=element)

    def load_vector(self, address: ir.Value, element: ir.Type, lanes: int, align: int | None = None) -> ir.Value:
        kind = ir.VectorType(element, lanes) if lanes > 1 else element
        return self.load(address, typ=kind, align=align or _bytes(element))

    def store_vector(self, value: ir.Value, address: ir.Value, element: ir.Type, align: int | None = None) -> None:
        self.store(value, address, align=align or _bytes(element))

    def masked_load(self, address: ir.Value, element: ir.Type, lanes: int, mask: ir.Value) -> ir.Value:
        """Load the lanes set in `mask`; other lanes are zero and their memory is not accessed."""
        kind = ir.VectorType(element, lanes)
        zero = ir.Constant(kind, None)
        return self.intrinsic(
            f"llvm.masked.load.v{lanes}{_suffix(element)}.p0", kind,
            [address, ir.Constant(I32, _bytes(element)), mask, zero],
        )

    def masked_store(self, value: ir.Value, address: ir.Value, element: ir.Type, lanes: int, mask: ir.Value) -> None:
        """Store the lanes set in `mask`. For a constant mask of one lane, LLVM's x86 code writes 4 bytes even if
        elements of 1 or 2 bytes were truncated to that size; such a lane is therefore stored as a scalar."""
        set_lanes = [lane for lane in range(lanes) if _is_set(mask, lane)]
        if len(set_lanes) == 1:
            scalar = self.extract_element(value, ir.Constant(I32, set_lanes[0]))
            self.store(scalar, self.at(address, set_lanes[0], element), align=_bytes(element))
            return
        self.intrinsic(
            f"llvm.masked.store.v{lanes}{_suffix(element)}.p0", ir.VoidType(),
            [value, address, ir.Constant(I32, _bytes(element)), mask],
        )

    def lane_mask(self, count: Index, lanes: int) -> ir.Value:
        """A mask whose first `count` lanes are set."""
        if isinstance(count, int):
            return ir.Constant(ir.VectorType(I1, lanes), [lane < count for lane in range(lanes)])
        steps = ir.Constant(ir.VectorType(I32, lanes), list(range(lanes)))
        return self.icmp_signed("<", steps, self.splat(self.trunc(count, I32), lanes))

    def prefetch(self, address: ir.Value, near: bool) -> None:
        """Prefetch the cache line at `address`, which need not be mapped, to the first-level cache (`near`) or the
        second-level one."""
        options = (0, 3 if near else 2, 1)  # read access, locality, data cache
        self.intrinsic("llvm.prefetch.p0", ir.VoidType(), [address, *(ir.Constant(I32, n) for n in options)])

    # -- vectors ---------------------------------------------------------------------------------

    def splat(self, scalar: ir.Value, lanes: int) -> ir.Value:
        if lanes == 1:
            return scalar
        kind = ir.VectorType(scalar.type, lanes)
        first = self.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
        everywhere = ir.Constant(ir.VectorType(I32, lanes), None)
        return self.shuffle_vector(first, ir.Constant(kind, ir.Undefined), everywhere)

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """Fused `a * b + c` on floating scalars or vectors."""
        return self.intrinsic(f"llvm.fma.{type_suffix(a.type)}", a.type, [a, b, c])

    def intrinsic(self, name: str, result: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
        """Call the intrinsic (or external function) `name`, declaring it in the module once."""
        module = self.module
        callee = module.globals.get(name)
        if callee is None:
            callee = ir.Function(module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.call(callee, arguments)

    # -- control flow ----------------------------------------------------------------------------

    def loop(
        self,
        begin: Index,
        end: Index,
        step: Index,
        body: Callable[[Index, list[ir.Value]], Sequence[ir.Value] | None],
        carried: Sequence[ir.Value] = (),
    ) -> list[ir.Value]:
        """`for i in range(begin, end, step)` with loop-carried values; returns their final values.

        A known single iteration is emitted in line; a known empty range emits no code.
        """
        if isinstance(begin, int) and isinstance(end, int) and isinstance(step, int):
            if begin >= end:
                return list(carried)
            if begin + step >= end:
                return list(body(begin, list(carried)) or carried)
        before = self.block
        known = isinstance(begin, int) and isinstance(end, int)
        header = self.append_basic_block("loop")
        after = self.append_basic_block("done")
        if known:
            self.branch(header)
        else:
            self.cbranch(self.icmp_signed("<", self.index(begin), self.index(end)), header, after)
        self.position_at_end(header)
        induction = self.phi(I64)
        induction.add_incoming(self.index(begin), before)
        phis = [self.phi(value.type) for value in carried]
        for phi, value in zip(phis, carried, strict=True):
            phi.add_incoming(value, before)
        results = list(body(induction, list(phis)) or phis)
        following = self.add(induction, self.index(step), flags=("nsw",))
        latch = self.block
        self.cbranch(self.icmp_signed("<", following, self.index(end)), header, after)
        induction.add_incoming(following, latch)
        for phi, value in zip(phis, results, strict=True):
            phi.add_incoming(value, latch)
        self.position_at_end(after)
        if known:
            return results
        merged: list[ir.Value] = []
        for value, result in zip(carried, results, strict=True):
            phi = self.phi(value.type)
            phi.add_incoming(value, before)
            phi.add_incoming(result, latch)
            merged.append(phi)
        return merged


def type_suffix(kind: ir.Type) -> str:
    """The suffix by which intrinsics name a type: `v16f32`, `f64`."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    return _suffix(kind)


def _suffix(kind: ir.Type) -> str:
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return {F16: "f16", F32: "f32", F64: "f64"}[kind]


def _is_set(mask: ir.Value, lane: int) -> bool:
    """Whether a lane of the constant `mask` is set."""
    return isinstance(mask, ir.Constant) and isinstance(mask.constant, (list, tuple)) and bool(
        getattr(mask.constant[lane], "constant", mask.constant[lane])
    )


def _bytes(kind: ir.Type) -> int:
    if isinstance(kind, ir.IntType):
        return max(1, kind.width // 8)
    return {F16: 2, F32: 4, F64: 8}[kind] if not isinstance(kind, ir.PointerType) else 8

