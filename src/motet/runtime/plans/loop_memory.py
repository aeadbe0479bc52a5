"""Reuses memory of a loop's iterations in later iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.runtime.device import Buffer, Device
from motet.runtime.lifetimes import Lifetimes, Retired, Use
from motet.runtime.plans.frame import PlanFrame
from motet.runtime.plans.values import PlacedValue
from motet.runtime.timeline import Point


@dataclass(frozen=True)
class _Free:
    """A buffer that an iteration has used."""

    device: Device
    buffer: Buffer
    points: list[Point]


class LoopMemory:
    """The memory of one execution of a loop step in the frame `outer`; `given` are the step's operands, which stay
    valid."""

    def __init__(self, outer: PlanFrame, given: Sequence[PlacedValue]) -> None:
        self.outer = outer
        self.given = given
        self.iteration = 0
        self._free: dict[tuple[int, int], list[_Free]] = {}

    def of_part(self, plan: Lifetimes) -> PartMemory:
        """The memory for one execution of the condition or the body."""
        return PartMemory(self, Retired(plan))

    def end_of(self, part: PartMemory) -> None:
        for device, buffer, use in part.retired.take_all():
            self._add(device, buffer, use.points)

    def give_back(self, values: Sequence[PlacedValue], needed: Sequence[PlacedValue]) -> None:
        """Return the memory of those of `values` that iterations have allocated, except those that are `needed`."""
        kept = {id(value) for value in (*self.given, *needed)}
        for value in {id(value): value for value in values if id(value) not in kept}.values():
            for home, copy in value.copies.items():
                if copy.use is not None:
                    self._add(self.outer.devices[home].device, copy.buffer, copy.use.points)
                    copy.use = None
            value.copies.clear()

    def next_iteration(self) -> None:
        self.iteration += 1
        for value in self.given:  # read by every iteration
            for copy in value.copies.values():
                if copy.use is not None:
                    copy.use.points = [point for point in copy.use.points if not point.reached]

    def take(self, device: Device, size: int) -> tuple[Buffer, list[Point]] | None:
        """A buffer whose users have all ended."""
        there = self._free.get((id(device), size), [])
        for index, free in enumerate(there):
            if all(point.reached for point in free.points):
                del there[index]
                return free.buffer, free.points
        return self.outer.recycled.take(device, size, self.outer.place)

    def hand_back(self) -> None:
        """Return all memory to the steps after the loop."""
        for each in (free for entries in self._free.values() for free in entries):
            self.outer.recycled.add(each.device, each.buffer, Use(1 << self.outer.place, each.points))
        self._free.clear()

    def _add(self, device: Device, buffer: Buffer, points: list[Point]) -> None:
        if buffer.bytes:
            key = id(device), buffer.bytes
            self._free.setdefault(key, []).append(_Free(device, buffer, points))


@dataclass(frozen=True)
class PartMemory:
    """The memory for the steps of one execution of the condition or the body."""

    loop: LoopMemory
    retired: Retired

    def add(self, device: Device, buffer: Buffer, use: Use) -> None:
        self.retired.add(device, buffer, use)

    def take(self, device: Device, size: int, place: int) -> tuple[Buffer, list[Point]] | None:
        return self.retired.take(device, size, place) or self.loop.take(device, size)
