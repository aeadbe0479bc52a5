"""Which schedules of one function are worth a comparison: the same commands, ordered and placed in other ways.

None of them changes what a command computes, so results are the same whichever is taken. How many tasks a command has
is its code's, and so the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from motet.artifact.schema import Schedule
from motet.compiler.scheduling.arrangement import Options
from motet.errors import CompileError

PLANNED = "concurrent"
_FEW = 8  # tasks: a command that has fewer leaves threads of a processor idle
_MORE_MEMORY = 4.0  # times the lower bound of the arena

# Schedules of every function of a variant, by the function and the candidate's name; the planner's own stands first.
Candidates = dict[str, dict[str, Schedule]]


def candidate_options(options: Options) -> Iterator[tuple[str, Options]]:
    """The names of candidates beside the planner's own, and what makes them. What is given in `options` is kept to."""
    serial = replace(options, filling=0, chained=True, streams=1)
    yield "serial", serial
    yield "serial, depth first", replace(serial, depth_first=True)
    yield "concurrent, depth first", replace(options, depth_first=True)
    yield "concurrent where tasks are few", replace(options, filling=min(_FEW, options.filling), chained=True)
    if options.memory_limit is None:
        yield "concurrent, more memory", replace(options, growth=_MORE_MEMORY)


def make_candidates(make: Callable[[Options], Schedule], options: Options) -> dict[str, Schedule]:
    """Every candidate that differs from those before it; `make` schedules by options.

    Raises: CompileError: the planner's own does not keep to the memory that there may be. Others then are left out.
    """
    found = {PLANNED: make(options)}
    for name, each in candidate_options(options):
        try:
            schedule = make(each)
        except CompileError:  # in another order the arena is larger than it may be
            continue
        if schedule not in found.values():
            found[name] = schedule
    return found
