"""Groups the commands of a schedule that run concurrently on the host into waves.

A command that fills the threads runs alone. Any other command is combined with further ready commands, whose
dependences have all run. A wave is one native command (`motet_wave`) with the tasks of its members, so that threads
without a task of one member run tasks of another, and the threads synchronise once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

# A command with this many tasks per thread leaves no thread idle for long.
FILLING = 4
# How far a command may move ahead in the program's order; its data should still be in the caches.
WINDOW = 64


# Minimum seconds of a command on one thread for which waking another thread pays.
WORTHWHILE = 5e-6


def plan_waves(
    tasks: Sequence[int], after: Sequence[Sequence[int]], threads: int, seconds: Sequence[float | None] = (),
) -> list[list[int]]:
    """The commands by number, each once, in waves in launch order. `tasks` are their task counts, `after` their
    dependences, which are all earlier commands. `seconds` is the time of each on one thread, None if unknown; short
    commands run alone, in less time than threads take to synchronise."""
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
