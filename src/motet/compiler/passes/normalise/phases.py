"""The phases of an axis along which a window slides over pixels among zeros.

    point o = step * q + r - crop of the result reads pixels q + shift, q + shift + dilation, … of a run of phases r
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class PhaseRun:
    """Neighbouring phases `r`, `count` of them from `first` on, that read equally many pixels (`taps`), at the same
    places: point `q` reads pixels `q + shift + dilation * t` with elements `element - (r - first) + stride * t` of the
    window. Points `[low, high)` are computed."""

    first: int
    count: int
    taps: int
    shift: int
    dilation: int
    element: int
    stride: int
    low: int = 0
    high: int = 0


@dataclass(frozen=True)
class ResultPhase:
    """Every `step`-th of the points of a result from `place` on, `count` of them: number `number` of the phases of its
    run, from point `begin` of the run on."""

    run: int
    number: int
    place: int
    begin: int
    count: int


@dataclass(frozen=True)
class PhasedAxis:
    """A spatial axis: its numbers in the image, the result and the filters, and its dimensions in the nest, `dim` of
    the result and `tap` of the window. Pixels are at `offset + step * i` among zeros, `pixels` of them; the elements of
    the window, of which there are `window`, are `dilation` apart; the result has `extent` points. If a call decides
    `pixels` and `extent`, an axis has `runs`, but no bounds."""

    image: int
    result: int
    filters: int
    dim: int
    tap: int
    step: int
    offset: int
    dilation: int
    window: int
    pixels: int
    extent: int

    @property
    def crop(self) -> int:
        """The number of points before the first: phases with more taps are then last, and all begin at one pixel."""
        return (self.step - 1 - self.offset) % self.step

    @property
    def runs(self) -> tuple[PhaseRun, ...]:
        """All phases, without bounds."""
        runs: list[PhaseRun] = []
        for r in range(self.step):
            phase = self._alone(r)
            if runs and self._continues(runs[-1], phase):
                runs[-1] = replace(runs[-1], count=runs[-1].count + 1)
            else:
                runs.append(phase)
        return tuple(runs)

    @property
    def whole(self) -> PhaseRun:
        """All phases as one run of a window that is not dilated, for a result of whole steps. Its elements exceed the
        window where a phase has fewer than others."""
        shift = -(self.offset // self.step)
        taps = (self.step + self.window - 2 - self.offset) // self.step - shift + 1
        return PhaseRun(0, self.step, taps, shift, 1, self.offset % self.step, self.step, 0, self.extent // self.step)

    def split(self) -> tuple[tuple[PhaseRun, ...], tuple[ResultPhase, ...]]:
        """The runs, and the phases of the result in order."""
        runs, phases = self.runs, []
        for place in range(min(self.step, self.extent)):
            carry, r = divmod(place + self.crop, self.step)
            number = next(n for n, run in enumerate(runs) if r < run.first + run.count)
            count = -(-(self.extent - place) // self.step)
            phases.append(ResultPhase(number, r - runs[number].first, place, carry, count))
        bounded = [self._bounded(run, [p for p in phases if p.run == number]) for number, run in enumerate(runs)]
        return tuple(bounded), tuple(replace(p, begin=p.begin - bounded[p.run].low) for p in phases)

    def padding(self, run: PhaseRun) -> tuple[int, int]:
        """How far the windows of a run exceed the image, before and after."""
        last = run.high - 1 + run.shift + (run.taps - 1) * run.dilation
        return max(0, -(run.low + run.shift)), max(0, last + 1 - self.pixels)

    def _alone(self, r: int) -> PhaseRun:
        common = math.gcd(self.step, self.dilation)
        at = r - self.crop - self.offset
        elements = [j for j in range(self.window) if (at + self.dilation * j) % self.step == 0]
        first = elements[0] if elements else 0
        return PhaseRun(r, 1, len(elements), (at + self.dilation * first) // self.step, self.dilation // common, first,
                   self.step // common)

    @staticmethod
    def _continues(last: PhaseRun, phase: PhaseRun) -> bool:
        if not last.taps or not phase.taps:
            return last.taps == phase.taps
        return (last.taps, last.shift, last.element - last.count) == (phase.taps, phase.shift, phase.element)

    def _bounded(self, run: PhaseRun, phases: list[ResultPhase]) -> PhaseRun:
        """`run` with the points that its phases need, and those that make the image exactly as long as read."""
        low = min((p.begin for p in phases), default=0)
        high = max((p.begin + p.count for p in phases), default=0)
        if not run.taps or high == low:
            return replace(run, low=low, high=high)
        low = min(low, -run.shift)
        reach = high + run.shift + (run.taps - 1) * run.dilation
        return replace(run, low=low, high=high + max(0, self.pixels - reach))
