"""The lifetimes of a plan's values on each device, and the reuse of their memory.

    run a → 1 · run b of 1 → 2 · run c of 2 → 3                       3 may reuse the memory of 1: c waits for b anyway
    iteration 0: move, run · iteration 1: move, run · iteration 2: …    iteration 2 may reuse the memory of iteration 0

A buffer whose last reader was submitted is *retired*, together with the points of all its users, for which the next
writer waits. It is offered to steps for which this adds no waiting, since all its users precede them in the plan's
dependences; and, in an unrolled loop, to iterations after the next one, so that the memory of two iterations is enough
for any number of them (double buffering).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from motet.artifact.schema import Plan
from motet.runtime.device import Buffer, Device
from motet.runtime.timeline import Point

Turn = tuple[int, int]


@dataclass
class Use:
    """The users of a buffer: steps, as a bit set of their positions in submission order; the points to be reached
    before it is written again; and the last iteration of the loop that all of them belong to, None if there is none."""

    steps: int = 0
    points: list[Point] = field(default_factory=list[Point])
    turn: Turn | None = None

    def add(self, place: int, turn: Turn | None, point: Point) -> None:
        if not self.steps:
            self.turn = turn
        elif self.turn is not None:
            alike = turn is not None and turn[0] == self.turn[0]
            self.turn = max(turn, self.turn) if turn is not None and alike else None
        self.steps |= 1 << place
        self.points.append(point)


@dataclass(frozen=True)
class Lifetimes:
    """The lifetimes in a plan whose steps are submitted in a given order, by position. `names` maps every value to the
    first value that is the same tensor; `last` is the last step that uses a tensor, `last_on` that on a device;
    `before` are the steps that must end before each step; `turns` are their iterations. `outliving` are tensors made in
    one iteration of a loop and read later than in the next one, whose memory would be needed for every iteration."""

    names: Mapping[int, int]
    last: Mapping[int, int]
    last_on: Mapping[tuple[int, int], int]
    before: Sequence[int]
    turns: Sequence[Turn | None]
    outliving: frozenset[int]
    kept: frozenset[int]

    def is_over(self, name: int, device: int, place: int, elsewhere: bool) -> bool:
        """Whether no step after position `place` needs a tensor's memory on a device; `elsewhere` means that later
        readers find the tensor on another device."""
        if name in self.kept or self.last_on.get((name, device), -1) > place:
            return False
        return elsewhere or self.last[name] <= place


def lifetimes(
    plan: Plan, order: Sequence[int], same: Callable[[int], int], others: Sequence[int] = ()
) -> Lifetimes:
    """The lifetimes in `plan`. `same` identifies equal devices of the plan; `others` are values needed after the plan
    has ended, like its results and the operands of loops, which may pass them on unchanged."""
    names: dict[int, int] = {}
    last: dict[int, int] = {}
    last_on: dict[tuple[int, int], int] = {}
    before: list[int] = []
    needed: dict[int, int] = {}
    makers: dict[int, Turn | None] = {}
    readers: dict[int, list[Turn | None]] = defaultdict(list)
    for place, number in enumerate(order):
        step = plan.steps[number]
        device = same(step.device)
        before.append(0)
        for value in step.operands:
            before[place] |= needed.get(value, 0)
        for value in step.results:
            names[value] = names.get(step.operands[0], step.operands[0]) if step.op == "transfer" else value
            needed[value] = before[place] | 1 << place
            makers.setdefault(names[value], step.turn)
        for value in (*step.operands, *step.results):
            name = names.setdefault(value, value)
            last[name] = last_on[name, device] = place
            readers[name].append(step.turn)
    turns = [plan.steps[number].turn for number in order]
    outliving = {
        name for name, made in makers.items()
        if made is not None and any(turn is None or not (made[0], made[1] + 1) >= turn for turn in readers[name])
    }
    given = [value for step in plan.steps if step.op == "loop" for value in step.operands]
    kept = {names.get(value, value) for value in (*plan.results, *others, *given)}
    return Lifetimes(names, last, last_on, before, turns, frozenset(outliving), frozenset(kept))


class Retired:
    """Buffers of one call without further readers, by device and size."""

    def __init__(self, plan: Lifetimes) -> None:
        self._plan = plan
        self._there: dict[tuple[int, int], list[tuple[Device, Buffer, Use]]] = defaultdict(list)

    def add(self, device: Device, buffer: Buffer, use: Use) -> None:
        if buffer.bytes:
            self._there[id(device), buffer.bytes].append((device, buffer, use))

    def take_all(self) -> list[tuple[Device, Buffer, Use]]:
        """Remove and return all buffers, for other uses."""
        there, self._there = self._there, defaultdict(list)
        return [entry for entries in there.values() for entry in entries]

    def take(self, device: Device, size: int, place: int) -> tuple[Buffer, list[Point]] | None:
        """A buffer for the output of the step at `place`, and the points to wait for before it is written."""
        there = self._there.get((id(device), size))
        if not there:
            return None
        before, turn = self._plan.before[place], self._plan.turns[place]
        for index, (_, buffer, use) in enumerate(there):
            if not use.steps & ~before or _two_iterations_ago(use.turn, turn):
                del there[index]
                return buffer, use.points
        return None


def _two_iterations_ago(earlier: Turn | None, later: Turn | None) -> bool:
    return earlier is not None and later is not None and earlier[0] == later[0] and earlier[1] <= later[1] - 2
