"""Addresses of a stage's elements, and vector loads and stores.

An access becomes a `StridedAccess` (`kernels/strides.py`): an offset and one stride per loop dimension, in elements. A
*nest* is a stage with strided accesses; its dimensions can be permuted and merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.emit import strided_loads
from motet.compiler.codegen.cpu.emit.builder import I8, I32, I64, PTR, Builder, Index
from motet.compiler.codegen.cpu.emit.compute_types import (
    Unsupported,
    constant,
    from_storage,
    storage_type,
    to_storage,
    widen,
)
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Stage, item_bytes
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess, bounded_place_of


@dataclass(frozen=True)
class StridedNest:
    """A stage with strided accesses. `dims[d]` is the loop that dimension `d` of `stage` became, for `linalg.index`."""

    stage: Stage
    sizes: tuple[Extent, ...]
    kinds: tuple[Literal["parallel", "reduction"], ...]
    inputs: tuple[StridedAccess, ...]
    outputs: tuple[StridedAccess, ...]
    inits: tuple[StridedAccess | float | int | None, ...]
    dims: tuple[int, ...]

    @property
    def operands(self) -> tuple[StridedAccess, ...]:
        return (*self.inputs, *self.outputs, *(init for init in self.inits if isinstance(init, StridedAccess)))

    @property
    def body(self) -> tuple[Scalar, ...]:
        return self.stage.body

    @property
    def varying_dtypes(self) -> list[str]:
        """The dtypes of the inputs, the outputs and the body values that may differ from point to point: a vector has
        as many lanes as the widest allows. Constants stay scalars."""
        count = len(self.inputs) + len(self.outputs)
        varying = set(range(count))
        dtypes = [operand.dtype for operand in (*self.inputs, *self.outputs)]
        for position, scalar in enumerate(self.body, start=count):
            if scalar.op == "linalg.index" or not varying.isdisjoint(scalar.operands):
                varying.add(position)
                dtypes += [scalar.dtype] * (scalar.dtype not in ("index", "i1"))
        return dtypes

    def dims_of(self, kind: str) -> list[int]:
        return [d for d, found in enumerate(self.kinds) if found == kind]

    def arrange(self, order: Sequence[int]) -> StridedNest:
        """The same nest with its dimensions in `order`."""
        where = {old: new for new, old in enumerate(order)}
        return self._with(
            lambda operand: replace(
                operand,
                strides=tuple(operand.strides[d] for d in order),
                bounds=tuple(
                    replace(bound, entry=bound.entry.renumber(where)) for bound in operand.bounds
                ),
            ),
            sizes=tuple(self.sizes[d] for d in order),
            kinds=tuple(self.kinds[d] for d in order),
            dims=tuple(where.get(d, -1) for d in self.dims),
        )

    def merge(self, outer: int, inner: int) -> StridedNest:
        """The nest with dimension `outer` merged into `inner`; valid only if `mergeable`."""
        sizes = list(self.sizes)
        sizes[inner] = sizes[outer] * sizes[inner]
        merged = replace(self, sizes=tuple(sizes))
        return merged.arrange([d for d in range(len(self.sizes)) if d != outer])

    def mergeable(self, outer: int, inner: int) -> bool:
        pinned = {self.dims[int(op.value or 0)] for op in self.body if op.op == "linalg.index"}
        if self.kinds[outer] != self.kinds[inner] or {outer, inner} & pinned:
            return False
        return all(
            operand.strides[outer] == operand.strides[inner] * self.sizes[inner]
            and not any({outer, inner}.intersection(bound.entry.dims) for bound in operand.bounds)
            for operand in self.operands
        )

    def collapse(self) -> StridedNest:
        """The nest with neighbouring dimensions merged where every operand allows it, and without those of extent 1."""
        pinned = {self.dims[int(op.value or 0)] for op in self.body if op.op == "linalg.index"}
        keep = [d for d, size in enumerate(self.sizes) if size != ONE or d in pinned]
        nest = self.arrange(keep)
        d = len(nest.sizes) - 2
        while d >= 0:
            if nest.mergeable(d, d + 1):
                nest = nest.merge(d, d + 1)
            d -= 1
        return nest

    def _with(self, change: Any, sizes: Any, kinds: Any, dims: Any) -> StridedNest:
        return StridedNest(
            self.stage,
            sizes,
            kinds,
            tuple(map(change, self.inputs)),
            tuple(map(change, self.outputs)),
            tuple(change(init) if isinstance(init, StridedAccess) else init for init in self.inits),
            dims,
        )


def nest_of(kernel: Kernel, stage: Stage) -> StridedNest:
    """`stage` with strided accesses, dimensions in their original order. Raises `Unsupported`."""
    inits = tuple(
        operand_of(kernel, stage, init) if isinstance(init, Access) else init for init in stage.inits
    )
    for output in stage.outputs:
        if output.padding is not None:
            raise Unsupported("a padded write")
        for d in stage.reductions:
            if any(entry.coefficient(d) for entry in output.map):
                raise Unsupported("a write that moves along a reduction")
    return StridedNest(
        stage,
        tuple(Extent.of(size) for size in stage.sizes),
        stage.iterators,
        tuple(operand_of(kernel, stage, access) for access in stage.inputs),
        tuple(operand_of(kernel, stage, access) for access in stage.outputs),
        inits,
        tuple(range(len(stage.sizes))),
    )


def operand_of(kernel: Kernel, stage: Stage, access: Access) -> StridedAccess:
    place = bounded_place_of(kernel, access, stage.sizes)
    if place is None:
        raise Unsupported("a stride that is not a product")
    storage_type(place.dtype)
    return place


# -- results beyond the caches ---------------------------------------------------------------------------

STREAM = 32 << 20
"""Results of at least so many bytes are written with non-temporal stores, past the caches."""


def result_bytes(kernel: Kernel, value: int) -> Extent:
    """The size of `value` in bytes."""
    result = Extent(item_bytes(kernel.values[value].dtype))
    for size in kernel.values[value].shape:
        result = result * Extent.of(size)
    return result


# -- functions -----------------------------------------------------------------------------------------


class Frame(Builder):
    """A builder in the function of a phase. Pointers and symbols are loaded once, in the entry block.

    Each temporary of the kernel is a workspace, by its number, or at an offset in scratch. `more` are types of
    arguments after those of a phase.
    """

    def __init__(
        self,
        module: ir.Module,
        name: str,
        kernel: Kernel,
        workspaces: Mapping[int, int],
        scratch: Mapping[int, int],
        more: Sequence[ir.Type] = (),
    ) -> None:
        arguments = [PTR, PTR, I64, I64, PTR, *more]
        function: Any = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
        super().__init__(function.append_basic_block("entry"))
        self.kernel = kernel
        self.arguments: Sequence[Value] = function.args
        self._workspaces = workspaces
        self._scratch = scratch
        self._cache: dict[object, Value] = {}
        self._moved: dict[int, Value] = {}
        self._entry: Any = self.block
        self.position_at_end(function.append_basic_block("start"))
        self._start: Any = self.block

    def finish(self) -> None:
        """Return, and close the entry block. Call once, when the code is complete."""
        self.ret_void()
        with self.goto_block(self._entry):
            self.branch(self._start)

    def _in_entry(self, key: object, make: Any) -> Value:
        if key not in self._cache:
            with self.goto_block(self._entry):
                self._cache[key] = make()
        return self._cache[key]

    def symbol(self, name: str) -> Value:
        number = self.kernel.symbols.index(name)
        return self._in_entry(
            name, lambda: self.load(self.at(self.arguments[1], number, I64), typ=I64, align=8)
        )

    def pointer(self, value: int) -> Value:
        """The address of a value of the kernel."""
        if value in self._moved:
            return self._moved[value]
        if value in self._scratch:
            return self._in_entry(value, lambda: self.at(self.arguments[4], self._scratch[value], I8))
        if value in self._workspaces:
            number = len(self.kernel.externals) + self._workspaces[value]
        else:
            number = self.kernel.externals.index(value)
        return self._in_entry(
            value, lambda: self.load(self.at(self.arguments[0], number, PTR), typ=PTR, align=8)
        )

    def status(self) -> Value:
        """The address of the kernel's status, its last buffer."""
        number = len(self.kernel.externals) + len(self._workspaces)
        return self._in_entry("status", lambda: self.load(self.at(self.arguments[0], number, PTR), typ=PTR, align=8))

    def move(self, value: int, elements: Index) -> None:
        """Advance the base address of a value in scratch by `elements` from here on."""
        kind = storage_type(self.kernel.values[value].dtype)
        self._moved[value] = self.at(self.pointer(value), elements, kind)

    def extent(self, extent: Extent) -> Index:
        if not extent.symbols:
            return extent.factor

        def make() -> Value:
            result: Index = extent.factor
            for symbol in extent.symbols:
                result = self.imul(result, self.symbol(symbol))
            return self.index(result)

        return self._in_entry(extent, make)

    def offset(self, operand: StridedAccess, indices: Sequence[Index]) -> Index:
        """The element offset of `operand` at `indices`, one per dimension."""
        result: Index = 0
        for part in operand.offset:
            result = self.iadd(result, self.extent(part))
        for stride, i in zip(operand.strides, indices, strict=True):
            result = self.iadd(result, self.imul(self.extent(stride), i))
        return result

    def address(self, operand: StridedAccess, indices: Sequence[Index]) -> Value:
        return self.at(
            self.pointer(operand.value), self.offset(operand, indices), storage_type(operand.dtype)
        )

    def branches(self, condition: Value, then: Any, otherwise: Any) -> list[Value]:
        """The values of `then()` or `otherwise()`, selected by a branch."""
        blocks = [self.append_basic_block(name) for name in ("then", "else", "joined")]
        self.cbranch(condition, blocks[0], blocks[1])
        results: list[tuple[list[Value], Any]] = []
        for block, make in zip(blocks[:2], (then, otherwise), strict=True):
            self.position_at_end(block)
            values = list(make() or ())
            results.append((values, self.block))
            self.branch(blocks[2])
        self.position_at_end(blocks[2])
        merged: list[Value] = []
        for pair in zip(results[0][0], results[1][0], strict=True):
            phi = self.phi(pair[0].type)
            for value, (_, block) in zip(pair, results, strict=True):
                phi.add_incoming(value, block)
            merged.append(phi)
        return merged


@dataclass(frozen=True)
class Lanes:
    """`count` points along dimension `dim` (None: a single point), of which the first `active` exist (None: all)."""

    dim: int | None
    count: int
    active: Index | None = None

    @property
    def whole(self) -> bool:
        return self.active is None


def load_values(
    f: Frame, operand: StridedAccess, indices: Sequence[Index], lanes: Lanes, checked: bool = True
) -> Value:
    """Load `lanes` elements along `lanes.dim` from `indices` on, in the type computed with; a scalar if the operand's
    stride along that dimension is 0. Lanes that do not exist are not read. `checked` tests the access's bounds."""
    if operand.bounds and checked:
        return _load_padded(f, operand, indices, lanes)
    return from_storage(f, load_stored(f, operand, indices, lanes), operand.dtype)


def load_stored(f: Frame, operand: StridedAccess, indices: Sequence[Index], lanes: Lanes) -> Value:
    """Like `load_values`, but in the storage type and without bounds."""
    kind = storage_type(operand.dtype)
    address = f.address(operand, indices)
    stride = ZERO if lanes.dim is None else operand.strides[lanes.dim]
    if lanes.count == 1 or stride == ZERO:
        return f.load_vector(address, kind, 1)
    if stride == ONE:
        if lanes.active is None:
            return f.load_vector(address, kind, lanes.count)
        return f.masked_load(address, kind, lanes.count, f.lane_mask(lanes.active, lanes.count))
    if stride.known == -1:
        return strided_loads.descending(f, address, kind, lanes.count, lanes.active)
    if lanes.whole and stride.known is not None and 1 < stride.known <= 4:
        return strided_loads.interleaved(f, address, kind, lanes.count, stride.known)
    return strided_loads.strided(f, address, kind, lanes.count, lanes.active, f.extent(stride))


def inside(f: Frame, operand: StridedAccess, indices: Sequence[Index], lanes: Lanes) -> Value:
    """Whether each point is within the bounds of `operand`: an i1, or a vector of them."""
    result: Value = None
    for bound in operand.bounds:
        position: Index = bound.entry.constant
        for dim, coefficient in bound.entry.terms:
            position = f.iadd(position, f.imul(coefficient, indices[dim]))
        point: Value = f.index(position)
        step = 0 if lanes.dim is None else bound.entry.coefficient(lanes.dim)
        if step and lanes.count > 1:
            steps = ir.Constant(ir.VectorType(I64, lanes.count), [lane * step for lane in range(lanes.count)])
            point = f.add(f.splat(point, lanes.count), steps)
        limit = widen(f, f.index(f.extent(bound.extent)), lanes.count if step else 1)
        test = f.icmp_unsigned("<", point, limit)
        if result is None:
            result = test
        else:
            wide = lanes.count if any(isinstance(t.type, ir.VectorType) for t in (result, test)) else 1
            result = f.and_(widen(f, result, wide), widen(f, test, wide))
    return result


def _load_padded(f: Frame, operand: StridedAccess, indices: Sequence[Index], lanes: Lanes) -> Value:
    kind = storage_type(operand.dtype)
    padding = constant(operand.dtype, 0 if operand.padding is None else operand.padding)
    test = inside(f, operand, indices, lanes)
    stride = ZERO if lanes.dim is None else operand.strides[lanes.dim]
    address = f.address(operand, indices)
    if lanes.count > 1 and stride == ONE:
        mask: Value = widen(f, test, lanes.count)
        if lanes.active is not None:
            mask = f.and_(mask, f.lane_mask(lanes.active, lanes.count))
        loaded = from_storage(f, f.masked_load(address, kind, lanes.count, mask), operand.dtype)
        return f.select(mask, loaded, widen(f, padding, lanes.count))
    base = f.pointer(operand.value)
    if lanes.count == 1 or (not isinstance(test.type, ir.VectorType) and stride == ZERO):
        value = f.load_vector(f.select(test, address, base), kind, 1)
        return f.select(test, from_storage(f, value, operand.dtype), padding)
    mask = widen(f, test, lanes.count)
    if lanes.active is not None:
        mask = f.and_(mask, f.lane_mask(lanes.active, lanes.count))
    result: Value = ir.Constant(ir.VectorType(kind, lanes.count), ir.Undefined)
    for lane in range(lanes.count):
        at = ir.Constant(I32, lane)
        place = f.at(address, f.imul(lane, f.extent(stride)), kind)
        value = f.load_vector(f.select(f.extract_element(mask, at), place, base), kind, 1)
        result = f.insert_element(result, value, at)
    return f.select(mask, from_storage(f, result, operand.dtype), widen(f, padding, lanes.count))


def store_values(
    f: Frame, value: Value, operand: StridedAccess, indices: Sequence[Index], lanes: Lanes, streaming: bool = False
) -> None:
    """Store a computed value to the points at `indices` along `lanes.dim`."""
    kind = storage_type(operand.dtype)
    stored = to_storage(f, widen(f, value, lanes.count), operand.dtype)
    address = f.address(operand, indices)
    if lanes.count == 1:
        f.store_vector(stored, address, kind)
        return
    stride = operand.strides[lanes.dim or 0]
    if stride == ONE and lanes.active is not None:
        f.masked_store(stored, address, kind, lanes.count, f.lane_mask(lanes.active, lanes.count))
    elif stride == ONE:
        align = item_bytes(operand.dtype) * lanes.count if streaming else item_bytes(operand.dtype)
        instruction: Any = f.store(stored, address, align=align)
        if streaming:
            instruction.set_metadata("nontemporal", f.module.add_metadata([ir.Constant(I32, 1)]))
    else:
        _store_strided(f, stored, address, kind, lanes, f.extent(stride))


def _store_strided(f: Frame, stored: Value, address: Value, kind: Any, lanes: Lanes, stride: Index) -> None:
    """Store lane by lane, the first lane last: lanes that do not exist write to its address before."""
    for lane in reversed(range(lanes.count)):
        at: Index = f.imul(lane, stride)
        value = f.extract_element(stored, ir.Constant(I32, lane))
        if lanes.active is not None and lane:
            exists = f.icmp_signed("<", f.index(lane), f.index(lanes.active))
            at = f.select(exists, f.index(at), f.index(0))
        f.store_vector(value, f.at(address, at, kind), kind)


def index_values(f: Frame, index: Index, lanes: Lanes, dim: int) -> Value:
    """The i64 index of dimension `dim` at the points: a scalar, or a vector along `lanes.dim`."""
    scalar = f.index(index)
    if dim != lanes.dim or lanes.count == 1:
        return scalar
    steps = ir.Constant(ir.VectorType(I64, lanes.count), list(range(lanes.count)))
    return f.add(f.splat(scalar, lanes.count), steps)


def delinearise(f: Frame, index: Index, sizes: Sequence[Extent]) -> list[Index]:
    """The indices, outermost first, of element `index` of a row-major array."""
    result: list[Index] = []
    for size in reversed(sizes[1:]):
        extent = f.extent(size)
        result.append(f.irem(index, extent))
        index = f.idiv(index, extent)
    return [*([index] if sizes else []), *reversed(result)]
