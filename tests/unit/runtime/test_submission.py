"""The order in which steps are submitted: what others can begin with first, and no device's own order changed."""

from __future__ import annotations

import random

import pytest

from motet.artifact.schema import Step
from motet.runtime.submission import submission_order

HOST, GPU, NPU = 0, 1, 2


def order(steps: list[Step]) -> list[int]:
    return submission_order(steps, lambda device: device == HOST, lambda device: device)


def run(device: int, operands: list[int], results: list[int]) -> Step:
    return Step("run", device, operands, results, "r")


def transfer(device: int, operand: int, result: int) -> Step:
    return Step("transfer", device, [operand], [result])


def test_what_another_device_can_begin_with_comes_before_the_hosts_own_work() -> None:
    steps = [
        run(HOST, [0], [1]), run(HOST, [1], [2]), transfer(GPU, 1, 3), run(GPU, [3], [4]), transfer(HOST, 4, 5),
        run(HOST, [2, 5], [6]),
    ]
    assert order(steps) == [0, 2, 3, 4, 1, 5]


def test_work_on_the_host_alone_keeps_its_order() -> None:
    steps = [run(HOST, [0], [1]), run(HOST, [0], [2]), run(HOST, [1, 2], [3])]
    assert order(steps) == [0, 1, 2]


def test_a_device_does_its_work_in_the_order_of_the_plan() -> None:
    # The second step of the device could be submitted at once, but the plan has the other one first.
    steps = [run(HOST, [0], [1]), transfer(GPU, 1, 2), run(GPU, [2], [3]), run(GPU, [0], [4])]
    assert order(steps) == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(30))
def test_every_step_comes_once_and_after_what_it_reads(seed: int) -> None:
    rng = random.Random(seed)
    steps: list[Step] = []
    for number in range(rng.randrange(1, 40)):
        device = rng.choice([HOST, GPU, NPU])
        operands = rng.sample(range(number + 1), min(number + 1, rng.randrange(1, 4)))
        steps.append(
            run(device, operands, [number + 1]) if rng.random() < 0.6 else transfer(device, operands[0], number + 1)
        )
    found = order(steps)
    assert sorted(found) == list(range(len(steps)))
    there = {0}
    for number in found:
        assert set(steps[number].operands) <= there
        there |= set(steps[number].results)
    for device in (HOST, GPU, NPU):
        own = [number for number in found if steps[number].op == "run" and steps[number].device == device]
        assert own == sorted(own)
