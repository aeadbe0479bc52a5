"""The lifetimes of values in random plans, against what the steps say."""

from __future__ import annotations

import random

import pytest

from motet.artifact.schema import Plan, Step
from motet.runtime.lifetimes import lifetimes


def drawn(rng: random.Random) -> Plan:
    """Steps that read any earlier values, on three devices, some of which move a value to another device."""
    values, steps = rng.randrange(1, 4), list[Step]()
    inputs = list(range(values))
    for _ in range(rng.randrange(1, 9)):
        moves = rng.random() < 0.4
        operands = rng.sample(range(values), 1 if moves else rng.randrange(1, min(values, 3) + 1))
        made = [values + k for k in range(1 if moves else rng.randrange(1, 3))]
        steps.append(Step("transfer" if moves else "run", rng.randrange(3), operands, made))
        values += len(made)
    results = rng.sample(range(values), rng.randrange(1, 3))
    return Plan(values, inputs, results, [0] * len(inputs), [0] * len(results), steps)


@pytest.mark.parametrize("seed", range(3))
def test_memory_is_needed_until_the_last_step_that_uses_it(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        plan = drawn(rng)
        same = list(range(plan.values))  # the first value that is the same tensor
        for step in plan.steps:
            if step.op == "transfer":
                same[step.results[0]] = same[step.operands[0]]
        uses = [(step.device, {same[value] for value in (*step.operands, *step.results)}) for step in plan.steps]
        kept = {same[value] for value in plan.results}
        found = lifetimes(plan, range(len(plan.steps)), lambda device: device)
        for place, (_, names) in enumerate(uses):
            for name in names:
                for device in range(3):
                    later = [on for on, used in uses[place + 1 :] if name in used]
                    for elsewhere in (False, True):
                        over = name not in kept and device not in later and (elsewhere or not later)
                        assert found.is_over(name, device, place, elsewhere) == over
