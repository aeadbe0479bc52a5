"""The charts of a kernel's trials, as data: distribution, best over trials, parallel coordinates, roofline."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from motet.errors import MotetError
from motet.lab.display.trials import TrialGroup

_BINS = 24
_AXES = 10  # of parallel coordinates: the parameters with the most values
_LINES = 400


@dataclass(frozen=True)
class Chart:
    """Series of points: `bars`, `line`, `points`, or `parallel`, whose axes are `axes` (name and values) and whose
    series have one position for each axis, and a share of the best. `logarithmic` says which axes are: x, y."""

    title: str
    kind: str
    x: str
    y: str
    series: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    axes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    logarithmic: str = ""


@dataclass(frozen=True)
class ChartGroup:
    title: str
    summary: str
    charts: tuple[Chart, ...]


def charts_of(group: TrialGroup) -> ChartGroup:
    """All charts of a kernel."""
    seconds = [trial.seconds for trial in group.trials]
    best = min(seconds)
    times = f"best {best * 1e6:,.4g} µs, first {seconds[0] * 1e6:,.4g} µs"
    summary = f"{len(seconds)} trials, {group.failed} failed; {times}"
    charts = [_distribution(seconds), _best(seconds)]
    if (parallel := _parallel(group)) is not None:
        charts.append(parallel)
    if (roofline := _roofline(group)) is not None:
        charts.append(roofline)
    return ChartGroup(group.title, summary, tuple(charts))


def _distribution(seconds: list[float]) -> Chart:
    low, high = math.log10(min(seconds)), math.log10(max(seconds))
    step = max((high - low) / _BINS, 1e-6)
    counts = [0] * _BINS
    for each in seconds:
        counts[min(_BINS - 1, int((math.log10(each) - low) / step))] += 1
    bars = tuple((10 ** (low + (i + 0.5) * step) * 1e6, float(count)) for i, count in enumerate(counts))
    return Chart("Distribution of times", "bars", "µs", "trials", (("trials", bars),), logarithmic="x")


def _best(seconds: list[float]) -> Chart:
    best = tuple(enumerate((each * 1e6 for each in itertools.accumulate(seconds, min)), 1))
    each = tuple((float(i), value * 1e6) for i, value in enumerate(seconds, 1))
    return Chart("Best over trials", "line", "trial", "µs",
                 (("best", tuple((float(i), value) for i, value in best)), ("trials", each)), logarithmic="y")


def _parallel(group: TrialGroup) -> Chart | None:
    """None if no parameter has several values."""
    names = dict.fromkeys(name for trial in group.trials for name in trial.parameters)
    values = {name: sorted({trial.parameters.get(name, "–") for trial in group.trials}, key=_number) for name in names}
    several = sorted((name for name in names if len(values[name]) > 1), key=lambda name: -len(values[name]))[:_AXES]
    if not several:
        return None
    best = min(trial.seconds for trial in group.trials)
    kept = sorted(group.trials, key=lambda trial: trial.seconds)[:_LINES]
    series = tuple(
        (f"{best / trial.seconds:.4f}", tuple(
            (float(axis), _place(values[name], trial.parameters.get(name, "–"))) for axis, name in enumerate(several)
        )) for trial in reversed(kept)
    )
    axes = tuple((name, tuple(values[name])) for name in several)
    return Chart("Parameters, the fastest schedules darkest", "parallel", "", "", series, axes)


def _number(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


def _place(values: list[str], value: str) -> float:
    return values.index(value) / (len(values) - 1)


def _roofline(group: TrialGroup) -> Chart | None:
    """None if the work is not known, or the limits of this machine cannot be measured."""
    if not group.flops or not group.bytes:
        return None
    from motet.lab.limits import limits_of
    from motet.runtime.device import find_device

    try:
        info = find_device("host")
        limits = limits_of(info, info.threads)
    except MotetError:
        return None
    intensity = group.flops / group.bytes
    span = [intensity * 2.0**i for i in range(-8, 9)]
    roof = tuple((x, min(limits.flops, x * limits.bandwidth) / 1e9) for x in span)
    points = tuple((intensity, group.flops / trial.seconds / 1e9) for trial in group.trials)
    return Chart("Roofline of this machine", "points", "operations per byte", "GFLOP/s",
                 (("limit", roof), ("trials", points)), logarithmic="xy")
