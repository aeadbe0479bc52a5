"""Dividing plans among ranks, and the proof that all parts end."""

from __future__ import annotations

import re

import numpy as np
import pytest
from msgspec.structs import replace

from motet.artifact.schema import Loop, Plan, Step
from motet.errors import ArtifactError, CallError
from motet.ranks.division import RankPart, divide
from motet.ranks.proof import prove


def plan_of(steps: list[Step], inputs: int, results: list[int]) -> Plan:
    values = 1 + max([*(v for s in steps for v in s.results), inputs - 1])
    return Plan(values, list(range(inputs)), results, [0] * inputs, [0] * len(results), steps)


def split(plan: Plan, ranks: list[int], takers: list[int] | None = None) -> list[RankPart]:
    """The parts for one device on each rank of `ranks`."""
    size = max(ranks) + 1
    return divide(plan, ranks, [0] * len(ranks), [0] * size, takers or [0], "f")


def always(rank: int, device: int) -> bool:
    return True


def evaluate(parts: list[RankPart], takers: list[int], inputs: list[object]) -> dict[int, list[object]]:
    """What the ranks compute, where a step's results are terms of its operands: an interpreter of its own, which runs
    any rank that is not waiting."""
    places, messages = [0] * len(parts), {}
    known: list[dict[int, object]] = [{} for _ in parts]
    known[0].update(zip(parts[0].plan.inputs, inputs, strict=True))
    moved = True
    while moved:
        moved = False
        for rank, part in enumerate(parts):
            while places[rank] < len(part.plan.steps):
                step = part.plan.steps[places[rank]]
                if step.op == "receive" and (step.peer, rank, step.tag) not in messages:
                    break
                if step.op == "receive":
                    known[rank][step.results[0]] = messages.pop((step.peer, rank, step.tag))
                elif step.op == "send":
                    messages[rank, step.peer, step.tag] = known[rank][step.operands[0]]
                elif step.op == "transfer":
                    known[rank][step.results[0]] = known[rank][step.operands[0]]
                else:
                    term = (step.region, *(known[rank][v] for v in step.operands))
                    known[rank].update({value: (*term, n) for n, value in enumerate(step.results)})
                places[rank] += 1
                moved = True
    assert all(place == len(part.plan.steps) for place, part in zip(places, parts, strict=True))
    assert not messages
    return {rank: [known[rank][value] for value in parts[rank].plan.results] for rank in takers}


def random_plan(random: np.random.Generator, devices: int) -> Plan:
    steps: list[Step] = []
    values = 2
    for number in range(int(random.integers(1, 25))):
        device = int(random.integers(devices))
        if random.random() < 0.3:
            steps.append(Step("transfer", device, [int(random.integers(values))], [values]))
            values += 1
            continue
        operands = [int(v) for v in random.integers(values, size=int(random.integers(0, 4)))]
        made = int(random.integers(1, 3))
        steps.append(Step("run", device, operands, list(range(values, values + made)), f"r{number}"))
        values += made
    return plan_of(steps, 2, [int(v) for v in random.integers(values, size=3)])


@pytest.mark.parametrize("seed", range(60))
def test_ranks_together_compute_what_the_plan_does(seed: int) -> None:
    random = np.random.default_rng(seed)
    devices = int(random.integers(1, 7))
    plan = random_plan(random, devices)
    ranks = [int(r) for r in random.integers(0, 4, devices)]
    ranks[0] = 3  # so that there are four
    takers = [[0], [0, 1, 2, 3]][seed % 2]
    parts = divide(plan, ranks, [0] * devices, [0] * 4, takers, "f")
    alone = divide(plan, [0] * devices, [0] * devices, [0], [0], "f")
    expected = evaluate(alone, [0], ["x", "y"])[0]
    assert evaluate(parts, takers, ["x", "y"]) == dict.fromkeys(takers, expected), seed
    messages = sum(len(part.sends) for part in parts)
    assert prove([part.plan for part in parts], always, "f").messages == messages


def test_a_value_is_sent_once_to_each_rank() -> None:
    steps = [Step("run", 0, [0], [1], "a"), Step("run", 1, [1], [2], "b"), Step("run", 1, [1, 2], [3], "c"),
             Step("transfer", 1, [1], [4]), Step("run", 1, [4, 3], [5], "d")]
    parts = split(plan_of(steps, 1, [5]), [0, 1])
    assert [part.sends for part in parts] == [[(1, 0)], [(0, 0)]]


def test_a_value_that_was_moved_away_is_read_in_place_where_it_was_computed() -> None:
    steps = [Step("run", 0, [0], [1], "a"), Step("transfer", 1, [1], [2]), Step("run", 0, [2], [3], "b")]
    parts = split(plan_of(steps, 1, [3]), [0, 1])
    assert [step.op for step in parts[0].plan.steps] == ["run", "send", "run"]


def test_loops_stay_on_one_rank_or_are_refused() -> None:
    inner = plan_of([Step("run", 1, [0], [1], "c")], 1, [1])
    loop = Step("loop", 1, [0], [1], "main_loop", loop=Loop(1, inner, inner))
    parts = split(plan_of([loop], 1, [1]), [0, 1])
    assert [step.op for step in parts[1].plan.steps] == ["receive", "loop", "send"]
    other = plan_of([Step("run", 0, [0], [1], "c")], 1, [1])
    apart = Step("loop", 1, [0], [1], "main_loop", loop=Loop(1, inner, other))
    with pytest.raises(CallError, match="'main_loop' runs on devices of ranks 0, 1"):
        split(plan_of([apart], 1, [1]), [0, 1])


# -- the proof -------------------------------------------------------------------------------------


def send(peer: int, tag: int, value: int) -> Step:
    return Step("send", 0, [value], [], peer=peer, tag=tag)


def receive(peer: int, tag: int, value: int) -> Step:
    return Step("receive", 0, [], [value], peer=peer, tag=tag)


def part_of(*steps: Step) -> Plan:
    return Plan(99, [0], [], [0], [], list(steps))


RUN = Step("run", 0, [1], [2], "work")


@pytest.mark.parametrize(("plans", "message"), [
    ([part_of(send(1, 0, 0)), part_of()], "rank 0, step 0, sends message 0 to rank 1, which does not receive it"),
    ([part_of(), part_of(receive(0, 4, 1))], "rank 1, step 0, receives message 4 of rank 0, which does not send it"),
    ([part_of(send(1, 0, 0), send(1, 0, 0)), part_of(receive(0, 0, 1))], "message 0 is also that of step 0"),
    ([part_of(send(0, 0, 0))], "with rank 0; expected another of 1 ranks"),
    ([part_of(send(1, 0, 0), send(1, 1, 0)), part_of(receive(0, 1, 1), receive(0, 0, 2))],
     "rank 0 sends message 0 to rank 1 where that receives 1"),
    ([part_of(receive(1, 0, 1), RUN, send(1, 1, 2)), part_of(receive(0, 1, 1), RUN, send(0, 0, 2))],
     "steps wait for one another"),
    # Not by data: what rank 1 needs is ready, but submitted behind work that waits.
    ([part_of(receive(1, 0, 1), RUN, send(1, 1, 0)), part_of(receive(0, 1, 1), RUN, send(0, 0, 2))],
     "steps wait for one another"),
])
def test_what_may_never_end_is_refused(plans: list[Plan], message: str) -> None:
    with pytest.raises(ArtifactError, match=re.escape(message)):
        prove(plans, always, "f")


def test_work_that_does_not_block_its_rank_holds_up_no_other() -> None:
    plans = [part_of(receive(1, 0, 1), RUN, send(1, 1, 0)), part_of(receive(0, 1, 1), RUN, send(0, 0, 2))]
    assert prove(plans, lambda rank, device: False, "f").messages == 2


@pytest.mark.parametrize("seed", range(20))
def test_the_proof_fails_without_any_one_of_the_messages(seed: int) -> None:
    random = np.random.default_rng(seed)
    parts = split(random_plan(random, 4), [3, 1, 2, 0], [0, 1, 2, 3])
    for rank, part in enumerate(parts):
        for place, step in enumerate(part.plan.steps):
            if step.op in ("send", "receive"):
                cut = [*part.plan.steps[:place], *part.plan.steps[place + 1 :]]
                plans = [replace(each.plan, steps=cut) if n == rank else each.plan for n, each in enumerate(parts)]
                with pytest.raises(ArtifactError):
                    prove(plans, always, "f")
