"""Sizes that are not known when compiling, as numbers that stand for them.

    for i in 0..memref.dim(%x, 0)        →        for i in 0..P, and `tensor.empty(%n)` where a size is P

Every such size is a number of its own, far larger than all that are known, so that linear expressions and ranges are
those of known sizes; what is made of it, a multiple plus something known, is recognised again. A nest in which such a
number is anywhere else than at the end of a loop is not raised, nor one with a condition on counters up to it: what
comparisons with it say would hold for large sizes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from motet.compiler.frontends.raising.nest import Load, Nest, Reduce, Unraisable, nodes, statement_linears
from motet.compiler.ir._mlir import ir

_LARGE = 1 << 36  # numbers from here on are not known
_NEAR = 1 << 20  # what may be added to a size, at most
_MOST = 1 << 12  # how many times a size may be taken

_Axis = tuple[ir.Value, int | None]  # an axis of a memref, or, without one, a value of type index


@dataclass
class Sizes:
    """The sizes of one nest."""

    known: list[_Axis] = field(default_factory=list[_Axis])

    def of_axis(self, memref: ir.Value, axis: int) -> int:
        """The extent of an axis of a memref, or what stands for it."""
        kind = ir.MemRefType(memref.type)
        return self._number(_origin(memref, axis)) if kind.is_dynamic_dim(axis) else kind.shape[axis]

    def of_shape(self, memref: ir.Value) -> list[int]:
        return [self.of_axis(memref, axis) for axis in range(ir.MemRefType(memref.type).rank)]

    def of_value(self, value: ir.Value) -> int:
        """What stands for a value of type index, from outside the nest."""
        owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if owner is not None and owner.name == "memref.dim" and (axis := _constant(owner.operands[1])) is not None:
            return self.of_axis(owner.operands[0], axis)
        return self._number((value, None))

    def _number(self, axis: _Axis) -> int:
        if axis not in self.known:
            self.known.append(axis)
        return _stands_for(self.known.index(axis))

    def beyond(self, last: int, extent: int) -> int:
        """How far `last` is outside of an axis of `extent`, as far as can be told: a program keeps to its arrays."""
        if is_known(last) and is_known(extent):
            return max(0, last + 1 - extent)
        if is_known(last) or is_known(extent):
            return 0
        (times, axis, more), (other_times, other, others) = self._parts(last + 1), self._parts(extent)
        return max(0, more - others) if (times, axis) == (other_times, other) else 0

    def create(self, number: int, before: ir.Operation) -> ir.Value:
        """The value of a size that is not known."""
        times, place, more = self._parts(number)
        value, axis = self.known[place]
        index = ir.IndexType.get()

        def make(name: str, operands: list[ir.Value]) -> ir.Value:
            return ir.Operation.create(
                name, results=[index], operands=operands, loc=before.location, ip=ir.InsertionPoint(before)
            ).result

        def constant(of: int) -> ir.Value:
            return ir.Operation.create(
                "arith.constant", results=[index], attributes={"value": ir.IntegerAttr.get(index, of)},
                loc=before.location, ip=ir.InsertionPoint(before),
            ).result

        size = value if axis is None else make("memref.dim", [value, constant(axis)])
        if times != 1:
            size = make("arith.muli", [size, constant(times)])
        if more:
            size = make("arith.addi", [size, constant(more)])
        return make("arith.maxsi", [size, constant(0)]) if axis is None or more < 0 else size

    def _parts(self, number: int) -> tuple[int, int, int]:
        """How many times which size, and what is added."""
        found: list[tuple[int, int, int]] = []
        for place in range(len(self.known)):
            size = _stands_for(place)
            times = (number + _NEAR) // size
            if 0 < times < _MOST and abs(number - times * size) < _NEAR:
                found.append((times, place, number - times * size))
        if len(found) != 1:
            raise Unraisable("a size made of several that are not known")
        return found[0]


def is_known(number: int) -> bool:
    return abs(number) < _LARGE


def check_sizes(nest: Nest) -> None:
    """Raises Unraisable where sizes that are not known say more than how often loops run."""
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
    """A number no small multiples of which are near small multiples of others."""
    return (1 << 40) + (place << 32) + (place * 0x9E3779B1 + 12345) % (1 << 31)


def _origin(memref: ir.Value, axis: int) -> _Axis:
    """The value that an axis of a memref was made of, or the axis itself."""
    owner = None if isinstance(memref.owner, ir.Block) else memref.owner.operation
    if owner is None or owner.name not in ("memref.alloc", "memref.alloca"):
        return memref, axis
    kind = ir.MemRefType(memref.type)
    size = owner.operands[sum(kind.is_dynamic_dim(earlier) for earlier in range(axis))]
    made = None if isinstance(size.owner, ir.Block) else size.owner.operation
    if made is not None and made.name == "memref.dim" and (of := _constant(made.operands[1])) is not None:
        return _origin(made.operands[0], of)
    return size, None


def _constant(value: ir.Value) -> int | None:
    owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if owner is None or owner.name != "arith.constant":
        return None
    attribute = owner.attributes["value"]
    return attribute.value if isinstance(attribute, ir.IntegerAttr) else None
