"""The schedules of a function that are worth comparing: the same commands in other orders and memory plans.

They do not change what commands compute, so that results are the same whichever is chosen. The number of tasks of a
command is a property of its code, and therefore the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from motet.artifact.schema import Schedule
from motet.compiler.scheduling.arrangement import Options
from motet.errors import CompileError

PLANNED = "concurrent"
_FEW = 8  # tasks; a command with fewer leaves threads of a processor idle
_MORE_MEMORY = 4.0  # ratio to the lower bound of the arena

# Schedules of every function of a variant: function → candidate's name → schedule; the planner's own comes first.
Candidates = dict[str, dict[str, Schedule]]


def candidate_options(options: Options) -> Iterator[tuple[str, Options]]:
    """The names and options of candidates other than the planner's own; settings in `options` are respected."""
    serial = replace(options, filling=0, chained=True, streams=1)
    yield "serial", serial
    yield "serial, depth first", replace(serial, depth_first=True)
    yield "concurrent, depth first", replace(options, depth_first=True)
    yield "concurrent where tasks are few", replace(options, filling=min(_FEW, options.filling), chained=True)
    if options.memory_limit is None:
        yield "concurrent, more memory", replace(options, growth=_MORE_MEMORY)


def make_candidates(make: Callable[[Options], Schedule], options: Options) -> dict[str, Schedule]:
    """Every candidate that differs from those before it; `make` schedules by options.

    Raises: CompileError: the planner's own schedule exceeds the memory limit. Others that do are left out.
    """
    found = {PLANNED: make(options)}
    for name, each in candidate_options(options):
        try:
            schedule = make(each)
        except CompileError:  # in this order the arena exceeds the limit
            continue
        if schedule not in found.values():
            found[name] = schedule
    return found
