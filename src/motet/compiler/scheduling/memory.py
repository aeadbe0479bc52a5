"""memory: places buffers with disjoint lifetimes in the same bytes.

Lifetimes follow from a partial or total order of the commands: a buffer may take the bytes of another one if every
command that accesses the other has ended before the first one that writes it begins.

Static sizes: several heuristics, of which the best result is taken. Largest first, each at the lowest offset, or in the
smallest gap, that no buffer of overlapping lifetime occupies (greedy by size: Pisarchyk and Lee, "Efficient memory
management for deep neural net inference", 2020); or in program order, with the buffers first that are in use when most
bytes are; or large and long-lived ones first, and then repeatedly the buffers that ended up on top (squeaky wheel
optimisation: Joslin and Clements, 1999). Sizes with symbols: buffers share *slots*; a slot is as large as the largest
of its buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.artifact.expressions import apply, balanced, round_up
from motet.artifact.schema import Expr
from motet.artifact.validation import MAXIMUM_BYTES
from motet.errors import CompileError
from motet.graphs.order import members

_ALIGNMENT = 64  # of every buffer in an arena, in bytes

Matrix = np.ndarray[tuple[int, int], np.dtype[np.bool_]]
_Sizes = np.ndarray[tuple[int], np.dtype[Any]]
_MANY = 1000  # buffers from which on only one attempt is made
_SOME, _REPAIRS = 300, 10  # buffers up to which attempts improve on the previous one, and the number of these


@dataclass(frozen=True)
class BufferLifetime:
    """A buffer of `bytes`; `uses` is the non-empty set (`graphs/order.py`) of the commands that access it, all of which
    wait for the first."""

    bytes: Expr
    uses: int

    @property
    def first(self) -> int:
        return (self.uses & -self.uses).bit_length() - 1

    @property
    def last(self) -> int:
        return self.uses.bit_length() - 1


@dataclass(frozen=True)
class MemoryPlan:
    """`offsets[i]` is the offset of buffer i; `total` is the arena's size. Buffers in one slot, if sizes have symbols,
    have equal offsets; other buffers of overlapping lifetimes share no byte."""

    offsets: list[Expr]
    total: Expr


def plan_memory(lives: Sequence[BufferLifetime], closure: Sequence[int] | None = None) -> MemoryPlan:
    """Aligned offsets such that no two buffers with overlapping lifetimes overlap. `closure` has, for each command, all
    commands that end before it begins; without it each command waits for all before it."""
    meet = needed_at_once(lives, closure)
    if is_static(lives):
        return _plan_static(lives, meet)
    return _plan_slots(lives, meet)


def is_static(lives: Sequence[BufferLifetime]) -> bool:
    return all(isinstance(life.bytes, int) for life in lives)


def lower_bound(lives: Sequence[BufferLifetime]) -> int:
    """The largest number of bytes in use at once if commands run serially, for static sizes: no plan is smaller."""
    change: dict[int, int] = {}
    for life in lives:
        change[life.first] = change.get(life.first, 0) + _static(life)
        change[life.last + 1] = change.get(life.last + 1, 0) - _static(life)
    used = most = 0
    for moment in sorted(change):
        used += change[moment]
        most = max(most, used)
    return most


def needed_at_once(lives: Sequence[BufferLifetime], closure: Sequence[int] | None = None) -> Matrix:
    """[a, b]: whether buffers a and b must not share bytes."""
    firsts = np.array([life.first for life in lives], np.int64)
    if closure is None:
        lasts = np.array([life.last for life in lives], np.int64)
        done = lasts[:, None] < firsts[None, :]
        return ~(done | done.T)
    count = len(closure)
    words = b"".join(earlier.to_bytes((count + 7) // 8, "little") for earlier in closure)
    packed = np.frombuffer(words, np.uint8).reshape(count, (count + 7) // 8)
    # [u, b]: whether command u has ended before buffer b is first written.
    ended = np.unpackbits(packed[firsts], axis=1, bitorder="little")[:, :count].T.astype(bool)
    done = np.empty((len(lives), len(lives)), bool)
    for number, life in enumerate(lives):
        implied = 0
        for use in members(life.uses):
            implied |= closure[use]
        ends = list(members(life.uses & ~implied))
        done[number] = ended[ends].all(axis=0)
    return ~(done | done.T)


def _static(life: BufferLifetime) -> int:
    size = round_up(life.bytes, _ALIGNMENT)
    if not isinstance(size, int):
        raise TypeError(f"size {size}: expected a number")
    if size > MAXIMUM_BYTES:
        raise CompileError(f"a tensor of {size:,} bytes; expected at most {MAXIMUM_BYTES:,}")
    return size


def _plan_static(lives: Sequence[BufferLifetime], meet: Matrix) -> MemoryPlan:
    sizes = np.array([_static(life) for life in lives], np.int64)
    least = lower_bound(lives)
    best: _Sizes | None = None
    total = 0
    for found in _attempts(lives, sizes, meet):
        reached = int((found + sizes).max(initial=0))
        if best is None or reached < total:
            best, total = found, reached
        if total == least:
            break
    return MemoryPlan([] if best is None else [int(offset) for offset in best], total)


def _attempts(lives: Sequence[BufferLifetime], sizes: _Sizes, meet: Matrix) -> Iterator[_Sizes]:
    """Offsets found by several heuristics."""
    firsts = [life.first for life in lives]
    by_size = sorted(range(len(lives)), key=lambda i: (-sizes[i], firsts[i], i))
    yield _place(by_size, sizes, meet, snug=False)
    if len(lives) > _MANY:
        return
    yield _place(by_size, sizes, meet, snug=True)
    pressure = _pressure(lives, sizes)
    by_pressure = sorted(range(len(lives)), key=lambda i: (-pressure[i], firsts[i], -sizes[i]))
    yield _place(by_pressure, sizes, meet, snug=False)
    lengths = np.array([life.last - life.first + 1 for life in lives], np.int64)
    order = sorted(range(len(lives)), key=lambda i: (-sizes[i] * lengths[i], firsts[i], i))
    for _ in range(_REPAIRS if len(lives) <= _SOME else 1):
        offsets = _place(order, sizes, meet, snug=True)
        yield offsets
        highest = int(np.argmax(offsets + sizes)) if lives else 0
        if not lives or order[0] == highest:
            return
        order.remove(highest)  # the buffer that ended up on top is placed first next time
        order.insert(0, highest)


def _pressure(lives: Sequence[BufferLifetime], sizes: _Sizes) -> list[int]:
    """The largest number of bytes in use at once during the lifetime of each buffer, including itself."""
    used = np.zeros(max((life.last for life in lives), default=-1) + 1, np.int64)
    for life, size in zip(lives, sizes, strict=True):
        used[life.first : life.last + 1] += size
    return [int(used[life.first : life.last + 1].max()) for life in lives]


def _place(order: Sequence[int], sizes: _Sizes, meet: Matrix, snug: bool) -> _Sizes:
    """Offsets of buffers placed in `order`: in the first gap that is large enough, or in the smallest if `snug`."""
    offsets = np.zeros(len(sizes), np.int64)
    placed = np.zeros(len(sizes), bool)
    for index in order:
        others = np.nonzero(meet[index] & placed)[0]
        placed[index] = True
        if not others.size:
            continue
        begins = offsets[others]
        sequence = np.argsort(begins, kind="stable")
        begins = begins[sequence]
        ends = np.maximum.accumulate(begins + sizes[others][sequence])
        starts = np.concatenate(([0], ends))
        room = np.concatenate((begins, [np.iinfo(np.int64).max])) - starts
        fitting = np.nonzero(room >= sizes[index])[0]
        chosen = fitting[np.argmin(room[fitting])] if snug else fitting[0]
        offsets[index] = starts[chosen]
    return offsets


def _plan_slots(lives: Sequence[BufferLifetime], meet: Matrix) -> MemoryPlan:
    slots: list[list[int]] = []
    for index in sorted(range(len(lives)), key=lambda i: (lives[i].first, i)):
        free = [slot for slot in slots if not meet[index, slot].any()]
        size = lives[index].bytes
        same = [slot for slot in free if any(lives[other].bytes == size for other in slot)]
        if free:
            (same or free)[0].append(index)
        else:
            slots.append([index])
    offsets: list[Expr] = [0] * len(lives)
    below = _Sum()
    for slot in slots:
        at = below.expression()
        sizes: list[Expr] = []
        for index in slot:
            offsets[index] = at
            size = round_up(lives[index].bytes, _ALIGNMENT)
            if size not in sizes:
                sizes.append(size)
        below.add(balanced("max", sizes))
    return MemoryPlan(offsets, below.expression())


class _Sum:
    """A sum with equal terms merged, so that expressions stay flat."""

    def __init__(self) -> None:
        self._terms: list[Expr] = []
        self._counts: list[int] = []
        self._number = 0

    def add(self, term: Expr) -> None:
        if isinstance(term, int):
            self._number += term
        elif term in self._terms:
            self._counts[self._terms.index(term)] += 1
        else:
            self._terms.append(term)
            self._counts.append(1)

    def expression(self) -> Expr:
        terms = [apply("*", term, count) for term, count in zip(self._terms, self._counts, strict=True)]
        return apply("+", balanced("+", terms) if terms else 0, self._number)
