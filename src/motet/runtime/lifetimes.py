"""How long the values of a plan need their memory on each device, and which memory a later value may be put into.

    run a → 1 · run b of 1 → 2 · run c of 2 → 3          what held 1 may hold 3: c waits for b anyhow
    turn 0: move, run · turn 1: move, run · turn 2: …    what turn 2 moves lies where turn 0 has had what it moved

A buffer whose last reader was submitted is *retired*, with the points of all that used it. Whoever writes to it next
waits for them. It is offered to steps for which that means no waiting that they would not do anyhow, because all its
users come before them in the plan's dependences; and within a loop that was taken apart to turns behind the next one,
so that the memory of two turns is enough for any number of them (double buffering).
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
    """Who has used a buffer: steps, as a set of their places in the order of submission, the points to be reached
    before it is written again, and the last turn of a loop that all of them are of, None where there is no such."""

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
    """Of a plan whose steps are submitted in some order, by their places in it. `names` gives every value the first
    of those that are the same tensor; `last` is the last step that uses a tensor on a device; `before` the steps that
    have to end before each; `turns` theirs. `outliving` are tensors that are made in a turn of a loop and read later
    than in the next one: their device's memory would have to be there for every turn."""

    names: Mapping[int, int]
    last: Mapping[int, int]
    last_on: Mapping[tuple[int, int], int]
    before: Sequence[int]
    turns: Sequence[Turn | None]
    outliving: frozenset[int]
    kept: frozenset[int]

    def is_over(self, name: int, device: int, place: int, elsewhere: bool) -> bool:
        """Whether after the step at `place` nothing needs a tensor's memory on a device any more; `elsewhere` says
        that others find the tensor without it."""
        if name in self.kept or self.last_on.get((name, device), -1) > place:
            return False
        return elsewhere or self.last[name] <= place


def lifetimes(
    plan: Plan, order: Sequence[int], same: Callable[[int], int], others: Sequence[int] = ()
) -> Lifetimes:
    """`same` says which devices of the plan are one; `others` are values that are needed when the plan has ended, as
    are its results, and what loops are given: they may hand it on as it is."""
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
    """Buffers of one call that nobody reads any more, by device and size."""

    def __init__(self, plan: Lifetimes) -> None:
        self._plan = plan
        self._there: dict[tuple[int, int], list[tuple[Device, Buffer, Use]]] = defaultdict(list)

    def add(self, device: Device, buffer: Buffer, use: Use) -> None:
        if buffer.bytes:
            self._there[id(device), buffer.bytes].append((device, buffer, use))

    def take_all(self) -> list[tuple[Device, Buffer, Use]]:
        """All there are, which are somebody else's to use from now on."""
        there, self._there = self._there, defaultdict(list)
        return [entry for entries in there.values() for entry in entries]

    def take(self, device: Device, size: int, place: int) -> tuple[Buffer, list[Point]] | None:
        """A buffer for what the step at `place` writes, and what has to be waited for before that."""
        there = self._there.get((id(device), size))
        if not there:
            return None
        before, turn = self._plan.before[place], self._plan.turns[place]
        for index, (_, buffer, use) in enumerate(there):
            if not use.steps & ~before or _two_turns_ago(use.turn, turn):
                del there[index]
                return buffer, use.points
        return None


def _two_turns_ago(earlier: Turn | None, later: Turn | None) -> bool:
    return earlier is not None and later is not None and earlier[0] == later[0] and earlier[1] <= later[1] - 2
