"""The part of a memory that a memref accesses: all of it, or a box cut out by views with static offsets."""

from __future__ import annotations

import math
from dataclasses import dataclass

from motet.compiler.frontends.raising.order import VIEWS
from motet.compiler.ir._mlir import ir

_WITHIN = VIEWS - {"memref.subview", "memref.reinterpret_cast"}  # access what their source accesses, or less
_SAME_INDICES = ("memref.cast", "memref.memory_space_cast")


@dataclass(frozen=True)
class IndexSpan:
    """The indices `begin`, `begin + step`, …, up to `end`; None if `end` is unknown."""

    begin: int
    end: int | None
    step: int = 1

    def meets(self, other: IndexSpan) -> bool:
        if (self.end is not None and self.end < other.begin) or (other.end is not None and other.end < self.begin):
            return False
        return (self.begin - other.begin) % math.gcd(self.step, other.step) == 0

    def inner(self, within: IndexSpan) -> IndexSpan:
        """These indices of a view, whose index 0 is `within.begin`, as indices of its source."""
        end = None if self.end is None else within.begin + self.end * within.step
        ends = [each for each in (end, within.end) if each is not None]
        return IndexSpan(within.begin + self.begin * within.step, min(ends, default=None), self.step * within.step)


@dataclass(frozen=True)
class Part:
    """A box in `memory`: `spans` are the indices along each axis; None for all of it."""

    memory: ir.Value
    spans: tuple[IndexSpan, ...] | None = None

    def meets(self, other: Part) -> bool:
        """Whether the two may share an element."""
        if self.memory != other.memory:
            return False
        if self.spans is None or other.spans is None:
            return True
        return all(a.meets(b) for a, b in zip(self.spans, other.spans, strict=True))


def part_of(memref: ir.Value) -> Part:
    """The smallest known part that contains all elements of `memref`. Different arguments are different memory."""
    return _follow(memref)[0]


def _follow(memref: ir.Value) -> tuple[Part, bool]:
    """The part, and whether its axes are those of `memref`, whose index 0 is the begin of each span."""
    owner = None if isinstance(memref.owner, ir.Block) else memref.owner.operation
    if owner is None or owner.name not in VIEWS:
        return Part(memref), True
    part, alike = _follow(owner.operands[0])
    if owner.name == "memref.reinterpret_cast":  # its offset counts from the start of the memory
        return Part(part.memory), False
    if owner.name in _WITHIN:
        return part, alike and owner.name in _SAME_INDICES
    if not alike or (spans := _spans(owner)) is None:
        return part, False
    if part.spans is not None:
        spans = tuple(span.inner(within) for span, within in zip(spans, part.spans, strict=True))
    return Part(part.memory, spans), ir.MemRefType(memref.type).rank == len(spans)


def _spans(view: ir.Operation) -> tuple[IndexSpan, ...] | None:
    """The indices that a subview takes of each axis of its source; None if an offset or a step is unknown."""
    segments = list(ir.DenseI32ArrayAttr(view.attributes["operandSegmentSizes"]))
    operands = iter(view.operands[segments[0] : sum(segments)])
    unknown = ir.ShapedType.get_dynamic_size()
    offsets, sizes, steps = (
        [_number(next(operands)) if number == unknown else number for number in ir.DenseI64ArrayAttr(written)]
        for written in (view.attributes[name] for name in ("static_offsets", "static_sizes", "static_strides"))
    )
    spans: list[IndexSpan] = []
    for offset, size, step in zip(offsets, sizes, steps, strict=True):
        if offset is None or step is None or step <= 0 or offset < 0:
            return None
        spans.append(IndexSpan(offset, None if size is None else offset + max(0, size - 1) * step, step))
    return tuple(spans)


def _number(value: ir.Value) -> int | None:
    """The value of a constant index; None for others."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.constant":
        return None
    return ir.IntegerAttr(value.owner.operation.attributes["value"]).value
