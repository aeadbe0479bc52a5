"""Collectives as plans of transfers, computed by numpy; and their simulated times, by formulas of the literature."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from motet.artifact.schema import Plan, Step
from motet.ranks.collectives import (
    PlanWriter,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    permute,
    reduce_scatter,
)
from motet.ranks.division import divide
from motet.ranks.proof import prove
from motet.ranks.simulation import Network, SimulatedRun, lower_bound, simulate

COUNTS = (1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 40)
SIZE = 1200  # bytes of each value


def compute(writer: PlanWriter, inputs: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """All values of a plan; each value is on one device, and read there."""
    known, homes = dict(inputs), {}
    for step in writer.steps:
        given = [known[value] for value in step.operands]
        assert step.op == "transfer" or all(homes.get(v, step.device) == step.device for v in step.operands)
        made = given
        if step.region == "split":
            ends = np.cumsum([writer.sizes[value] for value in step.results])
            made = np.split(given[0], ends[:-1])
        elif step.region == "join":
            made = [np.concatenate(given)]
        elif step.region == "add":
            made = [given[0] + given[1]]
        for value, array in zip(step.results, made, strict=True):
            assert len(array) == writer.sizes[value]
            known[value], homes[value] = array, step.device
    return known


def collective(
    count: int, build: Callable[[PlanWriter, list[int], range], Sequence[int | None]], size: int = SIZE
) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """The values before and after a collective."""
    writer = PlanWriter(1e9)
    values = [writer.argument(size) for _ in range(count)]
    random = np.random.default_rng(count)
    before = [random.integers(-99, 99, size) for _ in values]
    after = build(writer, values, range(count))
    known = compute(writer, dict(zip(values, before, strict=True)))
    return before, [None if value is None else known[value] for value in after]


@pytest.mark.parametrize("count", COUNTS)
def test_all_reduce_sums_on_each_device(count: int) -> None:
    before, after = collective(count, all_reduce)
    assert len(after) == count
    assert all(np.array_equal(array, np.sum(before, 0)) for array in after)


@pytest.mark.parametrize("count", COUNTS)
def test_reduce_scatter_leaves_each_device_its_part_of_the_sum(count: int) -> None:
    before, after = collective(count, reduce_scatter)
    ends = [SIZE * number // count for number in range(count + 1)]
    for number, array in enumerate(after):
        np.testing.assert_array_equal(array, np.sum(before, 0)[ends[number] : ends[number + 1]])


@pytest.mark.parametrize("count", COUNTS)
def test_all_gather_and_broadcast(count: int) -> None:
    before, after = collective(count, all_gather)
    assert all(np.array_equal(array, np.concatenate(before)) for array in after)
    before, after = collective(count, lambda writer, values, devices: broadcast(writer, values[0], devices))
    assert len(after) == count
    assert all(np.array_equal(array, before[0]) for array in after)


@pytest.mark.parametrize("count", COUNTS)
def test_all_to_all_transposes_parts(count: int) -> None:
    before, after = collective(count, all_to_all)
    ends = [SIZE * number // count for number in range(count + 1)]
    for number, array in enumerate(after):
        expected = np.concatenate([each[ends[number] : ends[number + 1]] for each in before])
        np.testing.assert_array_equal(array, expected)


def test_permute_moves_pairs() -> None:
    pairs = [(0, 2), (2, 0), (3, 3)]
    before, after = collective(4, lambda writer, values, devices: permute(writer, values, devices, pairs))
    assert after[1] is None
    for source, target in pairs:
        np.testing.assert_array_equal(after[target], before[source])


# -- simulated -------------------------------------------------------------------------------------


def simulated(writer: PlanWriter, results: Sequence[int], network: Network, **noise: float) -> SimulatedRun:
    plans = parts_of(writer.plan(results), network.devices)
    run = simulate(plans, dict(enumerate(writer.sizes)), network, **noise)  # type: ignore[arg-type]
    assert run.makespan >= lower_bound(plans, dict(enumerate(writer.sizes)), network, run) * (1 - 1e-12) or noise
    return run


def parts_of(plan: Plan, devices: int) -> list[Plan]:
    numbers = [0] * devices
    plans = [part.plan for part in divide(plan, list(range(devices)), numbers, numbers, [0], "f")]
    prove(plans, lambda rank, device: False, "f")
    return plans


def local_values(writer: PlanWriter, devices: int, size: int) -> list[int]:
    """A value on each device that takes no time."""
    return [writer.run("make", device, [], [size], 0.0)[0] for device in range(devices)]


@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_ring_takes_what_the_literature_says(count: int) -> None:
    size, network = count * 10_000_000, Network(count, 8)
    writer = PlanWriter(float("inf"))
    after = all_reduce(writer, local_values(writer, count, size), range(count))
    expected = 2 * (count - 1) * (network.near_latency + size / count / network.near)
    assert simulated(writer, after[:1], network).makespan == pytest.approx(expected, rel=1e-9)


def test_halving_and_doubling_takes_what_the_literature_says() -> None:
    count, size = 32, 32 * 1_000_000
    network = Network(count, count)
    writer = PlanWriter(float("inf"))
    after = all_reduce(writer, local_values(writer, count, size), range(count))
    expected = 2 * (5 * network.near_latency + (1 - 1 / count) * size / network.near)
    assert simulated(writer, after[:1], network).makespan == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_messages_that_share_an_uplink_wait_for_one_another(count: int) -> None:
    network, size = Network(16, 8), 50_000_000
    writer = PlanWriter(1e9)
    moved = [writer.move(value, 8 + n) for n, value in enumerate(local_values(writer, count, size))]
    kept = [writer.run("use", 8 + n, [value], [0], 0.0)[0] for n, value in enumerate(moved)]
    run = simulated(writer, kept[:0], network)
    assert run.makespan == pytest.approx(count * size / network.far + network.far_latency, rel=1e-9)
    assert run.busiest_link == pytest.approx(count * size / network.far)
    assert (run.messages, run.moved) == (count, count * size)


def test_memory_is_that_of_values_with_readers_left() -> None:
    writer = PlanWriter(1e9)
    value = writer.run("a", 0, [], [100], 1.0)[0]
    for _ in range(5):
        value = writer.run("a", 0, [value], [100], 1.0)[0]
    run = simulated(writer, [value], Network(1))
    assert (run.memory, run.makespan) == (200, 6.0)


def test_a_device_runs_one_step_at_a_time_in_order() -> None:
    writer = PlanWriter(1e9)
    late = writer.run("late", 1, [], [8], 5.0)[0]
    moved = writer.move(late, 0)
    writer.run("first", 0, [moved], [8], 1.0)
    writer.run("second", 0, [], [8], 3.0)
    run = simulated(writer, [], Network(2, near=8.0, near_latency=1.0))
    assert run.makespan == pytest.approx(5 + 1 + 1 + 1 + 3)  # the second step waits behind the first


def test_noise_is_decided_by_the_seed_alone() -> None:
    def run(seed: int) -> float:
        writer = PlanWriter(1e12)
        values = [writer.run("work", n, [], [1 << 20], 1e-3)[0] for n in range(24)]
        return simulated(writer, all_reduce(writer, values, range(24))[:1], Network(24), noise=0.2, seed=seed).makespan

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_steps_that_wait_for_one_another_are_an_error_and_no_hang() -> None:
    plans = [
        Plan(9, [], [], [], [], [Step("receive", 0, [], [1], peer=1), Step("send", 0, [1], [], peer=1)]),
        Plan(9, [], [], [], [], [Step("receive", 0, [], [1], peer=0), Step("send", 0, [1], [], peer=0)]),
    ]
    with pytest.raises(ValueError, match="wait for steps that wait for them"):
        simulate(plans, {1: 8}, Network(2))


def test_a_thousand_devices() -> None:
    writer = PlanWriter(1e12)
    after = all_reduce(writer, local_values(writer, 1000, 1_000_000), range(1000))
    assert simulated(writer, after[:1], Network(1000)).messages == 2 * 488 + 2 * 9 * 512
