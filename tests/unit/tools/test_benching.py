"""The figures of `motet bench`: percentiles, intervals of ratios, overhead, and what tells of a disturbed machine."""

from __future__ import annotations

import numpy as np
import pytest

from motet.errors import CallError
from motet.measuring.disturbance import Watch
from motet.measuring.latency import Latency, Sample, latency_of
from motet.measuring.ratios import interval
from motet.runtime.device import Event
from motet.runtime.trace import CallEvents, Traced


def test_percentiles_are_those_of_single_calls_of_all_samples() -> None:
    random = np.random.default_rng(11)
    parts = [random.exponential(size=count) for count in (7, 100, 31)]
    found = latency_of([Sample(part.size, part) for part in parts], 1)
    whole = np.concatenate(parts)
    assert (found.calls, found.group) == (138, 1)
    assert found.p90 == np.percentile(whole, 90) and found.p99 == np.percentile(whole, 99)
    assert (found.min, found.max) == (whole.min(), whole.max())


def test_an_interval_has_the_median_of_its_distribution_as_often_as_it_says() -> None:
    random = np.random.default_rng(12)
    for count in (6, 7, 10, 25):
        inside = 0
        for _ in range(2000):
            low, high = interval(sorted(random.standard_cauchy(count)))
            assert low is not None and high is not None
            inside += low <= 0 <= high
        assert inside / 2000 > 0.94
    assert interval([1.0] * 5) == (None, None) == interval([])


def event(begin: float, end: float) -> Traced:
    return Traced("host", Event("k", "launch", 0, begin, end))


def test_overhead_is_the_time_of_a_call_in_which_nothing_runs() -> None:
    events = [event(1.0, 2.0), event(1.5, 3.0), event(4.0, 5.0)]
    assert CallEvents(events, [(0.5, 5.5)]).overhead == pytest.approx(2.0)  # 0.5 before, 1 between, 0.5 after
    assert CallEvents([], [(0.0, 1.0), (2.0, 2.5)]).overhead == pytest.approx(1.5)


def test_calls_and_samples_that_differ_are_told() -> None:
    steady = Latency(100, 1, 1.0, 1.0, 1.0, 1.1, 1.2, 1.3)
    assert not [line for line in Watch().reasons(steady, [1.0, 1.1]) if "median" in line or "samples" in line]
    uneven = Latency(100, 1, 1.0, 1.5, 1.0, 3.0, 9.0, 9.0)
    told = "; ".join(Watch().reasons(uneven, [1.0, 1.5]))
    assert "took 3.0 × the median" in told and "samples differ by a factor of 1.50" in told


def test_a_batch_replaces_one_extent_alone() -> None:
    from motet.artifact.schema import Signature, Symbol, TensorSpec
    from motet.tools.benching.inputs import random_inputs

    specs = [TensorSpec("x", ["n", 3], "f32"), TensorSpec("y", [["*", "n", 2]], "f32"), TensorSpec("z", ["m"], "f32")]
    symbols = [Symbol("n", 0, 0), Symbol("m", 2, 0)]
    whole = Signature("main", specs[:2], [], symbols[:1])
    assert [array.shape for array in random_inputs(whole, "f", 5)] == [(5, 3), (10,)]
    with pytest.raises(CallError, match=r"input 2 .* has dynamic extents, with other extents than those of --batch 5"):
        random_inputs(Signature("main", specs, [], symbols), "f", 5)
