"""Parses schedules in the declarative form, for a kernel.

    {"i": {"parallelize"}, "k": {}, "i#4": {"unroll"}, "j#16": {"vectorize"}, "B": {"pack": "k"}}

Loops stand outermost first: `i` over the whole dimension, `i#4` over 4 elements of what the loop outside steps by.
`j[0:256]` is the part of a dimension with loops for itself. `B` is an operand that is packed at a loop, or a result
that is buffered. `stage1` has the loops of a stage that is not the main one, or the loop at which it is fused.
Source: the language of XTC's descriptive schedules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.loop_names import loop_names, main_stage, stage_name
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.nest_legality import nest_reasons
from motet.compiler.kernels.nested_stage import paths_of
from motet.compiler.kernels.schedule import (
    KernelSchedule,
    Nest,
    NestFusion,
    NestSchedule,
    StageNest,
    decode_schedule,
)
from motet.compiler.schedule_text.default_nests import default_nest
from motet.compiler.schedule_text.nest_parsing import StageNames, parse_nest
from motet.compiler.schedule_text.plain import Plain, plain_mapping, read_plain
from motet.errors import OptionError, ScheduleError


def parse_schedule(
    text_or_mapping: str | Mapping[Any, Any], kernel: Kernel, microkernels: Sequence[Microkernel] = ()
) -> KernelSchedule:
    """The schedule that text in YAML or JSON, or a mapping of the same form, describes for `kernel`. Stages that
    it does not mention have a nest by default. With a key `class`, the schedule is one of the compiler's, as in files.
    `tensorize` names some of `microkernels`.

    Raises ScheduleError, with the primitive, the loop, the reason and what is legal, for a schedule that does not apply
    to `kernel`, and OptionError for text that is none.
    """
    content = read_plain(text_or_mapping) if isinstance(text_or_mapping, str) else plain_mapping(text_or_mapping)
    if "class" in content:
        try:
            schedule = decode_schedule(content)
        except ValueError as error:
            raise OptionError(f"schedule: {error}") from None
    else:
        schedule = with_microkernels(_parse_stages(content, kernel), microkernels)
    if isinstance(schedule, NestSchedule):
        check_schedule(schedule, kernel)
    return schedule


def with_microkernels(schedule: NestSchedule, microkernels: Sequence[Microkernel]) -> NestSchedule:
    """`schedule` with those of `microkernels` that its loops name; with all, for the error, if one is unknown."""
    named = {
        loop.tensorize for each in schedule.nests for path in paths_of(each.nest) for loop in path.loops
        if loop.tensorize
    }
    known = {each.name for each in microkernels}
    kept = [each for each in microkernels if each.name in named or not named <= known]
    return NestSchedule(schedule.nests, schedule.fused, kept if named else [])


def check_schedule(schedule: NestSchedule, kernel: Kernel) -> None:
    """Raises ScheduleError for the first reason why `schedule` is not legal for `kernel`."""
    for reason in nest_reasons(kernel, schedule):
        raise ScheduleError(reason.field, str(reason.value), reason.why, reason.allowed)


def _parse_stages(content: dict[str, Plain], kernel: Kernel) -> NestSchedule:
    main = main_stage(kernel)
    if main is None:
        raise OptionError(f"schedule: kernel {kernel.name} has no loops")
    stages = {stage_name(s): s for s in range(len(kernel.stages))}
    loops = {key: value for key, value in content.items() if key not in stages}
    nests: dict[int, Nest] = {}
    fused: list[NestFusion] = []
    for key, value in content.items():
        if key not in stages:
            continue
        given = _mapping(value, key)
        if not given:
            continue
        if "fuse" in given:
            fused.append(NestFusion(stages[key], _fused_at(given, key)))
        else:
            nests[stages[key]] = parse_nest(given, stage_names(kernel, stages[key]))
    if loops and main in nests:
        why = f"{stage_name(main)} has loops already"
        raise ScheduleError("nest", next(iter(loops)), why, "its loops in one place")
    if loops:
        nests[main] = parse_nest(loops, stage_names(kernel, main))
    for s in set(stages.values()) - nests.keys() - {each.stage for each in fused}:
        nests[s] = default_nest(kernel, s)
    return NestSchedule([StageNest(s, nests[s]) for s in sorted(nests)], fused)


def stage_names(kernel: Kernel, stage: int) -> StageNames:
    """The names that the nest of `stage` may contain."""
    names = loop_names(kernel)
    read = {access.value for access in kernel.stages[stage].inputs}
    written = {access.value for access in kernel.stages[stage].outputs}
    operands = tuple(names.values[access.value] for access in kernel.stages[stage].inputs)
    return StageNames(
        names.dims[stage], names.values, operands,
        frozenset(names.values[v] for v in read), frozenset(names.values[v] for v in written),
    )


def _mapping(value: Plain, key: str) -> dict[str, Plain]:
    if isinstance(value, dict):
        return value
    raise OptionError(f'schedule: {key}: expected the loops of the stage, or {{"fuse": LOOP}}')


def _fused_at(given: dict[str, Plain], key: str) -> str:
    at = given["fuse"]
    if len(given) > 1 or not isinstance(at, str):
        raise ScheduleError("fuse", key, "it names no loop, or has other entries", f'{key}: {{"fuse": LOOP}} alone')
    return at
