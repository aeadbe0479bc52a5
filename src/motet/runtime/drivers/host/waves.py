"""Which commands of a schedule run at once on the host: the order of their launches, and waves of them.

A command that fills the threads runs alone. One that does not takes others along that are ready: all that it and they
wait for has run before. A wave is one native command (`motet_wave`) whose tasks are those of its members, so that
threads which have no task of one take those of another, and the threads meet once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

# A command with this many tasks for each thread leaves none of them idle for long.
FILLING = 4
# How far ahead of the program's order a command may run: what lies in the caches should still be there.
WINDOW = 64


# Seconds that a command takes one thread, at least, for another thread to be asked to help with what it does not do.
WORTHWHILE = 5e-6


def plan_waves(
    tasks: Sequence[int], after: Sequence[Sequence[int]], threads: int, seconds: Sequence[float | None] = (),
) -> list[list[int]]:
    """The commands by number, each once, in waves in the order of their launches. `tasks` are counts, `after` the
    commands that each has to wait for, all of which are before it. `seconds` is how long each may take one thread,
    None where that is not known; what is short runs alone, in less time than it takes threads to meet."""
    if threads < 2:
        return [[number] for number in range(len(tasks))]
    waves: list[list[int]] = []
    done: set[int] = set()
    waiting = list(range(len(tasks)))
    short = [duration is not None and duration < WORTHWHILE for duration in seconds] or [False] * len(tasks)
    while waiting:
        head, *rest = waiting
        wave, total = [head], tasks[head]
        for number in rest[:WINDOW] if not short[head] else ():
            if total >= FILLING * threads:
                break
            if tasks[number] and not short[number] and all(earlier in done for earlier in after[number]):
                wave.append(number)
                total += tasks[number]
        done.update(wave)
        members = set(wave)
        waiting = [number for number in waiting if number not in members]
        waves.append(wave)
    return waves
