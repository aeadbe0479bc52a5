"""The schedules that a program writes on its operations, for the kernels that they became."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.kernels.loop_names import loop_names, stage_name
from motet.compiler.kernels.reader.written_schedules import source_place
from motet.compiler.kernels.schedule import KernelSchedule, Reason
from motet.compiler.schedule_text.parsing import parse_schedule
from motet.compiler.schedule_text.plain import Plain, plain_mapping, read_plain
from motet.errors import CompileError, Location, OptionError

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
            content[stage_name(s)] = _of_stage(kernel, s, stage)
        return parse_schedule(content, kernel)
    except OptionError as error:
        raise CompileError(f"loop.{error}", place) from None


def refuse_illegal(kernel: Kernel, reasons: Sequence[Reason]) -> None:
    """Raises CompileError, with the place of the first operation that has a schedule, for `reasons` against it."""
    if reasons:
        place = next((_place(stage) for stage in kernel.stages if stage.written), None)
        raise CompileError(f"loop.schedule: {'; '.join(map(str, reasons))}", place)


def _of_stage(kernel: Kernel, s: int, stage: Stage) -> dict[str, Plain]:
    found = json.loads(stage.written)
    given = found["schedule"]
    content = read_plain(given) if isinstance(given, str) else plain_mapping(dict(given))
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
