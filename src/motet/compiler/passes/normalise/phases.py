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
    """A spatial axis: its dimensions `dim` in the nest of the result and `tap` of the window, its number in the result
    and in the image. Pixels are at `offset + step * i` among zeros, `pixels` of them; the elements of the window, of
    which there are `window`, are `dilation` apart; the result has `extent` points."""

    dim: int
    tap: int
    result: int
    image: int
    step: int
    offset: int
    pixels: int
    dilation: int
    window: int
    extent: int

    @property
    def crop(self) -> int:
        """The number of points before the first: phases with more taps are then last, and all begin at one pixel."""
        return (self.step - 1 - self.offset) % self.step

    def split(self) -> tuple[tuple[PhaseRun, ...], tuple[ResultPhase, ...]]:
        """The runs, and the phases of the result in order."""
        runs: list[PhaseRun] = []
        where: dict[int, tuple[int, int]] = {}
        for r in range(self.step):
            found = self._alone(r)
            last = runs[-1] if runs else None
            if last is not None and self._continues(last, found):
                runs[-1] = replace(last, count=last.count + 1)
            else:
                runs.append(found)
            where[r] = len(runs) - 1, runs[-1].count - 1
        phases: list[ResultPhase] = []
        for place in range(min(self.step, self.extent)):
            carry, r = divmod(place + self.crop, self.step)
            phases.append(ResultPhase(*where[r], place, carry, -(-(self.extent - place) // self.step)))
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
    def _continues(last: PhaseRun, found: PhaseRun) -> bool:
        if not last.taps or not found.taps:
            return last.taps == found.taps
        return (last.taps, last.shift, last.element - last.count) == (found.taps, found.shift, found.element)

    def _bounded(self, run: PhaseRun, phases: list[ResultPhase]) -> PhaseRun:
        """`run` with the points that its phases need, and those that make the image exactly as long as read."""
        low = min((p.begin for p in phases), default=0)
        high = max((p.begin + p.count for p in phases), default=0)
        if not run.taps or high == low:
            return replace(run, low=low, high=high)
        low = min(low, -run.shift)
        reach = high + run.shift + (run.taps - 1) * run.dilation
        return replace(run, low=low, high=high + max(0, self.pixels - reach))
