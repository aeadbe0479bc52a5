"""The schedules that a program writes on its operations, for the kernels that they became."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence

from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.kernels.launch_choices import LaunchChoice
from motet.compiler.kernels.loop_names import loop_names, stage_name
from motet.compiler.kernels.reader.written_schedules import source_place
from motet.compiler.kernels.schedule import KernelSchedule, Reason, decode_schedule
from motet.compiler.schedule_text.launches import choice_text, main_launch, parse_launches, selects
from motet.compiler.schedule_text.parsing import parse_schedule
from motet.compiler.schedule_text.plain import Plain, plain_mapping, read_plain
from motet.errors import CompileError, Location, OptionError

_LOG = logging.getLogger("motet")
_SHOWN = 8  # labels of forms in a message
_KEY = re.compile(r"(\w+)((?:[#\[].*)?)")


def schedule_written_for(kernel: Kernel) -> KernelSchedule | None:
    """The schedule of `kernel` by the attributes of its operations, other stages by default; None if no operation has
    one. Raises CompileError, with the operation's place, for a schedule that does not apply."""
    written = {s: stage for s, stage in enumerate(kernel.stages) if stage.written}
    if not written:
        return None
    content: dict[str, Plain] = {}
    place = None
    try:
        for s, stage in written.items():
            place = _place(stage)
            found = _of_stage(kernel, s, stage)
            if "class" in found and len(written) == 1:
                return parse_schedule(found, kernel)
            content[stage_name(s)] = found
        return parse_schedule(content, kernel)
    except OptionError as error:
        raise CompileError(f"loop.{error}", place) from None


def launches_written_for(
    kernel: Kernel, family: str, launches: Sequence[Sequence[LaunchChoice]]
) -> KernelSchedule | None:
    """The schedule of `kernel` on devices of `family`, whose launches have the forms `launches`, by the attributes of
    its operations; None if no operation has one. Raises CompileError, with the operation's place, unless it selects
    forms."""
    written = {s: stage for s, stage in enumerate(kernel.stages) if stage.written}
    if not written:
        return None
    first, stage = next(iter(written.items()))
    place = _place(stage)
    try:
        content = _of_stage(kernel, first, stage)
        if len(written) == 1 and content.get("class") == "launches":
            return decode_schedule(content)
        if len(written) == 1 and launches and not _describes_loops(content):
            if content and not selects(content):
                _LOG.warning("%s: loop.schedule: nothing in it selects a form for %s devices, whose launches have no "
                             'loop over a whole dimension; expected a tile, as "i#64"', place, family)
            return parse_launches(content, launches)
        why = "several operations of one kernel have one" if len(written) > 1 else "it describes loops"
    except (OptionError, ValueError) as error:
        raise CompileError(f"loop.schedule: {error}", place) from None
    main = main_launch(launches) if launches else 0
    shown = ", and ".join(f"{'' if n == main else f'launch{n}: '}one of {_choices(each)}"
                          for n, each in enumerate(launches)) or "no launches"
    raise CompileError(
        f"loop.schedule: {why}, and code for {family} devices has no loop nests; expected the forms of its launches, "
        f"{shown}, or another device for this operation, such as the host", place)


def _describes_loops(content: Mapping[str, Plain]) -> bool:
    """Whether a primitive is one of loop nests."""
    return any(
        flag in value for value in content.values() if isinstance(value, str | dict | list)
        for flag in ("parallelize", "vectorize", "unroll", "pack", "buffer", "fuse", "split_reduction", "tensorize")
    )


def _choices(choices: Sequence[LaunchChoice]) -> str:
    labels = list(dict.fromkeys(map(choice_text, choices)))
    more = f"; or {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
    return "; ".join(labels[:_SHOWN]) + more


def _content(given: str | list[list[Plain]]) -> dict[str, Plain]:
    """A schedule as the reader of attributes leaves it: text, or pairs of a loop and its flags."""
    return read_plain(given) if isinstance(given, str) else plain_mapping({str(key): flags for key, flags in given})


def refuse_illegal(kernel: Kernel, reasons: Sequence[Reason], target: str) -> None:
    """Raises CompileError, with the place of the first operation that has a schedule, for `reasons` against it on
    `target`, one of those that are compiled for."""
    if reasons:
        place = next((_place(stage) for stage in kernel.stages if stage.written), None)
        raise CompileError(f"loop.schedule: illegal for {target}: {'; '.join(map(str, reasons))}", place)


def _of_stage(kernel: Kernel, s: int, stage: Stage) -> dict[str, Plain]:
    found = json.loads(stage.written)
    content = _content(found["schedule"])
    if not found["dims"]:
        return content
    names = loop_names(kernel).dims[s]
    if len(found["dims"]) != len(names) or len(set(found["dims"])) != len(names):
        count = len(found["dims"])
        raise OptionError(f"dims: {count} names; expected {len(names)} different ones, one for each loop")
    return _renamed(content, dict(zip(found["dims"], names, strict=True)))


def _renamed(content: Mapping[str, Plain], names: Mapping[str, str]) -> dict[str, Plain]:
    """`content` with other names of dimensions: in keys, and where copies and fusions name a loop."""
    return {_label(key, names): _renamed_value(value, names) for key, value in content.items()}


def _renamed_value(value: Plain, names: Mapping[str, str]) -> Plain:
    if not isinstance(value, dict):
        return value
    found = _renamed(value, names)
    for key in ("pack", "buffer", "fuse", "at"):
        if isinstance(label := found.get(key), str):
            found[key] = _label(label, names)
    return found


def _label(label: str, names: Mapping[str, str]) -> str:
    match = _KEY.fullmatch(label)
    return label if match is None or match[1] not in names else names[match[1]] + match[2]


def _place(stage: Stage) -> Location | None:
    return source_place(json.loads(stage.written)["place"])
