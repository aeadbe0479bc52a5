"""The time of each kernel of a function on its device: the table of `motet bench --profile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.artifact.kernels import KernelTable
    from motet.artifact.schema import Variant
    from motet.runtime.function import Function
    from motet.runtime.trace import Traced
    from motet.tools.specs import Array

_RUNS = 5


@dataclass(frozen=True)
class KernelTime:
    """A kernel in the profile: its `calls` in one call of the function, and their total seconds and work. Transfers
    between devices are included by kind (`write`, `read`). `instructions` is 0 if the device does not count them."""

    name: str
    kind: str
    calls: int
    seconds: float
    flops: int
    bytes: int
    device: str = ""
    instructions: int = 0


def profile_kernels(
    function: Function, arrays: Sequence[Array], variants: Sequence[Variant], begin_anew: Callable[[], None]
) -> list[KernelTime]:
    """The fastest time of every command over some runs, summed by kernel, the longest first. `begin_anew` prepares each
    run."""
    from motet.artifact.kernels import KernelTable
    from motet.runtime.trace import fair_seconds

    runs: list[list[Traced]] = []
    for _ in range(_RUNS):
        begin_anew()
        runs.append(function.trace(*arrays)[1])
    # Concurrent devices may record events in another order in each run.
    ordered = [sorted(run, key=lambda traced: (traced.device, traced.event.queue, traced.event.name)) for run in runs]
    seconds = [fair_seconds(run) for run in ordered]
    found: dict[tuple[str, str], list[tuple[Traced, float]]] = {}
    known = KernelTable(variants)
    for number, first in enumerate(ordered[0]):
        info = known.find(first.event.name)
        fastest = min(run[number] for run in seconds)
        name = first.event.name if info is None else info.name
        found.setdefault((first.device, name), []).append((first, fastest))
    times = [_time(device, name, known, events) for (device, name), events in found.items()]
    return sorted(times, key=lambda kernel: -kernel.seconds)


def _time(device: str, name: str, known: KernelTable, events: Sequence[tuple[Traced, float]]) -> KernelTime:
    info = known.find(name)
    symbols = {traced.event.name for traced, _ in events}
    # Each phase of a kernel is a command; the work of the kernel is counted once for all of them.
    calls = len(events) // len(symbols)
    kind, flops, moved = ("", 0, 0) if info is None else (info.kind, info.flops, info.bytes)
    if info is None:
        kind, moved = events[0][0].event.kind, sum(traced.event.bytes for traced, _ in events) // max(1, calls)
    return KernelTime(
        name, kind, calls, sum(seconds for _, seconds in events), flops * calls, moved * calls, device,
        sum(traced.event.instructions for traced, _ in events),
    )


def profile_lines(kernels: Sequence[KernelTime]) -> list[str]:
    """The table, with a column of devices if there are several, and one of instructions if a device counts them."""
    from motet.tools.show import show_table

    total = sum(kernel.seconds for kernel in kernels) or 1.0
    several = len({kernel.device for kernel in kernels}) > 1
    counted = any(kernel.instructions for kernel in kernels)
    header = ["kernel", *(["device"] if several else []), "class", "calls", "µs", "share", "GFLOP/s", "GB/s"]
    rows = [
        [
            kernel.name, *([kernel.device] if several else []), kernel.kind or "-", str(kernel.calls),
            f"{kernel.seconds * 1e6:,.1f}", f"{kernel.seconds / total:.0%}", _rate(kernel.flops, kernel.seconds),
            _rate(kernel.bytes, kernel.seconds),
            *([f"{kernel.instructions:,}" if kernel.instructions else "-"] if counted else []),
        ]
        for kernel in kernels
    ]
    return show_table([*header, *(["instructions"] if counted else [])], rows, indent="  ")


def _rate(amount: int, seconds: float) -> str:
    return f"{amount / seconds / 1e9:,.1f}" if amount and seconds else "-"
