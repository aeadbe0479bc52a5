"""Other work on the machine during a measurement, as far as the system tells."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from motet.measuring.latency import Latency

_OTHERS = 0.10  # of the processors' time, from which on other work is told
_STOPS = 50.0  # involuntary switches per second
_LEAST = 0.2  # seconds of a measurement below which the system's counters say nothing: they count hundredths
_SPREAD, _DRIFT = 1.5, 1.25  # of the 90th percentile relative to the median, and of the slowest sample to the fastest


@dataclass(frozen=True)
class _SystemCounters:
    """Seconds of the processors that this process may use: busy, of those stolen by other virtual machines, and of this
    process; stops of its threads for others, and by its quota."""

    moment: float
    busy: float
    stolen: float
    own: float
    stops: int
    throttled: int


class Watch:
    """Other work from the construction of the object until `reasons` is called."""

    def __init__(self) -> None:
        self._begin = _read()

    def reasons(self, latency: Latency | None = None, medians: Sequence[float] = ()) -> list[str]:
        """Why the figures are not those of an undisturbed machine; empty if nothing speaks against them. `latency` are
        the measured times, `medians` those of the samples."""
        begin, end = self._begin, _read()
        elapsed, processors = end.moment - begin.moment, len(_processors())
        found: list[str] = []
        if elapsed >= _LEAST:
            others = (end.busy - begin.busy - (end.own - begin.own)) / (elapsed * processors)
            if others > _OTHERS:
                found.append(f"other work used {min(others, 1.0):.0%} of the processors")
            if (stolen := (end.stolen - begin.stolen) / (elapsed * processors)) > _OTHERS / 5:
                found.append(f"other virtual machines took {stolen:.0%} of the processors")
            if (stops := end.stops - begin.stops) > _STOPS * elapsed:
                found.append(f"threads were stopped {stops} times for other work")
        if end.throttled > begin.throttled:
            found.append(f"the process was stopped {end.throttled - begin.throttled} times by its CPU quota")
        if latency is not None and latency.p90 > _SPREAD * latency.p50:
            found.append(f"one call in ten took {latency.p90 / latency.p50:.1f} × the median or longer")
        if len(medians) > 1 and max(medians) > _DRIFT * min(medians):
            found.append(f"samples differ by a factor of {max(medians) / min(medians):.2f}")
        return found


def warning_of(reasons: Sequence[str]) -> str:
    """The line to print for `reasons`."""
    return (f"warning: the machine was disturbed: {'; '.join(reasons)}; measure again when it is idle, or compare "
            "minima")


def _processors() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _read() -> _SystemCounters:
    busy, stolen = _busy()
    return _SystemCounters(time.perf_counter(), busy, stolen, time.process_time(), _stops(), _throttled())


def _busy() -> tuple[float, float]:
    """The seconds of processors at work since the start of the machine, and those stolen; 0 where the system does not
    tell."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        tick = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0, 0.0
    names = {f"cpu{number}" for number in _processors()}
    busy = stolen = 0
    for line in lines:
        name, *words = line.split()
        if name in names and len(words) >= 8:
            user, nice, system, _, _, irq, soft, steal = (int(word) for word in words[:8])
            busy += user + nice + system + irq + soft + steal
            stolen += steal
    return busy / tick, stolen / tick


def _stops() -> int:
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _throttled() -> int:
    """How often the quota of the control group stopped this process."""
    for path in ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"):
        try:
            text = Path(path).read_text()
        except OSError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == "nr_throttled":
                return int(value)
    return 0
