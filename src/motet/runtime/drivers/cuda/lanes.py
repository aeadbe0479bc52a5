"""Commands on several streams, so that independent ones may run concurrently, as in a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CommandLanes:
    """The stream of each command. `previous` is the command before it on that stream, `last` the last one of each
    stream but the first, and `marked` are the commands for which other streams wait, including the last ones."""

    of: Sequence[int]
    previous: Sequence[int | None]
    last: Sequence[int]
    marked: frozenset[int]


def spread(after: Sequence[Sequence[int]], count: int) -> CommandLanes:
    """Put commands with these dependences on at most `count` streams, each after the last command of a stream that it
    depends on, directly or not; else on an unused stream, else on the least used one."""
    tails: dict[int, int] = {}  # last command by stream
    lanes: list[int] = []
    previous: list[int | None] = []
    closures: list[int] = []  # the commands that each depends on, as bits
    for number, needed in enumerate(after):
        closure = 0
        for each in needed:
            closure |= closures[each] | 1 << each
        closures.append(closure)
        behind = [lane for lane, tail in tails.items() if tail in needed]
        behind = behind or [lane for lane, tail in tails.items() if closure >> tail & 1]
        if behind:
            lane = behind[0]
        elif len(tails) < count:
            lane = len(tails)
        else:
            lane = min(range(count), key=lanes.count)
        lanes.append(lane)
        previous.append(tails.get(lane))
        tails[lane] = number
    marked = {each for number, needed in enumerate(after) for each in needed if lanes[each] != lanes[number]}
    last = [tail for lane, tail in tails.items() if lane]
    return CommandLanes(lanes, previous, last, frozenset((*marked, *last)))
