"""Schedules of kernels given by the user with `--option schedules=FILE`: their lookup and their errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from motet.artifact.kernel_schedules import (
    FOR_EXTENTS,
    GivenSchedules,
    ScheduledKernel,
    given_schedules,
    parse_schedules,
)
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.kernel_facts import core_of, extents_of, form_of
from motet.compiler.kernels.loop_names import loop_names, main_stage
from motet.compiler.kernels.schedule import (
    ContractionSchedule,
    KernelSchedule,
    Nest,
    NestCopy,
    NestSchedule,
    Reason,
    StageNest,
    decode_schedule,
    encode_schedule,
)
from motet.compiler.schedule_text.default_nests import default_nest
from motet.compiler.targets.families import families
from motet.compiler.targets.family import Target
from motet.errors import OptionError

_log = logging.getLogger("motet")


def target_name(target: Target) -> str:
    """The name of `target` in files of schedules."""
    return f"{target.family}:{target.name}"


def read_given(data: bytes, where: str) -> GivenSchedules:
    """The content of a file, with every schedule in it checked. Raises OptionError for invalid ones."""
    found = given_schedules(data, where)
    for each in found.kernels.values():
        place = f"{where}: kernel {each.kernel} for {each.target}"
        family, _, name = each.target.partition(":")
        known = families().get(family)
        if known is None or name.partition("/")[0] not in known.names:
            listing = ", ".join(f"{family}:{name}" for name in known.names) if known else ", ".join(families())
            raise OptionError(f"{place}: no such target; expected one of {listing}")
        try:
            decode_schedule(each.schedule)
        except ValueError as error:
            raise OptionError(f"{place}: {error}") from None
    return found


def schedule_for(
    given: GivenSchedules, kernel: Kernel, key: str, targets: Sequence[Target],
    check: Callable[[KernelSchedule], Sequence[Reason]],
) -> tuple[KernelSchedule | None, str]:
    """The schedule in `given` for the kernel with the key `key` for the first of `targets` that it lists, and the
    record that has it. Without one, that of the nearest record that `check` accepts: of a kernel with other extents, or
    of the operator with the most work in `kernel`. Raises OptionError unless `check` accepts a schedule that is no
    record's."""
    if not given.kernels:
        return None, ""
    name = kernel.name
    entries = ((target, given.find(key, name, target_name(target))) for target in targets)
    target, entry = next(((target, entry) for target, entry in entries if entry is not None), (None, None))
    if target is None or entry is None:
        return _near(given, kernel, targets, check)
    schedule = decode_schedule(entry.schedule)
    if reasons := check(schedule):
        text = "; ".join(map(str, reasons))
        if entry.origin:  # a record, which another version may have made
            _log.warning("kernel %s for %s: the record is not legal here, and ignored: %s (%s)", name,
                         target_name(target), text, entry.origin)
            return None, ""
        raise OptionError(f"{given.where}: kernel {name} ({key}) for {target_name(target)}: illegal schedule: {text}")
    return schedule, entry.origin


def _near(
    given: GivenSchedules, kernel: Kernel, targets: Sequence[Target],
    check: Callable[[KernelSchedule], Sequence[Reason]],
) -> tuple[KernelSchedule | None, str]:
    """The schedule of the nearest record for `kernel`, or else for its core, and the record; none for a kernel that the
    program itself schedules."""
    core = core_of(kernel)
    if any(stage.written for stage in kernel.stages):
        return None, ""
    for found, values in ((kernel, ()), *((core,) if core is not None else ())):
        form, extents = form_of(found), extents_of(found)
        for entry in (each for target in targets for each in given.near(form, extents, target_name(target))):
            schedule = decode_schedule(entry.schedule)
            if values:
                schedule = _of_whole(schedule, found, kernel, values)
            if not check(schedule):
                return schedule, f"{entry.origin}{FOR_EXTENTS}{'x'.join(map(str, entry.extents))}"
    return None, ""


def _of_whole(schedule: KernelSchedule, core: Kernel, kernel: Kernel, values: Sequence[int]) -> KernelSchedule:
    """The schedule of `kernel` that has `schedule` for its core, whose values are `values`. Constants are packed when
    compiling, and other stages have nests by default."""
    main = main_stage(kernel)
    if isinstance(schedule, ContractionSchedule) and schedule.b_mode in ("scratch", "place"):
        right = core.stages[0].inputs[-1].value
        if kernel.values[values[right]].role == "constant":
            return structs.replace(schedule, b_mode="packed", keeps=False, shared=False, pack_panels=1, pack_steps=0)
    if isinstance(schedule, NestSchedule) and main is not None and len(schedule.nests) == 1:
        names = loop_names(kernel).values
        renamed = {name: names[v] for name, v in zip(loop_names(core).values, values, strict=True)}
        return structs.replace(schedule, nests=[
            StageNest(s, _renamed(schedule.nests[0].nest, renamed) if s == main else default_nest(kernel, s))
            for s in range(len(kernel.stages))
        ])
    return schedule


def _renamed(nest: Nest, names: Mapping[str, str]) -> Nest:
    """`nest` with copies of values of other names."""

    def copies(found: Sequence[NestCopy]) -> list[NestCopy]:
        return [structs.replace(each, value=names[each.value]) for each in found]

    regions = [structs.replace(each, nest=_renamed(each.nest, names)) for each in nest.regions]
    return structs.replace(nest, regions=regions, packs=copies(nest.packs), buffers=copies(nest.buffers))


def scheduled_kernels(
    codes: Mapping[str, KernelCode], target: Target, about: Mapping[str, str]
) -> list[ScheduledKernel]:
    """The schedules of kernels, by name, in the form of files, with the records that they were taken from."""
    return [
        ScheduledKernel(
            code.key, target_name(target), encode_schedule(code.schedule), [name], about.get(name, ""), code.origin
        )
        for name, code in codes.items() if code.schedule is not None
    ]


def warn_of_unknown(given: GivenSchedules, made: bytes) -> None:
    """Warn once of the kernels in `given` that are not among the schedules `made`."""
    if unknown := list(dict.fromkeys(given.unknown(parse_schedules(made, "artifact")))):
        _log.warning("%s: the program has no kernel %s; motet inspect --schedules shows those it has", given.where,
                     ", ".join(unknown))
