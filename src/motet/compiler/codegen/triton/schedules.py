"""Schedules of GPU kernels: the form of each launch. Tunings name forms by the same labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.compiler.codegen.triton.text.program import Form, TritonCode, TritonProgram
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.launch_choices import LaunchChoice, LaunchTile
from motet.compiler.kernels.schedule import KernelSchedule, LaunchesSchedule, LaunchForm, Reason


def schedule_of(programs: Sequence[TritonProgram], taken: Sequence[TritonProgram]) -> LaunchesSchedule:
    """The schedule that selects, of `programs` with all their forms, the first forms of `taken`."""
    return LaunchesSchedule([
        _described(program.forms, each.forms[0]) for program, each in zip(programs, taken, strict=True)
    ])


def settled(
    schedule: KernelSchedule | None, programs: Sequence[TritonProgram], taken: Sequence[TritonProgram]
) -> KernelSchedule | None:
    """`schedule` of `programs` updated to the first forms of `taken`; launches with a single form are unchanged."""
    if not isinstance(schedule, LaunchesSchedule):
        return schedule
    launches = schedule_of(programs, taken).launches
    kept = zip(schedule.launches, launches, programs, strict=True)
    return LaunchesSchedule([old if len(program.forms) == 1 else new for old, new, program in kept])


def check(schedule: KernelSchedule, code: TritonCode) -> list[Reason]:
    """Why `schedule` is not legal for a kernel whose launches are those of `code`; an empty list if it is."""
    if not isinstance(schedule, LaunchesSchedule):
        return [Reason("class", str(type(schedule).__struct_config__.tag), "launches, for GPUs")]
    if len(schedule.launches) != len(code.programs):
        return [Reason("launches", len(schedule.launches), f"{len(code.programs)} of them")]
    reasons: list[Reason] = []
    for number, (given, program) in enumerate(zip(schedule.launches, code.programs, strict=True)):
        known = [_described(program.forms, form) for form in program.forms]
        if not any(_is(given, each) for each in known):
            reasons.append(Reason(f"launches[{number}]", given, _allowed(given, known)))
    return reasons


def with_schedule(code: TritonCode, schedule: LaunchesSchedule) -> TritonCode:
    """`code` with only the forms that a legal schedule selects."""
    programs = tuple(
        replace(program, forms=tuple(form for form in program.forms if _is(given, _described(program.forms, form))))
        for given, program in zip(schedule.launches, code.programs, strict=True)
    )
    phases = tuple(Phase(program.symbol, program.forms[0].tasks) for program in programs)
    return replace(code, programs=programs, phases=phases)


def forms_of(code: KernelCode) -> tuple[tuple[LaunchForm, ...], ...]:
    """The forms that a schedule may select for each launch of `code`."""
    programs = code.programs if isinstance(code, TritonCode) else ()
    return tuple(tuple(_described(program.forms, form) for form in program.forms) for program in programs)


def choices_of(code: KernelCode) -> tuple[tuple[LaunchChoice, ...], ...]:
    """The forms of each launch of `code`, with the names of the loops that their tiles are of."""
    programs = code.programs if isinstance(code, TritonCode) else ()
    return tuple(tuple(_choice(program, form) for form in program.forms) for program in programs)


def _choice(program: TritonProgram, form: Form) -> LaunchChoice:
    tiles = tuple(
        LaunchTile(tuple(program.dims[d] for d in each.dims), each.elements, each.level)
        for each in form.tiles if each.dims and max(each.dims) < len(program.dims)
    )
    return LaunchChoice(_described(program.forms, form), tiles, form.specialized)


def _described(forms: Sequence[Form], form: Form) -> LaunchForm:
    alike = [each.source for each in forms if each.label == form.label]
    return LaunchForm(form.label, alike.index(form.source), form.warps, form.stages, form.blocks)


def _is(given: LaunchForm, known: LaunchForm) -> bool:
    """Whether `given` matches `known` in all fields that it states."""
    pairs = ((given.warps, known.warps), (given.stages, known.stages), (given.cluster, known.cluster))
    return (given.form, given.number) == (known.form, known.number) and all(a in (None, b) for a, b in pairs)


def _allowed(given: LaunchForm, known: Sequence[LaunchForm]) -> str:
    """The available forms; if `given` names one of them, that form's fields."""
    for each in known:
        if (each.form, each.number) == (given.form, given.number):
            return f"warps={each.warps}, stages={each.stages}, cluster={each.cluster} of that form"
    numbered = (each.form + (f" number={each.number}" if each.number else "") for each in known)
    return f"one of the forms {'; '.join(numbered)}"
