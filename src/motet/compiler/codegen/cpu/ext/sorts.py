"""Sorts along one dimension: any number of tensors by the first one, or only the first elements (top-k).

    %y:2 = tm_tensor.sort dimension(1) outs(%x, positions) { %a >= %b }       pairs of a line: key | position
    %v = extract_slice %y#0[0, 0] [8, 5]                               →      the 5 least ones, sorted
    %i = extract_slice %y#1[0, 0] [8, 5]                                      v = x at their positions; i = those

The sorted items are pairs, one integer each: a key in the high bits, a position in the low bits. Keys are integers that
order the numbers as requested: ascending or descending, -0 equal to 0, and NaN above all other numbers, as in PyTorch.
Positions make the sort stable.

- Few pairs: each is stored at its rank, the number of pairs before it.
- Many pairs: a radix sort, least significant byte first, by counting (Seward, 1954). Bytes that all keys share are
  skipped.
- The first k of more than 4 k: vector comparisons reject elements beyond the k-th so far. The others are collected
  until
  there are 2 k, which are sorted and cut to k.

Tasks are lines. A line has fewer than 2**32 elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from motet.artifact.expressions import apply, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.addressing import Frame
from motet.compiler.codegen.cpu.emit.builder import I8, I32, I64, PTR, Builder, Index
from motet.compiler.codegen.cpu.emit.compute_types import Unsupported, storage_type
from motet.compiler.codegen.cpu.emit.float_lanes import Value, like, same_lanes
from motet.compiler.codegen.cpu.task_split import Division
from motet.compiler.kernels.cost import guess, traffic
from motet.compiler.kernels.kernel import ITEM_BITS
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.linalg_ext import Line, Whole, line_of, order_of
from motet.compiler.kernels.strides import ONE
from motet.compiler.targets.cpu import CpuTarget

_SCRATCH = 1 << 20  # bytes of scratch memory per line; longer lines use a workspace of the call
_LEAST_KEPT = 16  # pairs that are collected before the first k are selected
_VECTORS = 4  # compared at a time
_RANKED = {64: 128, 128: 32}  # by the width of a pair in bits, the number of pairs up to which they are sorted by rank
_PATTERNS = {"f16": (I32, 0x7C00), "bf16": (I32, 0x7F80), "f32": (I32, 0x7F800000), "f64": (I64, 0x7FF << 52)}
# Nanoseconds per element: to compare it, to make it a pair, and to sort one byte of its key.
_COMPARED, _PAIRED, _COUNTED = 0.3, 3.0, 1.5


def emit(whole: Whole, target: CpuTarget) -> KernelCode:
    """Raises `Unsupported` for orders that are not a plain comparison of the first tensor's elements."""
    return _SortEmitter(_sort(whole), target).run()


@dataclass(frozen=True)
class _LineSort:
    """The sort of one line. `wanted` elements are written (None: all). `bits` is the number of significant key bits."""

    whole: Whole
    line: Line
    dtype: str
    wanted: int | None
    descending: bool
    unsigned: bool

    @property
    def bits(self) -> int:
        return ITEM_BITS[self.dtype]

    @property
    def key(self) -> Any:
        return I64 if self.bits == 64 else I32

    @property
    def pair(self) -> Any:
        return ir.IntType(128 if self.bits == 64 else 64)

    @property
    def kept(self) -> int | None:
        """The number of pairs collected before the first are selected; None if whole lines are sorted."""
        if self.wanted is None:
            return None
        kept = max(2 * self.wanted, _LEAST_KEPT)
        length = self.line.length.known
        return None if length is not None and length <= 2 * kept else kept


def _sort(whole: Whole) -> _LineSort:
    carried = [whole.outputs[result] for result in whole.results]
    if whole.outputs[0].value < 0 or any(one.value < 0 and one.axis != whole.dimension for one in carried):
        raise Unsupported("a sort with an operand that is not a tensor")
    dtype = whole.outputs[0].dtype
    if dtype.startswith("f") and dtype not in _PATTERNS:
        raise Unsupported(f"a sort by {dtype}")
    order = order_of(whole)
    if order is None:
        raise Unsupported("a sort by more than one comparison")
    firsts = [first for first in whole.firsts if first is not None]
    wanted = max(firsts) if len(firsts) == len(whole.firsts) else None
    line = line_of(whole.outputs[0].shape, whole.dimension)
    unsigned = order.unsigned or dtype.startswith("ui") or dtype == "index"
    return _LineSort(whole, line, dtype, wanted, order.descending, unsigned)


@dataclass
class _SortEmitter:
    sort: _LineSort
    target: CpuTarget

    def __post_init__(self) -> None:
        kernel = self.sort.whole.kernel
        self.module = ir.Module(kernel.name)
        self.sorter = _sorter(self.module, self.sort, self.lanes)
        self.f = Frame(self.module, kernel.name, kernel, {}, {})
        self.item = storage_type(self.sort.dtype)
        self.division = Division.of([self.sort.line.outer, self.sort.line.inner], None, self._cost(), cut=False)

    @property
    def lanes(self) -> int:
        """The number of pairs compared in one vector."""
        return self.target.lanes(64) if self.sort.pair.width == 64 else 1

    @property
    def chunk(self) -> int:
        """The number of elements compared at a time."""
        return _VECTORS * self.target.lanes(self.sort.key.width)

    def run(self) -> KernelCode:
        f, sort = self.f, self.sort
        kernel = sort.whole.kernel
        self.length = f.extent(sort.line.length)
        self.inner = f.extent(sort.line.inner)
        room = self._room()
        scratch = 2 * room if isinstance(room, int) and 2 * room <= _SCRATCH else 0
        first, second = self._memory(room, bool(scratch))

        def line(indices: list[Index], _first: Index, _end: Index) -> None:
            outer, inner = indices
            sorted_, count = (self._whole if sort.kept is None else self._first)(outer, inner, first, second)
            self._write(outer, inner, sorted_, count)

        self.division.loop(f, line)
        f.finish()
        tasks = self.division.tasks
        return KernelCode(
            "sort", str(self.module), (Phase(kernel.name, tasks),), scratch,
            () if scratch else (product((tasks, room, 2)),),
            bytes=traffic(kernel),
        )

    def _cost(self) -> float:
        """The estimated time of a line in nanoseconds."""
        sort = self.sort
        pair = _PAIRED + _COUNTED * sort.bits / 8
        length = guess(sort.line.length)
        return length * pair if sort.kept is None else length * _COMPARED + 4 * sort.kept * pair

    # -- memory ------------------------------------------------------------------------------------

    def _room(self) -> Expr:
        """Bytes for the pairs of a line, including padding that a sort may write after them."""
        count: Expr = self.sort.line.length.expression if self.sort.kept is None else self.sort.kept
        more = self.chunk + self.lanes
        size = self.sort.pair.width // 8
        if isinstance(count, int):
            return -(-(count + more) * size // 64) * 64
        return apply("*", apply("+", count, -(-more // 8) * 8), size)

    def _memory(self, room: Expr, scratch: bool) -> tuple[Value, Value]:
        """Two buffers for pairs. In a workspace, they are indexed by the first task that the thread was given."""
        f = self.f
        if scratch and isinstance(room, int):
            return f.arguments[4], f.at(f.arguments[4], room, I8)
        space = f.load(f.at(f.arguments[0], len(f.kernel.externals), PTR), typ=PTR, align=8)
        if isinstance(room, int):
            size: Index = room
        else:
            size = f.imul(f.iadd(self.length, -(-(self.chunk + self.lanes) // 8) * 8), self.sort.pair.width // 8)
        own = f.at(space, f.imul(f.arguments[2], f.imul(size, 2)), I8)
        return own, f.at(own, size, I8)

    def _place(self, outer: Index, inner: Index, position: Index, length: Index) -> Index:
        """The offset of an element in a tensor whose lines have `length` elements."""
        f = self.f
        return f.iadd(f.imul(f.iadd(f.imul(outer, length), position), self.inner), inner)

    # -- pairs -------------------------------------------------------------------------------------

    def _keys(self, stored: Value) -> Value:
        """Loaded values as integers that compare in the requested order; scalars or vectors."""
        f, sort = self.f, self.sort
        kind = same_lanes(stored.type, sort.key)
        if sort.dtype in _PATTERNS:
            infinity = _PATTERNS[sort.dtype][1]
            bits = f.bitcast(stored, same_lanes(stored.type, ir.IntType(sort.bits)))
            wide = bits if sort.bits >= 32 else f.sext(bits, kind)
            magnitude = f.and_(wide, like(kind, (1 << (sort.bits - 1)) - 1))
            sign = f.ashr(wide, like(kind, sort.key.width - 1))
            signed = f.sub(f.xor(magnitude, sign), sign)
            largest = (1 << (sort.bits - 1)) - 1
            keys = f.select(f.icmp_signed(">", magnitude, like(kind, infinity)), like(kind, largest), signed)
        else:
            bits = stored
            if sort.dtype == "i1":  # 0 or 1; as a signed number, 1 (-1) is the smaller one
                flip = not sort.unsigned
                bits = f.sub(like(stored.type, 0), stored) if flip else stored
            elif sort.unsigned:
                bits = f.xor(stored, like(stored.type, -(1 << (sort.bits - 1))))
            keys = f.sext(bits, kind) if sort.bits < 32 else bits
        return f.xor(keys, like(kind, -1)) if sort.descending else keys

    def _key(self, outer: Index, inner: Index, position: Index) -> Value:
        f = self.f
        source = f.pointer(self.sort.whole.outputs[0].value)
        place = self._place(outer, inner, position, self.length)
        return self._keys(f.load_vector(f.at(source, place, self.item), self.item, 1))

    def _pair(self, key: Value, position: Index) -> Value:
        f, kind = self.f, self.sort.pair
        return f.or_(f.shl(f.sext(key, kind), like(kind, kind.width // 2)), f.zext(f.index(position), kind)) \
            if kind.width == 128 else f.or_(f.shl(f.sext(key, kind), like(kind, 32)), f.index(position))

    def _gather_all(self, outer: Index, inner: Index, count: Index, pairs: Value) -> None:
        f = self.f

        def one(i: Index, _: object) -> None:
            f.store(self._pair(self._key(outer, inner, i), i), f.at(pairs, i, self.sort.pair), align=8)

        f.loop(0, count, 1, one)

    def _sorted(self, pairs: Value, other: Value, count: Index) -> Value:
        """Sort the pairs; returns the buffer (`pairs` or `other`) that holds them."""
        return self.f.call(self.sorter, [pairs, other, self.f.index(count)])

    # -- lines -------------------------------------------------------------------------------------

    def _whole(self, outer: Index, inner: Index, pairs: Value, other: Value) -> tuple[Value, Index]:
        self._gather_all(outer, inner, self.length, pairs)
        return self._sorted(pairs, other, self.length), self.length

    def _first(self, outer: Index, inner: Index, pairs: Value, other: Value) -> tuple[Value, Index]:
        """Collect the first pairs of a line; returns their buffer and their number."""
        f, kept = self.f, self.sort.kept or 0
        begun = f.imin(self.length, kept)
        self._gather_all(outer, inner, begun, pairs)
        state = self._chosen(pairs, other, begun)
        whole = f.iadd(begun, f.imul(f.idiv(f.isub(self.length, begun), self.chunk), self.chunk))

        def chunk(i: Index, state: list[Value]) -> list[Value]:
            return self._chunk(outer, inner, i, state)

        state = f.loop(begun, whole, self.chunk, chunk, state)
        pairs, other, count, _ = self._considered(outer, inner, whole, self.length, state)
        return self._sorted(pairs, other, count), count

    def _chosen(self, pairs: Value, other: Value, count: Index) -> list[Value]:
        """Select the first pairs; returns both buffers (the selected pairs in the first), their number, and the last
        key."""
        f, kind = self.f, self.sort.pair
        found = self._sorted(pairs, other, count)
        free = f.select(f.icmp_unsigned("==", found, pairs), other, pairs)
        left = f.index(f.imin(count, self.sort.wanted or 0))
        last = f.select(f.icmp_signed(">", left, f.index(0)), f.sub(left, f.index(1)), f.index(0))
        pair = f.load(f.at(found, last, kind), typ=kind, align=8)
        return [found, free, left, f.trunc(f.ashr(pair, like(kind, kind.width // 2)), self.sort.key)]

    def _chunk(self, outer: Index, inner: Index, first: Index, state: list[Value]) -> list[Value]:
        """Process a chunk if one of its elements may be among the first k."""
        f = self.f

        def consider() -> list[Value]:
            found = self._considered(outer, inner, first, f.iadd(first, self.chunk), state)
            full = f.icmp_signed(">", found[2], f.index(self.sort.kept or 0))
            return f.branches(full, lambda: self._chosen(found[0], found[1], found[2]), lambda: found)

        if self.sort.line.inner != ONE:
            return consider()
        lanes = self.chunk // _VECTORS
        threshold = f.splat(state[3], lanes)
        base = f.at(
            f.pointer(self.sort.whole.outputs[0].value), self._place(outer, inner, first, self.length), self.item
        )
        some: Value = None
        for number in range(_VECTORS):
            stored = f.load_vector(f.at(base, number * lanes, self.item), self.item, lanes)
            before = f.icmp_signed("<", self._keys(stored), threshold)
            some = before if some is None else f.or_(some, before)
        any_ = f.icmp_unsigned("!=", f.bitcast(some, ir.IntType(lanes)), ir.Constant(ir.IntType(lanes), 0)) \
            if lanes > 1 else some
        return f.branches(any_, consider, lambda: state)

    def _considered(
        self, outer: Index, inner: Index, first: Index, end: Index, state: list[Value]
    ) -> list[Value]:
        """Collect the elements of `[first, end)` that come before the last pair that is kept."""
        f = self.f
        pairs, other, before, threshold = state

        def one(i: Index, carried: list[Value]) -> list[Value]:
            key = self._key(outer, inner, i)
            f.store(self._pair(key, i), f.at(pairs, carried[0], self.sort.pair), align=8)
            return [f.add(carried[0], f.zext(f.icmp_signed("<", key, threshold), I64))]

        return [pairs, other, *f.loop(first, end, 1, one, [before]), threshold]

    # -- results -----------------------------------------------------------------------------------

    def _write(self, outer: Index, inner: Index, pairs: Value, count: Index) -> None:
        """Write the elements of every tensor at the positions of the first pairs."""
        f, whole, kind = self.f, self.sort.whole, self.sort.pair
        mask = (1 << (kind.width // 2)) - 1
        for number, (result, wanted) in enumerate(zip(whole.results, whole.firsts, strict=True)):
            operand = whole.outputs[result]
            target = len(f.kernel.values) - len(whole.results) + number
            length: Index = self.length if wanted is None else wanted
            item = storage_type(operand.dtype)

            def one(
                i: Index, _: object, operand: Any = operand, target: int = target, length: Index = length,
                item: Any = item,
            ) -> None:
                pair = f.load(f.at(pairs, i, kind), typ=kind, align=8)
                masked = f.and_(pair, ir.Constant(kind, mask))
                position = masked if kind.width == 64 else f.trunc(masked, I64)
                if operand.value < 0:
                    taken = position if item == I64 else f.trunc(position, item)
                else:
                    place = self._place(outer, inner, position, self.length)
                    taken = f.load_vector(f.at(f.pointer(operand.value), place, item), item, 1)
                f.store_vector(taken, f.at(f.pointer(target), self._place(outer, inner, i, length), item), item)

            f.loop(0, count if wanted is None else f.imin(count, wanted), 1, one)


# -- the sort of pairs ---------------------------------------------------------------------------------


def _sorter(module: ir.Module, sort: _LineSort, lanes: int) -> Any:
    """`ptr sort_pairs(ptr pairs, ptr other, i64 count)`: sorts pairs using two buffers, and returns the one that holds
    the result. May also write `lanes` pairs after the last one."""
    function: Any = ir.Function(module, ir.FunctionType(PTR, [PTR, PTR, I64]), "sort_pairs")
    function.linkage = "internal"
    b = Builder(function.append_basic_block("entry"))
    counts = b.alloca(I32, 256 * (sort.bits // 8))
    few, many = b.append_basic_block("few"), b.append_basic_block("many")
    b.cbranch(b.icmp_signed("<=", function.args[2], b.index(_RANKED[sort.pair.width])), few, many)
    b.position_at_end(few)
    b.ret(_by_rank(b, sort.pair, lanes, *function.args))
    b.position_at_end(many)
    b.ret(_by_counting(b, sort, counts, *function.args))
    return function


def _by_rank(b: Builder, kind: Any, lanes: int, pairs: Value, other: Value, count: Value) -> Value:
    """Store every pair at its rank, the number of pairs before it. No two pairs are equal."""
    most = ir.Constant(kind, (1 << (kind.width - 1)) - 1)
    for lane in range(lanes if lanes > 1 else 0):
        b.store(most, b.at(pairs, b.iadd(count, lane), kind), align=8)

    def one(i: Index, _: object) -> None:
        pair = b.load(b.at(pairs, i, kind), typ=kind, align=8)
        wide = b.splat(pair, lanes)
        none = ir.Constant(ir.VectorType(I64, lanes), None) if lanes > 1 else b.index(0)

        def compare(j: Index, carried: list[Value]) -> list[Value]:
            others = b.load_vector(b.at(pairs, j, kind), kind, lanes, align=8)
            before = b.icmp_signed("<", others, wide)
            return [b.add(carried[0], b.zext(before, none.type))]

        ranks = b.loop(0, count, lanes, compare, [none])[0]
        if lanes > 1:
            ranks = b.intrinsic(f"llvm.vector.reduce.add.v{lanes}i64", I64, [ranks])
        b.store(pair, b.at(other, ranks, kind), align=8)

    b.loop(0, count, 1, one)
    return other


def _by_counting(b: Builder, sort: _LineSort, counts: Value, pairs: Value, other: Value, count: Value) -> Value:
    """Radix sort: for each byte of the keys, count its values and derive the position of the first pair of each."""
    kind, digits = sort.pair, sort.bits // 8
    low = kind.width // 2
    byte = ir.Constant(kind, 255)
    flips = [ir.Constant(kind, 0x80 if digit == digits - 1 else 0) for digit in range(digits)]  # of the sign bit

    def slot(value: Index, digit: int) -> Value:
        return b.at(counts, b.iadd(value, 256 * digit), I32)

    def slot_of(pair: Value, digit: int) -> Value:
        value = b.xor(b.and_(b.lshr(pair, ir.Constant(kind, low + 8 * digit)), byte), flips[digit])
        return slot(_index(b, value), digit)

    def clear(i: Index, _: object) -> None:
        b.store(ir.Constant(I32, 0), b.at(counts, i, I32), align=4)

    def tally(i: Index, _: object) -> None:
        pair = b.load(b.at(pairs, i, kind), typ=kind, align=8)
        for digit in range(digits):
            _increase(b, slot_of(pair, digit))

    b.loop(0, 256 * digits, 1, clear)
    b.loop(0, count, 1, tally)
    source, target = pairs, other
    for digit in range(digits):
        slots = (lambda value, digit=digit: slot(value, digit)), (lambda pair, digit=digit: slot_of(pair, digit))
        source, target = _distribute(b, kind, *slots, source, target, count)
    return source


def _distribute(
    b: Builder, kind: Any, slot: Callable[[Index], Value], slot_of: Callable[[Value], Value], source: Value,
    target: Value, count: Value,
) -> tuple[Value, Value]:
    """Move the pairs to the target by one byte; does not move them if all have the same byte. `slot` gives the address
    of the count of a byte's value, `slot_of` that of a pair's."""
    first = b.load(slot_of(b.load(source, typ=kind, align=8)), typ=I32, align=4)
    alike = b.icmp_unsigned("==", first, b.trunc(count, I32))
    moved: Value = b.select(alike, b.index(0), count)

    def begin(i: Index, carried: list[Value]) -> list[Value]:
        place = slot(i)
        number = b.load(place, typ=I32, align=4)
        b.store(carried[0], place, align=4)
        return [b.add(carried[0], number)]

    def move(i: Index, _: object) -> None:
        pair = b.load(b.at(source, i, kind), typ=kind, align=8)
        place = _increase(b, slot_of(pair))
        b.store(pair, b.at(target, b.zext(place, I64), kind), align=8)

    b.loop(0, b.select(alike, b.index(0), b.index(256)), 1, begin, [ir.Constant(I32, 0)])
    b.loop(0, moved, 1, move)
    return b.select(alike, source, target), b.select(alike, target, source)


def _increase(b: Builder, place: Value) -> Value:
    """Increment the number at `place`; returns its old value."""
    number = b.load(place, typ=I32, align=4)
    b.store(b.add(number, ir.Constant(I32, 1)), place, align=4)
    return number


def _index(b: Builder, value: Value) -> Value:
    return value if value.type == I64 else b.trunc(value, I64)
