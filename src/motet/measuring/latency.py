"""The time of calls, one after the other: percentiles of single calls, and means of samples of several calls."""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from motet.runtime.session import Session
    from motet.specs import Array

Call = Callable[[], object]

_LEAST_TIMED = 2e-6  # seconds: reading the clock takes some 40 ns, 2 % of this
_MOST_STAMPS = 1 << 20
_MOST_FIRST = 1 << 12  # calls by which the time of one is estimated


@dataclass(frozen=True)
class Latency:
    """The distribution of `calls` calls in seconds. Calls that are too short to be timed one by one are timed in groups
    of `group`: each figure is then that of a group's mean."""

    calls: int
    group: int
    min: float
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Sample:
    """`number` calls: the seconds of each, or the mean of each group."""

    number: int
    seconds: np.ndarray[tuple[int], np.dtype[np.float64]]

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))


def latency_of(samples: Sequence[Sample], group: int) -> Latency:
    """The distribution of the calls of all samples."""
    seconds = np.concatenate([sample.seconds for sample in samples])
    p50, p90, p99 = (float(value) for value in np.percentile(seconds, (50, 90, 99)))
    return Latency(
        sum(sample.number for sample in samples), group, float(seconds.min()), float(seconds.mean()), p50, p90, p99,
        float(seconds.max()),
    )


@dataclass
class Caller:
    """Calls of one function with the same arguments, one after the other; `prepare` makes the session and its state
    ready for the first call."""

    session: Session
    name: str
    arrays: Sequence[Array]
    group: int = 1
    number: int = 1

    def prepare(self, number: int | None, seconds: float) -> None:
        """Makes the first calls, and chooses the calls of a sample: `number`, or those that take some `seconds`."""
        for _ in range(2):
            self.begin_anew()
            self._call()
        taken = self._calibrate(seconds)
        self.group = max(1, int(np.ceil(_LEAST_TIMED / taken))) if taken < _LEAST_TIMED else 1
        self.number = number or max(1, round(seconds / taken))
        self.group = min(self.group, self.number)

    def sample(self) -> Sample:
        """One sample; state begins anew."""
        self.begin_anew()
        function, arrays, group = self.session[self.name], self.arrays, self.group
        count = min(max(1, self.number // group), _MOST_STAMPS)
        last = group + self.number % group  # the calls of the last group
        stamps, clock = array("d", bytes(8 * (count + 1))), time.perf_counter
        stamps[0] = clock()
        if group == 1:
            for index in range(1, count + 1):
                function(*arrays)
                stamps[index] = clock()
        else:
            for index in range(1, count + 1):
                for _ in range(group if index < count else last):
                    function(*arrays)
                stamps[index] = clock()
        sizes = np.full(count, group)
        sizes[-1] = last
        return Sample((count - 1) * group + last, np.diff(np.asarray(stamps)) / sizes)

    def begin_anew(self) -> None:
        """Resets state to its initial values: a state such as the position in a cache may limit the number of calls."""
        self.session.state.reset()
        self.session.state.current()

    def _call(self) -> None:
        self.session[self.name](*self.arrays)

    def _calibrate(self, seconds: float) -> float:
        """The seconds of a call: the median of calls for a quarter of `seconds`, which other work changes least."""
        taken: list[float] = []
        begin = time.perf_counter()
        while not taken or (time.perf_counter() - begin < seconds / 4 and len(taken) < _MOST_FIRST):
            self.begin_anew()
            start = time.perf_counter()
            self._call()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken)
