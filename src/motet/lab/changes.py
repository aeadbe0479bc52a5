"""The changes of a schedule that are not legal, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from motet.compiler.kernels.loop_names import loop_names, main_stage, stage_name
from motet.compiler.kernels.schedule import KernelSchedule, NestSchedule
from motet.compiler.schedule_text.formatting import schedule_mapping
from motet.compiler.schedule_text.parsing import parse_schedule
from motet.errors import OptionError

if TYPE_CHECKING:
    from motet.lab.subject import KernelSubject

_LOOP = re.compile(r"(\w+)(?:#(\d+))?")
_FLAGS = ("parallelize", "vectorize", "unroll", "split_reduction")

Content = dict[str, Any]  # a schedule in the declarative form


def refused_fields(subject: KernelSubject, given: KernelSchedule) -> list[str]:
    """A line for each flag that cannot be changed, and each number that cannot be halved or doubled."""
    lines: list[str] = []
    for name in given.__struct_fields__:
        value = getattr(given, name)
        if isinstance(value, bool):
            tried: list[object] = [not value]
        elif isinstance(value, int):
            tried = [max(1, value // 2), value * 2]
        else:
            continue
        for other in tried:
            changed = msgspec.structs.replace(given, **{name: other})
            reasons = subject.reasons(changed) if other != value else ()
            lines += [f"  {name} {value} → {other}: {reason}" for reason in reasons]
    return lines


def refused_loops(subject: KernelSubject, given: NestSchedule) -> list[str]:
    """A line for each primitive that one loop of the main stage cannot take: a flag, another size of a tile, an
    interchange with the next loop, a copy of an operand, a stage computed in it."""
    lines: list[str] = []
    for what, content in _changed(subject, dict(schedule_mapping(given, subject.kernel))):
        try:
            changed = parse_schedule(content, subject.kernel, given.microkernels)
            reasons = [str(reason) for reason in subject.reasons(changed)]
        except OptionError as error:
            reasons = [str(error).removeprefix("schedule: ")]
        lines += [f"  {what}: {reason}" for reason in reasons[:1]]
    return lines


def _changed(subject: KernelSubject, content: Content) -> Iterator[tuple[str, Content]]:
    labels = [key for key, value in content.items() if _is_loop(key, value)]
    for label, after in zip(labels, [*labels[1:], ""], strict=True):
        flags: Content = dict(content[label] or {})
        for flag in _FLAGS:
            if flag not in flags:
                yield f"{label} {flag}", {**content, label: {**flags, flag: None}}
        dim, _, size = label.partition("#")
        for other in (int(size) // 2, int(size) * 2) if size else ():
            if other and f"{dim}#{other}" not in content:
                yield f"{label} → {dim}#{other}", _renamed(content, {label: f"{dim}#{other}"})
        if after:
            swapped = {label: after, after: label}
            yield f"{label} inside {after}", {
                swapped.get(key, key): content[swapped[key]] if key in swapped else value
                for key, value in content.items()
            }
        for name, entry in _attached(subject, label):
            yield f"{name} {next(iter(entry))} at {label}", {**content, name: entry}


def _is_loop(key: str, value: object) -> bool:
    attached = isinstance(value, Mapping) and any(name in value for name in ("pack", "buffer", "fuse"))
    return not attached and _LOOP.fullmatch(key) is not None and not key.startswith("stage")


def _attached(subject: KernelSubject, label: str) -> Iterator[tuple[str, Content]]:
    """Copies of operands, and the other stages, at a loop."""
    kernel, main = subject.kernel, main_stage(subject.kernel)
    assert main is not None  # a nest has a main stage
    names = loop_names(kernel).values
    for value in dict.fromkeys(names[access.value] for access in kernel.stages[main].inputs):
        yield value, {"pack": label}
    for number in range(len(kernel.stages)):
        if number != main:
            yield stage_name(number), {"fuse": label}


def _renamed(content: Content, names: Mapping[str, str]) -> Content:
    return {names.get(key, key): value for key, value in content.items()}
