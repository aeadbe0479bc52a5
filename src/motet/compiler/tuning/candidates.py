"""Candidate schedules of a function: the same commands in other orders and with other memory plans.

Candidates do not change what commands compute, so that results are the same for all. The number of tasks of a command
is determined by its code, and so is the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from motet.artifact.schema import Schedule
from motet.compiler.scheduling.arrangement import ArrangeOptions
from motet.errors import CompileError

PLANNED = "concurrent"
_FEW = 8  # tasks; commands with fewer leave CPU threads idle
_MORE_MEMORY = 4.0  # relative to the lower bound of the arena

# Schedules of every function of a variant, by function and candidate's name; the planner's own comes first.
Candidates = dict[str, dict[str, Schedule]]


def candidate_options(options: ArrangeOptions) -> Iterator[tuple[str, ArrangeOptions]]:
    """The names and options of candidates other than the planner's own. Explicit `options` are kept."""
    serial = replace(options, filling=0, chained=True, streams=1)
    yield "serial", serial
    yield "serial, depth first", replace(serial, depth_first=True)
    yield "concurrent, depth first", replace(options, depth_first=True)
    yield "concurrent where tasks are few", replace(options, filling=min(_FEW, options.filling), chained=True)
    if options.memory_limit is None:
        yield "concurrent, more memory", replace(options, growth=_MORE_MEMORY)


def make_candidates(make: Callable[[ArrangeOptions], Schedule], options: ArrangeOptions) -> dict[str, Schedule]:
    """All candidates that differ from earlier ones; `make` creates a schedule from options.

    Raises: CompileError if the planner's own exceeds the memory limit. Other candidates that do are omitted.
    """
    found = {PLANNED: make(options)}
    for name, each in candidate_options(options):
        try:
            schedule = make(each)
        except CompileError:  # in another order the arena exceeds the limit
            continue
        if schedule not in found.values():
            found[name] = schedule
    return found
