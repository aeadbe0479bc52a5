"""Combines small dependent commands into one native command, so that threads synchronise once for all of them.

    waves 0 1 | 2 3 | 4      2 waits for 0, 3 for 1, 4 for both      → one flow: 0, 1, 2, 3, 4

Between two waves (`waves.py`) all threads synchronise, whatever the commands of the second depend on, which takes
longer than small commands. In a flow, each command waits only for its dependences. Threads take *pieces* of the
commands, ranges of their tasks, in an order in which all dependences of a piece are taken before it, so that a thread
only waits for work in progress. Commands are ordered by the longest path that starts with them. Chains of single-task
commands are one *unit*, which one thread runs, so that results are in its cache for the next command.

Source: list scheduling by upward ranks, as in HEFT (Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity
task scheduling for heterogeneous computing", 2002), with tasks taken at run time by free threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

# Commands whose tasks fill the threads for longer than this are left to waves, which give each thread the same share of
# them in every call.
LONG = 20e-6
MEETING = 1e-6  # minimum seconds for threads to start together and to wait for the last one
TAKING = 0.2e-6  # to take a piece
GUESS = 10e-6  # of a command of unknown duration
WORTH = 0.9  # maximum time relative to waves
MOST = 128  # commands of one flow
_FILLING = 4  # tasks per thread
_PIECES = 4  # maximum pieces of one command per thread


@dataclass(frozen=True)
class FlowPiece:
    """Tasks `[begin, end)` of a command, given by its number in the flow."""

    member: int
    begin: int
    end: int


@dataclass(frozen=True)
class Flow:
    """`units` are sequences of pieces, each taken as a whole, in order; `needs` lists for each command its dependences
    in the flow, and `counts` the number of its pieces."""

    units: list[list[FlowPiece]]
    needs: list[list[int]]
    counts: list[int]


def join_waves(
    waves: Sequence[Sequence[int]], tasks: Sequence[int], after: Sequence[Sequence[int]], threads: int,
    seconds: Sequence[float | None],
) -> list[tuple[list[int], Flow | None]]:
    """The waves in order, with consecutive ones combined into a flow if that is faster, given the `seconds` that one
    thread takes for each command."""
    found: list[tuple[list[int], Flow | None]] = []
    run: list[Sequence[int]] = []

    def close() -> None:
        members = [number for wave in run for number in wave]
        flow = None
        if len(run) > 1:
            flow = plan_flow(members, tasks, after, threads, seconds)
            shorter = _flow_seconds(flow, members, tasks, threads, seconds)
            if shorter > WORTH * sum(_wave_seconds(wave, tasks, threads, seconds) for wave in run):
                flow = None
        found.extend([(members, flow)] if flow is not None else [([*wave], None) for wave in run])
        run.clear()

    for wave in waves:
        if any(_is_long(tasks[number], seconds[number], threads) for number in wave):
            close()
            found.append(([*wave], None))
            continue
        if run and sum(map(len, run)) + len(wave) > MOST:
            close()
        run.append(wave)
    close()
    return found


def plan_flow(
    members: Sequence[int], tasks: Sequence[int], after: Sequence[Sequence[int]], threads: int,
    seconds: Sequence[float | None],
) -> Flow:
    """A flow of commands, given in an executable order; dependences that are not among them have ended before."""
    place = {number: index for index, number in enumerate(members)}
    needs = [sorted(place[earlier] for earlier in after[number] if earlier in place) for number in members]
    readers: list[list[int]] = [[] for _ in members]
    for index, earlier in enumerate(needs):
        for source in earlier:
            readers[source].append(index)
    counts = [max(1, min(tasks[number], _PIECES * threads)) for number in members]
    ranks = [0.0] * len(members)
    for index in reversed(range(len(members))):
        own = _alone(tasks[members[index]], threads, seconds[members[index]])
        ranks[index] = own + max((ranks[reader] for reader in readers[index]), default=0.0)
    units: list[list[FlowPiece]] = []
    follows: set[int] = set()
    for index in sorted(range(len(members)), key=lambda index: (-ranks[index], index)):
        if index in follows:
            continue
        if counts[index] > 1:
            units += [[piece] for piece in _cut(index, tasks[members[index]], counts[index])]
            continue
        unit = [FlowPiece(index, 0, tasks[members[index]])]
        last = index
        while len(readers[last]) == 1 and counts[readers[last][0]] == 1 and needs[readers[last][0]] == [last]:
            last = readers[last][0]
            follows.add(last)
            unit.append(FlowPiece(last, 0, tasks[members[last]]))
        units.append(unit)
    return Flow(units, needs, counts)


def _cut(member: int, tasks: int, count: int) -> list[FlowPiece]:
    edges = [tasks * number // count for number in range(count + 1)]
    return [FlowPiece(member, begin, end) for begin, end in pairwise(edges)]


def _is_long(tasks: int, seconds: float | None, threads: int) -> bool:
    return tasks >= _FILLING * threads and (seconds is None or not seconds or seconds / threads > LONG)


def _alone(tasks: int, threads: int, seconds: float | None) -> float:
    """The seconds of a command that runs alone on all threads; always positive."""
    return (seconds or GUESS) / max(1, min(tasks, threads))


def _wave_seconds(
    wave: Sequence[int], tasks: Sequence[int], threads: int, seconds: Sequence[float | None]
) -> float:
    if len(wave) == 1 and tasks[wave[0]] < 2:
        return seconds[wave[0]] or GUESS
    longest = max((seconds[number] or GUESS) / max(1, tasks[number]) for number in wave)
    return max(longest, sum(seconds[number] or GUESS for number in wave) / threads) + MEETING


def _flow_seconds(
    flow: Flow, members: Sequence[int], tasks: Sequence[int], threads: int, seconds: Sequence[float | None]
) -> float:
    ends: list[float] = []
    for number, needs in zip(members, flow.needs, strict=True):
        own = _alone(tasks[number], threads, seconds[number]) + TAKING
        ends.append(max((ends[index] for index in needs), default=0.0) + own)
    spent = sum(seconds[number] or GUESS for number in members) + TAKING * sum(flow.counts)
    return max(*ends, spent / threads) + MEETING
