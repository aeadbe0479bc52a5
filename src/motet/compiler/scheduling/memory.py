"""memory: places buffers that live at different times in the same bytes.

Static sizes: largest first, each at the lowest offset where it meets no buffer whose life overlaps its own
(greedy by size; Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020).
Sizes with symbols: buffers share *slots*; a slot is as large as the largest of its buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.artifact.schema import Expr
from motet.compiler.scheduling.expressions import aligned, apply


@dataclass(frozen=True)
class Life:
    """A buffer of `bytes` that must exist from command `first` to command `last`, both included."""

    bytes: Expr
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Plan:
    """`offsets[i]` places buffer i; `total` is the arena's size."""

    offsets: list[Expr]
    total: Expr


def plan_memory(lives: Sequence[Life]) -> Plan:
    """Offsets such that no two buffers alive at once overlap; all are multiples of the alignment."""
    if all(isinstance(life.bytes, int) for life in lives):
        return _plan_static(lives)
    return _plan_slots(lives)


def lower_bound(lives: Sequence[Life]) -> int:
    """The most bytes alive at once, for static sizes: no plan can be smaller."""
    moments = range(max((life.last for life in lives), default=-1) + 1)
    return max(
        (sum(_static(life) for life in lives if life.first <= moment <= life.last) for moment in moments), default=0
    )


def _static(life: Life) -> int:
    size = aligned(life.bytes)
    assert isinstance(size, int)
    return size


def _plan_static(lives: Sequence[Life]) -> Plan:
    offsets: list[Expr] = [0] * len(lives)
    placed: list[int] = []
    total = 0
    for index in sorted(range(len(lives)), key=lambda i: (-_static(lives[i]), lives[i].first, i)):
        life, size = lives[index], _static(lives[index])
        taken = sorted(
            (int(str(offsets[other])), int(str(offsets[other])) + _static(lives[other]))
            for other in placed
            if lives[other].meets(life)
        )
        offset = 0
        for begin, end in taken:
            if begin - offset >= size:
                break
            offset = max(offset, end)
        offsets[index] = offset
        total = max(total, offset + size)
        placed.append(index)
    return Plan(offsets, total)


def _plan_slots(lives: Sequence[Life]) -> Plan:
    slots: list[list[int]] = []
    for index in sorted(range(len(lives)), key=lambda i: (lives[i].first, i)):
        free = next(
            (slot for slot in slots if not any(lives[other].meets(lives[index]) for other in slot)), None
        )
        if free is None:
            slots.append([index])
        else:
            free.append(index)
    offsets: list[Expr] = [0] * len(lives)
    total: Expr = 0
    for slot in slots:
        size: Expr = 0
        for index in slot:
            offsets[index] = total
            size = apply("max", size, aligned(lives[index].bytes))
        total = apply("+", total, size)
    return Plan(offsets, total)
