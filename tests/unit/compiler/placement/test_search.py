"""The search for good schedules: exact where it says so, near enough elsewhere, never against the rules."""

from __future__ import annotations

import random
import time

import pytest
from tests.unit.compiler.placement.scheduling_problems import brute_force, check_schedule, random_problem

from motet.compiler.placement.search.branch_and_bound import best_schedule
from motet.compiler.placement.search.heft import heft, upward_ranks
from motet.compiler.placement.search.local_search import critical_path, improve
from motet.compiler.placement.search.problem import Machine, PlacementSchedule, PlacementTask, Problem, dispatch
from motet.compiler.placement.search.stages import cut_stages

FACTOR = 1.5  # how much later than possible the heuristics' schedules may end, on problems this small


def everywhere(problem: Problem, device: int) -> PlacementSchedule:
    places = [device if device in allowed else allowed[0] for allowed in problem.allowed]
    return dispatch(problem, places, upward_ranks(problem))


@pytest.mark.parametrize("seed", range(60))
def test_branch_and_bound_finds_the_least_end_there_is(seed: int) -> None:
    rng = random.Random(seed)
    problem = random_problem(rng, work=rng.randrange(1, 6), places=2 if seed % 3 else 3)
    found, proved = best_schedule(problem, everywhere(problem, 0))
    check_schedule(problem, found)
    assert proved
    assert found.makespan == pytest.approx(brute_force(problem))


@pytest.mark.parametrize("seed", range(40))
def test_heuristics_end_within_a_factor_of_the_least_end(seed: int) -> None:
    rng = random.Random(1000 + seed)
    problem = random_problem(rng, work=rng.randrange(6, 11), places=2)
    ranks = upward_ranks(problem)
    start = min(
        (everywhere(problem, 0), everywhere(problem, 1), heft(problem, ranks), heft(problem, ranks, look_ahead=True)),
        key=lambda schedule: schedule.makespan,
    )
    found = improve(problem, start, ranks, 10_000)
    check_schedule(problem, found)
    best, proved = best_schedule(problem, found, 400_000)
    assert proved
    assert best.makespan <= found.makespan <= FACTOR * best.makespan + 1e-9


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("look_ahead", [False, True])
def test_list_schedules_keep_the_rules(seed: int, look_ahead: bool) -> None:
    rng = random.Random(seed)
    problem = random_problem(rng, work=40, places=3, inputs=3, density=0.1)
    check_schedule(problem, heft(problem, upward_ranks(problem), look_ahead))


@pytest.mark.parametrize("seed", range(20))
def test_dispatch_keeps_places_and_rules(seed: int) -> None:
    rng = random.Random(seed)
    problem = random_problem(rng, work=40, places=3, inputs=3, density=0.1)
    places = [rng.choice(allowed) for allowed in problem.allowed]
    found = dispatch(problem, places, upward_ranks(problem))
    assert list(found.places) == places
    check_schedule(problem, found)


@pytest.mark.parametrize("seed", range(10))
def test_local_search_is_never_worse_than_its_start(seed: int) -> None:
    rng = random.Random(seed)
    problem = random_problem(rng, work=60, places=2, density=0.05)
    start = heft(problem, upward_ranks(problem))
    found = improve(problem, start, upward_ranks(problem), 20_000)
    check_schedule(problem, found)
    assert found.makespan <= start.makespan


def test_equal_problems_are_solved_equally() -> None:
    problem = random_problem(random.Random(11), work=40, places=3, density=0.1)
    ranks = upward_ranks(problem)
    first, second = (improve(problem, heft(problem, ranks), ranks, 20_000) for _ in range(2))
    assert first == second


def test_local_search_moves_a_chain_that_no_single_task_would_leave() -> None:
    # Ten tasks in a row, twice as fast at place 1, each way there as long as one of them.
    latency = ((0.0, 3.0, 0.0), (3.0, 0.0, 3.0), (0.0, 3.0, 0.0))
    machine = Machine((0, 1, None), latency, ((0.0,) * 3,) * 3)
    inf = float("inf")
    chain = [PlacementTask((2.0, 1.0, inf), () if i == 0 else ((i - 1, 1),)) for i in range(10)]
    problem = Problem((*chain, PlacementTask((inf, inf, 0.0), ((9, 1),), outside=True)), machine)
    ranks = upward_ranks(problem)
    found = improve(problem, dispatch(problem, [0] * 10 + [2], ranks), ranks, 10_000)
    assert found.makespan == 13.0


def test_critical_path_reaches_from_the_start_to_the_end() -> None:
    rng = random.Random(7)
    problem = random_problem(rng, work=30, places=2, density=0.1)
    schedule = dispatch(problem, [rng.choice(allowed) for allowed in problem.allowed], upward_ranks(problem))
    path = critical_path(problem, schedule)
    assert schedule.ends[path[-1]] == schedule.makespan
    assert schedule.starts[path[0]] == 0.0


def test_the_search_gives_up_with_what_it_knows() -> None:
    problem = random_problem(random.Random(3), work=30, places=3, density=0.05)
    start = heft(problem, upward_ranks(problem))
    found, proved = best_schedule(problem, start, 100)
    assert not proved
    assert found.makespan <= start.makespan


# -- stages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_stages_cover_all_work_once_in_an_order_that_runs(seed: int) -> None:
    rng = random.Random(seed)
    problem = random_problem(rng, work=25, places=3, inputs=2, density=0.15)
    schedule = heft(problem, upward_ranks(problem))
    staging = cut_stages(problem, schedule, [0.5, 0.5, 0.5], 10_000)
    done = {index for index, task in enumerate(problem.tasks) if task.outside and not task.inputs}
    for stage in staging.stages:
        assert len({schedule.places[index] for index in stage}) == 1
        for index in stage:
            assert {source for source, _ in problem.tasks[index].inputs} <= done | set(stage)
        done |= set(stage)
    work = [index for index, task in enumerate(problem.tasks) if not task.outside]
    assert sorted(index for stage in staging.stages for index in stage) == work


def test_places_that_work_at_the_same_time_get_what_they_need_before_others_are_done() -> None:
    # a feeds b at place 0 and c at place 1: c must not wait until b has ended.
    inf = float("inf")
    machine = Machine((0, 1, None), ((0.0, 1.0, 0.0), (1.0, 0.0, 1.0), (0.0, 1.0, 0.0)), ((0.0,) * 3,) * 3)
    tasks = (
        PlacementTask((1.0, inf, inf)), PlacementTask(
            (10.0, inf, inf), ((0, 1),)
        ), PlacementTask((inf, 10.0, inf), ((0, 1),)),
        PlacementTask((1.0, inf, inf), ((1, 1), (2, 1))),
    )
    problem = Problem(tasks, machine)
    schedule = dispatch(problem, [0, 0, 1, 0], upward_ranks(problem))
    staging = cut_stages(problem, schedule, [0.0, 0.0], 10_000)
    assert staging.makespan == schedule.makespan == 14.0
    assert [set(stage) for stage in staging.stages if 0 in stage] == [{0}]


def test_work_on_one_place_is_one_stage() -> None:
    tasks = random_problem(random.Random(5), work=20, places=1, density=0.2).tasks
    problem = Problem(tasks, Machine((0, None), ((0.0, 0.0), (0.0, 0.0)), ((0.0, 0.0), (0.0, 0.0))))
    schedule = heft(problem, upward_ranks(problem))
    staging = cut_stages(problem, schedule, [0.5], 100_000)
    assert len(staging.stages) == 1


def test_tasks_with_queues_of_their_own_share_no_stage() -> None:
    inf = float("inf")
    machine = Machine((0, None), ((0.0, 0.0), (0.0, 0.0)), ((0.0, 0.0), (0.0, 0.0)))
    tasks = (
        PlacementTask((1.0, inf), queues=1), PlacementTask((1.0, inf), ((0, 1),), queues=2),
        PlacementTask((1.0, inf), ((1, 1),), queues=2)
    )
    problem = Problem(tasks, machine)
    staging = cut_stages(problem, dispatch(problem, [0, 0, 0], [3.0, 2.0, 1.0]), [0.1], 1000)
    assert staging.stages == ((0,), (1, 2))


def test_large_problems_are_searched_in_time() -> None:
    problem = random_problem(random.Random(0), work=3000, places=3, density=0.0007)
    begin = time.process_time()
    ranks = upward_ranks(problem)
    found = improve(problem, heft(problem, ranks), ranks, 40_000)
    cut_stages(problem, found, [0.1, 0.1, 0.1], 40_000)
    assert time.process_time() - begin < 60
