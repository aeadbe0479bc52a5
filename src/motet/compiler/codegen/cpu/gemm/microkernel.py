"""The microkernel of contractions and convolutions: a register tile.

A tile holds `rows x vectors` accumulators. Each step along K loads `vectors` vectors of B once and multiplies them by
one broadcast element of A per row, as in "Anatomy of High-Performance Matrix Multiplication" (Goto, van de Geijn, 2008)
and BLIS. K may be a nest of loops; convolutions loop over a window in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F16, F32, F64, I8, I16, I32, I64, PTR, Builder, Index
from motet.compiler.codegen.cpu.emit.compute_types import from_storage, round_bf16
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.product import Product
from motet.compiler.kernels.strides import Extent, StridedAccess
from motet.compiler.targets.cpu import CpuTarget

MEMORY_TYPES: dict[str, Any] = {
    "i1": I8, "i8": I8, "ui8": I8, "i16": I16, "ui16": I16, "i32": I32, "ui32": I32, "i64": I64, "ui64": I64,
    "index": I64, "f16": F16, "bf16": I16, "f32": F32, "f64": F64,
}


class TileFrame(Builder):
    """A builder in a function whose first two arguments are a kernel's `buffers` and `sizes`.

    Pointers and symbols are loaded once, in the entry block.
    """

    def __init__(self, kernel: Kernel, function: Any) -> None:
        super().__init__(function.append_basic_block("entry"))
        self.kernel = kernel
        self.arguments: Sequence[Any] = function.args
        self._symbols: dict[str, ir.Value] = {}
        self._pointers: dict[int, ir.Value] = {}

    def symbol(self, name: str) -> ir.Value:
        if name not in self._symbols:
            with self.goto_entry_block():
                address = self.at(self.arguments[1], self.kernel.symbols.index(name), I64)
                self._symbols[name] = self.load_vector(address, I64, 1)
        return self._symbols[name]

    def pointer(self, value: int) -> ir.Value:
        """The address of the kernel's value `value`, which must not be a temporary."""
        if value not in self._pointers:
            with self.goto_entry_block():
                address = self.at(self.arguments[0], self.kernel.externals.index(value), PTR)
                self._pointers[value] = self.load(address, typ=PTR, align=8)
        return self._pointers[value]

    def extent(self, extent: Extent) -> Index:
        result: Index = extent.factor
        for symbol in extent.symbols:
            result = self.imul(result, self.symbol(symbol))
        return result

    def offset(self, place: StridedAccess, coordinates: Sequence[Index]) -> Index:
        """The element offset of `place` at `coordinates`, one per stride."""
        result: Index = 0
        for part in place.offset:
            result = self.iadd(result, self.extent(part))
        for stride, coordinate in zip(place.strides, coordinates, strict=True):
            result = self.iadd(result, self.imul(self.extent(stride), coordinate))
        return result

    def address(self, place: StridedAccess, coordinates: Sequence[Index]) -> ir.Value:
        return self.at(self.pointer(place.value), self.offset(place, coordinates), MEMORY_TYPES[place.dtype])


def task_function(module: ir.Module, kernel: Kernel, name: str = "") -> TileFrame:
    """A function `(buffers, sizes, begin, end, scratch)` that runs some tasks of a phase, by default the kernel's."""
    kind = ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I64, PTR])
    function = ir.Function(module, kind, name or kernel.name)
    function.attributes.add("nounwind")
    return TileFrame(kernel, function)


def internal_function(module: ir.Module, name: str, arguments: Sequence[ir.Type]) -> Any:
    """A function private to this module. LLVM must not inline it, so that its registers are allocated separately."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), list(arguments)), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    return function


def shared_function(
    module: ir.Module, name: str, arguments: Sequence[ir.Type], kernel: Kernel, write: Callable[[TileFrame], None]
) -> Any:
    """The internal function named `name`; `write` emits its body if the module does not contain it yet."""
    found = module.globals.get(name)
    if found is not None:
        return found
    function = internal_function(module, name, arguments)
    f = TileFrame(kernel, function)
    write(f)
    f.ret_void()
    return function


# -- products ------------------------------------------------------------------------------------------


def with_type(kind: ir.Type, element: Any) -> Any:
    """`element`, or a vector of `element` with as many lanes as `kind`."""
    return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element


def widen(f: TileFrame, value: ir.Value, dtype: str, casts: Sequence[str], result: str) -> ir.Value:
    """Convert `value`, loaded as `dtype`, to the type of `result`."""
    target = MEMORY_TYPES[result]
    unsigned = any(cast in ("arith.extui", "arith.uitofp") for cast in casts) or dtype == "i1"
    if dtype in ("f16", "bf16", "f32", "f64"):
        if dtype == "bf16":
            value = from_storage(f, value, dtype)
        same = _scalar_type(value.type) == target
        return value if same else f.fpext(value, with_type(value.type, target))
    kind = with_type(value.type, target)
    if result in ("f32", "f64"):
        return f.uitofp(value, kind) if unsigned else f.sitofp(value, kind)
    if _scalar_type(value.type) == target:
        return value
    return f.zext(value, kind) if unsigned else f.sext(value, kind)


def narrow(f: TileFrame, value: ir.Value, dtype: str) -> ir.Value:
    """Convert `value`, of the product's type, to the compute type of `dtype`."""
    if dtype == "bf16":
        return round_bf16(f, value)
    target = MEMORY_TYPES[dtype]
    if _scalar_type(value.type) == target:
        return value
    kind = with_type(value.type, target)
    return f.fptrunc(value, kind) if dtype == "f16" else f.trunc(value, kind)


def _scalar_type(kind: ir.Type) -> Any:
    return kind.element if isinstance(kind, ir.VectorType) else kind


# -- vectors in memory ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartialVector:
    """A vector of `lanes` elements of which the first `count` exist (None: all)."""

    lanes: int
    count: Index | None = None


def read_vector(f: TileFrame, address: ir.Value, dtype: str, stride: Index, lanes: PartialVector) -> ir.Value:
    """Elements `address[i * stride]` as stored. Lanes that do not exist are not read; their value is undefined."""
    element = MEMORY_TYPES[dtype]
    if lanes.lanes == 1 or (isinstance(stride, int) and stride == 0):
        return f.splat(f.load_vector(address, element, 1), lanes.lanes)
    if isinstance(stride, int) and stride == 1:
        if lanes.count is None:
            return f.load_vector(address, element, lanes.lanes)
        return f.masked_load(address, element, lanes.lanes, f.lane_mask(lanes.count, lanes.lanes))
    count = lanes.lanes if lanes.count is None else f.imin(lanes.count, lanes.lanes)
    kind = ir.VectorType(element, lanes.lanes)
    result: ir.Value = ir.Constant(kind, None)
    if isinstance(count, int):
        for lane in range(count):
            scalar = f.load_vector(f.at(address, f.imul(lane, stride), element), element, 1)
            result = f.insert_element(result, scalar, ir.Constant(I32, lane))
        return result

    def one(lane: Index, values: list[ir.Value]) -> list[ir.Value]:
        scalar = f.load_vector(f.at(address, f.imul(lane, stride), element), element, 1)
        return [f.insert_element(values[0], scalar, f.trunc(f.index(lane), I32))]

    return f.loop(0, count, 1, one, [result])[0]


def write_vector(
    f: TileFrame, value: ir.Value, address: ir.Value, dtype: str, stride: Index, lanes: PartialVector,
    streaming: bool = False
) -> None:
    """Store the lanes that exist to `address[i * stride]`; with `streaming`, past the caches, which requires whole
    vectors at aligned addresses."""
    element = MEMORY_TYPES[dtype]
    if streaming and lanes.count is None and isinstance(stride, int) and stride == 1:
        store = f.store(value, address, align=lanes.lanes * item_bytes(dtype))
        store.set_metadata("nontemporal", f.module.add_metadata([ir.Constant(I32, 1)]))
        return
    if lanes.lanes == 1:
        f.store_vector(value, address, element)
    elif isinstance(stride, int) and stride == 1:
        if lanes.count is None:
            f.store_vector(value, address, element)
        else:
            f.masked_store(value, address, element, lanes.lanes, f.lane_mask(lanes.count, lanes.lanes))
    elif lanes.count is None or isinstance(lanes.count, int):
        for lane in range(lanes.lanes if lanes.count is None else min(lanes.count, lanes.lanes)):
            scalar = f.extract_element(value, ir.Constant(I32, lane))
            f.store_vector(scalar, f.at(address, f.imul(lane, stride), element), element)
    else:
        count = f.imin(lanes.count, lanes.lanes)

        def one(lane: Index, _: list[ir.Value]) -> None:
            scalar = f.extract_element(value, f.trunc(f.index(lane), I32))
            f.store_vector(scalar, f.at(address, f.imul(lane, stride), element), element)

        f.loop(0, f.index(count), 1, one)


def transpose(f: TileFrame, vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """The transpose of `n` vectors of `n` lanes, `n` a power of two, by log2(n) perfect shuffles."""
    result = list(vectors)
    n = len(result)
    low = ir.Constant(ir.VectorType(I32, n), [lane // 2 + (n if lane % 2 else 0) for lane in range(n)])
    high = ir.Constant(ir.VectorType(I32, n), [n // 2 + lane // 2 + (n if lane % 2 else 0) for lane in range(n)])
    for _ in range(n.bit_length() - 1):
        shuffled: list[ir.Value] = []
        for k in range(n // 2):
            a, b = result[k], result[k + n // 2]
            shuffled += [f.shuffle_vector(a, b, low), f.shuffle_vector(a, b, high)]
        result = shuffled
    return result


def horizontal_sum(f: TileFrame, vector: ir.Value, is_float: bool) -> ir.Value:
    """The sum of all lanes, by halving the vector."""
    lanes = vector.type.count
    while lanes > 1:
        lanes //= 2
        parts = [
            f.shuffle_vector(
                vector, vector, ir.Constant(ir.VectorType(I32, lanes), list(range(start, start + lanes)))
            )
            for start in (0, lanes)
        ]
        vector = f.fadd(*parts) if is_float else f.add(*parts)
    return f.extract_element(vector, ir.Constant(I32, 0))


# -- the tile ------------------------------------------------------------------------------------------

LINE = 64  # bytes of a cache line
AHEAD_STEPS = 4


@dataclass(frozen=True)
class Depth:
    """One loop along K, with its strides in A and B."""

    size: Index
    a: Index
    b: Index


@dataclass(frozen=True)
class TileOperands:
    """How a tile reads its operands: the stored dtype and the casts; `row` is A's stride between rows.

    `b_lanes` holds one `PartialVector` per vector of B. The vectors of B are contiguous.
    """

    product: Product
    a_dtype: str
    a_casts: tuple[str, ...]
    row: Index
    b_dtype: str
    b_casts: tuple[str, ...]
    b_lanes: tuple[PartialVector, ...]


@dataclass(frozen=True)
class Ahead:
    """Memory to prefetch: in every four steps of K, `lines` cache lines from `address` on; then `address` advances by
    `stride` bytes."""

    address: ir.Value
    lines: int
    stride: int


# Parameters: the operands of a micro-kernel, which each of its callers has in a place of its own.
def accumulate(
    f: TileFrame, factors: TileOperands, accumulators: Sequence[ir.Value], a: ir.Value, b: ir.Value,
    depth: Sequence[Depth], fused_steps: int, ahead: Ahead | None = None,
) -> list[ir.Value]:
    """The accumulators (row-major, `rows x vectors`) after all steps of K, with at most `fused_steps` multiply-adds per
    iteration of the innermost loop."""
    rows = len(accumulators) // len(factors.b_lanes)
    a_type, b_type = MEMORY_TYPES[factors.a_dtype], MEMORY_TYPES[factors.b_dtype]
    row_offsets = [f.imul(row, factors.row) for row in range(rows)]

    def step(a_at: ir.Value, b_at: ir.Value, values: list[ir.Value], a_off: Index, b_off: Index) -> list[ir.Value]:
        bs = _load_b(f, factors, f.at(b_at, b_off, b_type))
        result: list[ir.Value] = []
        for row in range(rows):
            scalar = f.load_vector(f.at(a_at, f.iadd(row_offsets[row], a_off), a_type), a_type, 1)
            scalar = widen(f, scalar, factors.a_dtype, factors.a_casts, factors.product.dtype)
            splat = f.splat(scalar, factors.b_lanes[0].lanes)
            for v, vector in enumerate(bs):
                result.append(_multiply_add(f, factors.product, splat, vector, values[row * len(bs) + v]))
        return result

    def nest(level: int, a_at: ir.Value, b_at: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        loop = depth[level]
        if level + 1 < len(depth):
            def body(i: Index, inner: list[ir.Value]) -> list[ir.Value]:
                return nest(
                    level + 1, f.at(a_at, f.imul(i, loop.a), a_type), f.at(b_at, f.imul(i, loop.b), b_type), inner
                )
            return f.loop(0, loop.size, 1, body, values)
        unroll = max(1, min(4, fused_steps // len(values)))
        if isinstance(loop.size, int) and loop.size * len(values) <= fused_steps:
            unroll = loop.size

        def steps(count: int) -> Callable[[Index, list[ir.Value]], list[ir.Value]]:
            def body(i: Index, inner: list[ir.Value]) -> list[ir.Value]:
                if ahead is not None and count == AHEAD_STEPS:
                    _fetch(f, ahead, i)
                a_i, b_i = f.at(a_at, f.imul(i, loop.a), a_type), f.at(b_at, f.imul(i, loop.b), b_type)
                for u in range(count):
                    inner = step(a_i, b_i, inner, f.imul(u, loop.a), f.imul(u, loop.b))
                return inner
            return body

        whole = f.imul(f.idiv(loop.size, unroll), unroll)
        values = f.loop(0, whole, unroll, steps(unroll), values)
        return f.loop(whole, loop.size, 1, steps(1), values)

    return nest(0, a, b, list(accumulators))


def _fetch(f: TileFrame, ahead: Ahead, step: Index) -> None:
    """Prefetch to the second-level cache what `ahead` describes for the four steps of K from `step` on."""
    for line in range(ahead.lines):
        offset = f.iadd(f.imul(f.idiv(step, AHEAD_STEPS), ahead.stride), line * LINE)
        f.prefetch(f.at(ahead.address, offset, ir.IntType(8)), near=False)


def _load_b(f: TileFrame, factors: TileOperands, address: ir.Value) -> list[ir.Value]:
    result: list[ir.Value] = []
    element = MEMORY_TYPES[factors.b_dtype]
    offset = 0
    for lanes in factors.b_lanes:
        raw = read_vector(f, f.at(address, offset, element), factors.b_dtype, 1, lanes)
        result.append(widen(f, raw, factors.b_dtype, factors.b_casts, factors.product.dtype))
        offset += lanes.lanes
    return result


def _multiply_add(f: TileFrame, product: Product, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    return f.multiply_add(a, b, c) if product.is_float else f.add(f.mul(a, b), c)


def balanced(total: int, most: int) -> tuple[int, int, int]:
    """Split `total` into nearly equal pieces of at most `most`: (pieces, size, how many have one more)."""
    pieces = -(-total // most)
    return pieces, total // pieces, total % pieces


def registers(target: CpuTarget, vectors: int) -> int:
    """The number of rows of a tile of `vectors` vectors such that accumulators and operands fit in the registers."""
    free = target.vector_registers - vectors - 1
    best = free // vectors
    return max(1, min(best, {1: 14, 2: 12, 3: 8, 4: 6}.get(vectors, best)))


def register_tile(
    rows: int, columns: int, lanes: int, target: CpuTarget, weigh: Callable[[int], float] = lambda panels: 1.0
) -> tuple[int, int]:
    """The register tile (rows, vectors) that covers `rows x columns` in the fewest cycles, weighted by
    `weigh(panels)`."""
    needed = -(-columns // lanes)
    best: tuple[float, int, int] | None = None
    for vectors in range(1, 5):
        if target.vector_registers <= 16 and vectors > 2:
            continue
        most = registers(target, vectors)
        height = -(-rows // -(-rows // most))
        cost = _cycles(rows, needed, most, vectors) * weigh(-(-needed // vectors))
        if best is None or (cost, -vectors) < (best[0], -best[2]):
            best = (cost, height, vectors)
    assert best is not None
    return best[1], best[2]


def _cycles(rows: int, vectors: int, height: int, width: int) -> int:
    """The cycles of one step of K over `rows` by `vectors` vectors in tiles of at most `height` by `width`. A tile
    costs the larger of its multiply-adds and its loads, and at least the latency that few accumulators expose."""
    tiles, size, longer = balanced(rows, height)
    panels, left = divmod(vectors, width)

    def column(width: int) -> int:
        higher, lower = (max(h * width, h + width + 1, 8) for h in (size + 1, size))
        return longer * higher + (tiles - longer) * lower

    return panels * column(width) + (column(left) if left else 0)
