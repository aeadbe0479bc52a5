"""Placeholder numbers for sizes that are unknown when compiling.

    for i in 0..memref.dim(%x, 0)        →        for i in 0..P, and `tensor.empty(%n)` where a size is P

Every unknown size is a distinct number, far larger than all known ones, so that linear expressions and ranges are
handled as for known sizes. A derived number (a multiple plus a known number) is recognised again. A nest is not raised
if such a number occurs other than at the end of a loop, or in a condition on a counter up to it, except in conditions
that end a loop: comparisons with it would hold for large sizes only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from motet.compiler.frontends.raising.nest import Load, LoopNest, Reduce, Unraisable, nodes, statement_linears
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.create import create, index_constant

_LARGE = 1 << 36  # numbers from here on are placeholders
_NEAR = 1 << 20  # the largest number that may be added to a size
_MOST = 1 << 12  # the largest multiple of a size



@dataclass(frozen=True)
class _MemrefAxis:
    """An axis of a memref."""

    memref: ir.Value
    axis: int


@dataclass(frozen=True)
class _GivenSize:
    """A value of type index; compared as unsigned, a negative one is larger than any size."""

    value: ir.Value
    unsigned: bool = False


@dataclass(frozen=True)
class _Least:
    """The minimum of a size and another number, which may be negative."""

    size: int
    other: int


_Size = _MemrefAxis | _GivenSize | _Least


@dataclass
class Sizes:
    """The placeholders of one nest."""

    known: list[_Size] = field(default_factory=list[_Size])

    def of_axis(self, memref: ir.Value, axis: int) -> int:
        """The extent of a memref's axis, or its placeholder."""
        kind = ir.MemRefType(memref.type)
        if not kind.is_dynamic_dim(axis):
            return kind.shape[axis]
        owner = None if isinstance(memref.owner, ir.Block) else memref.owner.operation
        if owner is None or owner.name not in ("memref.alloc", "memref.alloca"):
            return self._number(_MemrefAxis(memref, axis))
        return self.of_value(owner.operands[sum(kind.is_dynamic_dim(earlier) for earlier in range(axis))])

    def of_shape(self, memref: ir.Value) -> list[int]:
        return [self.of_axis(memref, axis) for axis in range(ir.MemRefType(memref.type).rank)]

    def of_value(self, value: ir.Value) -> int:
        """The placeholder of a value of type index from outside the nest."""
        owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if owner is None or len(owner.operands) != 2 or (number := _constant(owner.operands[1])) is None:
            return self._number(_GivenSize(value))
        if owner.name == "memref.dim":
            return self.of_axis(owner.operands[0], number)
        if owner.name == "arith.addi":
            return self.of_value(owner.operands[0]) + number
        if owner.name == "arith.subi":
            return self.of_value(owner.operands[0]) - number
        if owner.name == "arith.muli" and number > 0:
            return self.of_value(owner.operands[0]) * number
        return self._number(_GivenSize(value))

    def is_axis(self, number: int) -> bool:
        """Whether a size is the extent of an axis, unmodified."""
        times, size, more = self.parts(number)
        return isinstance(size, _MemrefAxis) and times == 1 and not more

    def unsigned(self, number: int) -> int:
        """The placeholder of a size in an unsigned comparison. Raises Unraisable."""
        times, size, more = self.parts(number)
        if isinstance(size, _MemrefAxis) and more >= 0:
            return number
        if not isinstance(size, _GivenSize) or times != 1 or more:
            raise Unraisable("an unsigned comparison with what may be negative")
        return self._number(_GivenSize(size.value, unsigned=True))

    def least(self, size: int, other: int) -> int:
        """The number or placeholder for the minimum of a size and another number, either of which may be unknown."""
        if is_known(size) and is_known(other):
            return min(size, other)
        return size if size == other else self._number(_Least(size, other))

    def _number(self, size: _Size) -> int:
        if size not in self.known:
            self.known.append(size)
        return _stands_for(self.known.index(size))

    def beyond(self, last: int, extent: int) -> int:
        """How far `last` exceeds an axis of `extent`, as far as known: programs are assumed to stay in bounds."""
        if is_known(last) and is_known(extent):
            return max(0, last + 1 - extent)
        if is_known(last) or is_known(extent):
            return 0
        (times, size, more), (other_times, other, others) = self.parts(last + 1), self.parts(extent)
        return max(0, more - others) if (times, size) == (other_times, other) else 0

    def create(self, number: int, before: ir.Operation) -> ir.Value:
        """Computes a size before an operation. Raises Unraisable."""
        return _Maker(self, before).size(number)

    def parts(self, number: int) -> tuple[int, _Size, int]:
        """The factor, the size, and the addend of a number. Raises Unraisable."""
        found: list[tuple[int, _Size, int]] = []
        for place, known in enumerate(self.known):
            size = _stands_for(place)
            times = (number + _NEAR) // size
            if 0 < times < _MOST and abs(number - times * size) < _NEAR:
                found.append((times, known, number - times * size))
        if len(found) != 1:
            raise Unraisable("a size made of several that are not known")
        return found[0]


@dataclass(frozen=True)
class _Maker:
    """Creates the operations that compute sizes."""

    sizes: Sizes
    before: ir.Operation

    def size(self, number: int) -> ir.Value:
        """A size, clamped to at least 0."""
        if is_known(number):
            return self._constant(max(0, number))
        _, size, more = self.sizes.parts(number)
        value = self._number(number)
        return value if isinstance(size, _MemrefAxis) and more >= 0 else self._make(
            "arith.maxsi", value, self._constant(0)
        )

    def _number(self, number: int) -> ir.Value:
        if is_known(number):
            return self._constant(number)
        times, size, more = self.sizes.parts(number)
        value = self._value(size)
        if times != 1:
            value = self._make("arith.muli", value, self._constant(times))
        return self._make("arith.addi", value, self._constant(more)) if more else value

    def _value(self, size: _Size) -> ir.Value:
        if isinstance(size, _MemrefAxis):
            return self._make("memref.dim", size.memref, self._constant(size.axis))
        if isinstance(size, _GivenSize):
            return size.value
        other = None if is_known(size.other) else self.sizes.parts(size.other)[1]
        unsigned = isinstance(other, _GivenSize) and other.unsigned
        return self._make(
            "arith.minui" if unsigned else "arith.minsi", self.size(size.size), self._number(size.other)
        )

    def _make(self, name: str, *operands: ir.Value) -> ir.Value:
        return create(name, [ir.IndexType.get()], operands, self.before).result

    def _constant(self, number: int) -> ir.Value:
        return index_constant(number, self.before)


def is_known(number: int) -> bool:
    return abs(number) < _LARGE


def check_sizes(nest: LoopNest) -> None:
    """Raises Unraisable if placeholders occur other than as the ends of loops."""
    for statement in nest.statements:
        for linear in statement_linears(statement):
            if not is_known(linear.constant) or not all(is_known(times) for _, times in linear.terms):
                raise Unraisable("an index with a part that is not known")
        conditions = [*statement.conditions]
        for node in nodes(statement.value):
            conditions += node.conditions if isinstance(node, (Load, Reduce)) else ()
        for condition in conditions:
            if any(not is_known(nest.extents[dim]) for dim in condition.dims):
                raise Unraisable("a condition on a loop whose end is not known")


def _stands_for(place: int) -> int:
    """A number none of whose small multiples is near a small multiple of another one."""
    return (1 << 40) + (place << 32) + (place * 0x9E3779B1 + 12345) % (1 << 31)


def _constant(value: ir.Value) -> int | None:
    owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if owner is None or owner.name != "arith.constant":
        return None
    attribute = owner.attributes["value"]
    return attribute.value if isinstance(attribute, ir.IntegerAttr) else None
