"""Roofline plots: the rates of measured kernels over their arithmetic intensity, on logarithmic scales.

    GFLOP/s ↑      ________    the device's arithmetic
            |    /  ○
            |  /○    ○         the device's memory, at so many bytes for each operation
            └────────────→ FLOP/B

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from motet.tools.report.facts import FunctionFacts
from motet.tools.report.writing import colour, number, safe

_HEIGHT = 300
_LARGEST, _SMALLEST = 14.0, 4.0  # radii: of the kernel that takes longest, and of the shortest


@dataclass(frozen=True)
class _LogAxis:
    """A logarithmic scale from `low` to `high` with ticks at powers of ten."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """The position in percent."""
        return 100 * (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))

    def marks(self) -> Iterable[float]:
        for power in range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1):
            yield 10.0**power


def roofline_html(facts: FunctionFacts) -> str:
    """A plot for each device that ran kernels of known work; empty without a trace."""
    if facts.trace is None:
        return ""
    known = [device.is_measured for device in facts.program.devices]
    chosen: dict[int, list[int]] = {}
    for at, operation in enumerate(facts.program.operations):
        counted = operation.kind == "kernel" and operation.flops and operation.bytes
        if counted and known[operation.device] and facts.seconds(at) > 0:
            chosen.setdefault(operation.device, []).append(at)
    return "".join(_device(facts, device, numbers) for device, numbers in sorted(chosen.items()))


def _device(facts: FunctionFacts, device: int, numbers: Sequence[int]) -> str:
    bound, operations = facts.program.devices[device], facts.program.operations
    intensities = [operations[at].flops / operations[at].bytes for at in numbers]
    rates = [operations[at].flops / facts.seconds(at) for at in numbers]
    ridge = bound.peak / bound.rates.memory
    across = _LogAxis(min(*intensities, ridge) / 2, max(*intensities, ridge) * 3)
    up = _LogAxis(min(*rates, bound.peak / 10) / 2, bound.peak * 2)
    parts = [*_grid(across, up), _roof(bound.peak, bound.rates.memory, device, across, up)]
    longest = max(facts.seconds(at) for at in numbers)
    # Large circles first, so that none hides another.
    for at, intensity, rate in sorted(
        zip(numbers, intensities, rates, strict=True), key=lambda item: -facts.seconds(item[0])
    ):
        info = operations[at].info
        radius = _SMALLEST + (_LARGEST - _SMALLEST) * math.sqrt(facts.seconds(at) / longest)
        parts.append(
            f'<circle class="{colour("" if info is None else info.kind)}" data-o="{facts.key}o{at}" '
            f'cx="{number(across.place(intensity))}%" cy="{number(100 - up.place(rate))}%" r="{number(radius)}"/>'
        )
    return (
        f"<figure><figcaption><b>{safe(bound.title)}</b>: arithmetic per second over arithmetic per byte; larger "
        f'circles take longer; the line is what the device can do</figcaption><svg class="roofline" width="100%" '
        f'height="{_HEIGHT}" role="img" aria-label="roofline of {safe(bound.title)}">{"".join(parts)}</svg></figure>'
    )


def _roof(peak: float, memory: float, device: int, across: _LogAxis, up: _LogAxis) -> str:
    """The roof line, from 0 to 100 on both axes, with the data for the page to redraw it."""
    ridge = peak / memory
    ends = [(across.low, across.low * memory), (ridge, peak), (across.high, peak)]
    line = " ".join(f"{number(across.place(x))},{number(100 - up.place(y))}" for x, y in ends)
    scales = " ".join(f"{value!r}" for value in (across.low, across.high, up.low, up.high))
    return (
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="100%"><polyline class="roof" '
        f'data-device="{device}" data-scales="{scales}" points="{line}" vector-effect="non-scaling-stroke"/></svg>'
    )


def _grid(across: _LogAxis, up: _LogAxis) -> Iterable[str]:
    yield '<rect class="track" width="100%" height="100%"/>'
    for value in across.marks():
        x = number(across.place(value))
        yield f'<line class="grid" x1="{x}%" x2="{x}%" y1="0" y2="100%"/>'
        yield f'<text class="axis" x="{x}%" y="{_HEIGHT - 5}" dx="2">{value:g} FLOP/B</text>'
    for value in up.marks():
        y = number(100 - up.place(value))
        yield f'<line class="grid" x1="0" x2="100%" y1="{y}%" y2="{y}%"/>'
        yield f'<text class="axis" x="4" y="{y}%" dy="-3">{value / 1e9:g} GFLOP/s</text>'
