"""The time of each kernel of a function on its device: the table of `motet bench --profile`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.artifact.kernels import KernelTable
    from motet.artifact.schema import Variant
    from motet.runtime.function import Function
    from motet.runtime.trace import Traced
    from motet.specs import Array

_LEAST, _MOST = 5, 100  # traced calls


@dataclass(frozen=True)
class KernelTime:
    """A kernel in the profile: its `calls` in one call of the function, and their total seconds, the median of the
    traced calls, and work. Transfers between devices are included by kind (`write`, `read`). `instructions` is 0 if the
    device does not count them. `source` has the names in the source of what it computes; a kernel that computes several
    parts of a program has an entry for each. `fastest` and `p90` are of the same calls as the median."""

    name: str
    kind: str
    calls: int
    seconds: float
    flops: int
    bytes: int
    device: str = ""
    instructions: int = 0
    source: str = ""
    fastest: float = 0.0
    p90: float = 0.0


@dataclass(frozen=True)
class Profile:
    """`overhead` are the seconds of a call in which no kernel ran, the median of the `calls` that were traced, each
    measured in the same call as its kernels; None if a call does not tell."""

    kernels: list[KernelTime]
    calls: int
    overhead: float | None


def profile_kernels(
    function: Function, arrays: Sequence[Array], variants: Sequence[Variant], begin_anew: Callable[[], None],
    seconds: float = 0.2,
) -> Profile:
    """The times of every command in calls that are traced for some `seconds`, summed by kernel, the longest first.
    `begin_anew` prepares each call."""
    from motet.artifact.kernels import KernelTable
    from motet.runtime.trace import CallEvents, fair_seconds

    runs: list[Sequence[Traced]] = []
    overheads: list[float] = []
    begin = time.perf_counter()
    while len(runs) < _LEAST or (len(runs) < _MOST and time.perf_counter() - begin < seconds):
        begin_anew()
        events = function.trace(*arrays)[1]
        runs.append(events)
        overheads += [events.overhead] if isinstance(events, CallEvents) else []
    # Concurrent devices may record events in another order in each run.
    ordered = [sorted(run, key=_place) for run in runs]
    length = min(map(len, ordered))  # calls that branch on values may run more or fewer commands
    ordered = [run[:length] for run in ordered]
    taken = [fair_seconds(run) for run in ordered]
    found: dict[tuple[str, str, str], list[int]] = {}
    known = KernelTable(variants)
    for number, first in enumerate(ordered[0]):
        info = known.find(first.event.name)
        name = first.event.name if info is None else info.name
        found.setdefault((first.device, name, first.event.source), []).append(number)
    times = [
        _time(device, name, source, known, [ordered[0][number] for number in numbers],
              [sum(run[number] for number in numbers) for run in taken])
        for (device, name, source), numbers in found.items()
    ]
    kernels = sorted(times, key=lambda kernel: -kernel.seconds)
    return Profile(kernels, len(runs), statistics.median(overheads) if overheads else None)


def _place(traced: Traced) -> tuple[str, int, str, str]:
    return traced.device, traced.event.queue, traced.event.name, traced.event.source


def _time(
    device: str, name: str, source: str, known: KernelTable, events: Sequence[Traced], seconds: Sequence[float]
) -> KernelTime:
    """A kernel with these `events` in a call, which took `seconds` in each of the traced calls."""
    info = known.find(name)
    symbols = {traced.event.name for traced in events}
    # Each phase of a kernel is a command; the work of the kernel is counted once for all of them.
    calls = len(events) // len(symbols)
    kind, flops, moved = ("", 0, 0) if info is None else (info.kind, info.flops, info.bytes)
    if info is None:
        kind, moved = events[0].event.kind, sum(traced.event.bytes for traced in events) // max(1, calls)
    return KernelTime(
        name, kind, calls, statistics.median(seconds), flops * calls, moved * calls, device,
        sum(traced.event.instructions for traced in events), source, min(seconds),
        statistics.quantiles(seconds, n=10)[-1],
    )


def profile_lines(kernels: Sequence[KernelTime]) -> list[str]:
    """The table, with a column of devices if there are several, and one of instructions if a device counts them."""
    from motet.tools.show import show_names, show_table

    total = sum(kernel.seconds for kernel in kernels) or 1.0
    several = len({kernel.device for kernel in kernels}) > 1
    counted = any(kernel.instructions for kernel in kernels)
    named = any(kernel.source for kernel in kernels)
    header = [
        "kernel", *(["device"] if several else []), "class", "calls", "p50 µs", "p90 µs", "share", "GFLOP/s", "GB/s",
        *(["instructions"] if counted else []), *(["computes"] if named else []),
    ]
    rows = [
        [
            kernel.name, *([kernel.device] if several else []),
            kernel.kind or "-", str(kernel.calls),
            f"{kernel.seconds * 1e6:,.1f}", f"{kernel.p90 * 1e6:,.1f}", f"{kernel.seconds / total:.0%}",
            _rate(kernel.flops, kernel.seconds),
            _rate(kernel.bytes, kernel.seconds),
            *([f"{kernel.instructions:,}" if kernel.instructions else "-"] if counted else []),
            *([show_names(kernel.source)] if named else []),
        ]
        for kernel in kernels
    ]
    return show_table(header, rows, indent="  ")


def _rate(amount: int, seconds: float) -> str:
    return f"{amount / seconds / 1e9:,.1f}" if amount and seconds else "-"
