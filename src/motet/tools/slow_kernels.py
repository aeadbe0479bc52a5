"""Finds kernels on the generic path that take a large share of a program's estimated work."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from motet.artifact.kernels import KernelTable

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.artifact.schema import KernelInfo, Schedule, Variant

_SHARE = 0.25  # of the estimated time of a function
_LEAST = 5e-4  # seconds of the generic path on one thread, below which a program is too small to matter
_STEP = 5e-11  # seconds of a step of vectorised code
_ROOF = 10  # times the estimate by traffic alone from which on a kernel is far from what the processor can do


def warn_of_slow_kernels(artifact: Artifact) -> None:
    """Log each line of `slow_kernels` as a warning."""
    for line in slow_kernels(artifact):
        logging.getLogger("motet").warning("%s", line)


def slow_kernels(artifact: Artifact) -> list[str]:
    """One line for each kernel for hosts on the generic path that takes a large share of a function's work."""
    hosts = [variant for variant in artifact.manifest.variants if variant.family == "host"]
    if not hosts:
        return []
    lines: dict[str, None] = {}
    for schedule in hosts[0].schedules.values():
        lines.update(dict.fromkeys(_lines(hosts[0], schedule)))
    return list(lines)


def _lines(variant: Variant, schedule: Schedule) -> list[str]:
    table = KernelTable([variant])
    seconds: defaultdict[str, float] = defaultdict(float)
    traffic: defaultdict[str, float] = defaultdict(float)
    known: dict[str, KernelInfo] = {}
    for command in schedule.commands:
        kernel = table.find(command.kernel) if command.op == "dispatch" else None
        if kernel is None:
            continue
        known[kernel.name] = kernel
        seconds[kernel.name] += kernel.steps * _STEP if kernel.steps else command.seconds
        traffic[kernel.name] += command.seconds
    total = sum(seconds.values())
    return [
        _line(kernel, seconds[name] / total, seconds[name], traffic[name])
        for name, kernel in known.items()
        if kernel.steps and seconds[name] >= max(_LEAST, _SHARE * total)
    ]


def _line(kernel: KernelInfo, share: float, seconds: float, traffic: float) -> str:
    far = f", below {1 / _ROOF:.0%} of what memory allows" if traffic and seconds > _ROOF * traffic else ""
    return (
        f"{kernel.place}: kernel {kernel.name} takes about {share:.0%} of the estimated time on the generic path{far} "
        f"({kernel.source}); motet bench --profile measures it, docs/codegen.md lists what has faster code"
    )
