"""Schedules of kernels given by the user with `--option schedules=FILE`: their lookup and their errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from motet.artifact.kernel_schedules import (
    NO_SCHEDULES,
    GivenSchedules,
    ScheduledKernel,
    given_schedules,
    parse_schedules,
)
from motet.compiler.codegen.kernel_code import KernelCode
from motet.compiler.kernels.schedule import KernelSchedule, Reason, decode_schedule, encode_schedule
from motet.compiler.targets.cpu import CPU_TARGETS, CpuTarget, bases_of
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
    given: GivenSchedules, key: str, name: str, targets: Sequence[Target],
    check: Callable[[KernelSchedule], Sequence[Reason]],
) -> KernelSchedule | None:
    """The schedule in `given` for the kernel with the key `key`, named `name` in the program, for the first of
    `targets` that it lists. Raises OptionError unless `check` accepts it."""
    entries = ((target, given.find(key, name, target_name(target))) for target in targets)
    target, entry = next(((target, entry) for target, entry in entries if entry is not None), (None, None))
    if target is None or entry is None:
        return None
    schedule = decode_schedule(entry.schedule)
    if reasons := check(schedule):
        text = "; ".join(map(str, reasons))
        if entry.origin:  # a record, which another version may have made
            _log.warning("kernel %s for %s: the record is not legal here, and ignored: %s (%s)", name,
                         target_name(target), text, entry.origin)
            return None
        raise OptionError(f"{given.where}: kernel {name} ({key}) for {target_name(target)}: illegal schedule: {text}")
    return schedule


def scheduled_kernels(
    codes: Mapping[str, KernelCode], target: Target, about: Mapping[str, str], given: GivenSchedules = NO_SCHEDULES
) -> list[ScheduledKernel]:
    """The schedules of kernels, by name, in the form of files, with the records that they were `given` by: those for
    `target`, or for a level that it extends."""
    extended = [CPU_TARGETS[name] for name in bases_of(target)] if isinstance(target, CpuTarget) else []
    found: list[ScheduledKernel] = []
    for name, code in codes.items():
        if code.schedule is not None:
            schedule = encode_schedule(code.schedule)
            entries = (given.find(code.key, name, target_name(level)) for level in (target, *extended))
            entry = next((each for each in entries if each is not None), None)
            origin = entry.origin if entry is not None and decode_schedule(entry.schedule) == code.schedule else ""
            found.append(ScheduledKernel(code.key, target_name(target), schedule, [name], about.get(name, ""), origin))
    return found


def warn_of_unknown(given: GivenSchedules, made: bytes) -> None:
    """Warn once of the kernels in `given` that are not among the schedules `made`."""
    if unknown := list(dict.fromkeys(given.unknown(parse_schedules(made, "artifact")))):
        _log.warning("%s: the program has no kernel %s; motet inspect --schedules shows those it has", given.where,
                     ", ".join(unknown))
