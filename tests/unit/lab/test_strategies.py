"""Strategies on a space with a known optimum, without a machine."""

import importlib.util
import random

import pytest

from motet.compiler.kernels.schedule import DynamicDepthwiseSchedule, encode_schedule
from motet.errors import OptionError
from motet.lab.records import Record
from motet.lab.replay import recorded_space, replay
from motet.lab.search import Budget
from motet.lab.space import Point, ScheduleSpace, SpaceParameter, parse_holes
from motet.lab.strategies.named import strategy_of

VALUES = tuple(range(1, 13))
OWN = ["exhaustive", "random", "ranking", "local", "evolutionary", "model"]


def build(point: Point) -> DynamicDepthwiseSchedule | None:
    lanes, vectors, pixels = (int(point[name] or 0) for name in ("lanes", "vectors", "pixels"))
    return DynamicDepthwiseSchedule(lanes, vectors, pixels) if (vectors + 1) * pixels <= 60 else None


def space() -> ScheduleSpace:
    start = {"lanes": 6, "vectors": 2, "pixels": 2}
    return ScheduleSpace(tuple(SpaceParameter(name, VALUES) for name in start), build, starts=(start,))


def seconds(schedule: DynamicDepthwiseSchedule) -> float:
    return 1e-3 * (1 + abs(schedule.lanes - 9) + 2 * abs(schedule.vectors - 5) + abs(schedule.pixels - 7))


def records() -> list[Record]:
    own = space()
    made = [own.schedule(point) for point in own.points()]
    return [Record("k", "t", "m", encode_schedule(each), seconds=seconds(each)) for each in made
            if isinstance(each, DynamicDepthwiseSchedule)]


@pytest.mark.parametrize("name", OWN)
def test_only_legal_points_are_proposed(name: str):
    own = space()
    strategy = strategy_of(name, own, seed=3)
    for _ in range(40):
        point = strategy.ask()
        assert point is not None
        schedule = own.schedule(point)
        assert isinstance(schedule, DynamicDepthwiseSchedule)
        strategy.tell(point, seconds(schedule))


@pytest.mark.parametrize("name", ["ranking", "local", "evolutionary", "model"])
def test_the_compilers_choice_comes_first(name: str):
    assert strategy_of(name, space()).ask() == {"lanes": 6, "vectors": 2, "pixels": 2}


def test_exhaustive_search_finds_the_best():
    found = replay(space(), strategy_of("exhaustive", recorded_space(space(), records())), records(), 10_000)
    assert min(found.seconds) == found.best == pytest.approx(1e-3)


@pytest.mark.parametrize("name", ["local", "evolutionary", "model"])
def test_strategies_that_learn_come_close(name: str):
    known = records()
    own = recorded_space(space(), known)
    found = replay(own, strategy_of(name, own, seed=1), known, 200)
    assert min(found.seconds) <= 2 * found.best, min(found.seconds)


@pytest.mark.parametrize("name", ["optuna:TPE", "optuna:Random", "nevergrad:CMA", "nevergrad:OnePlusOne"])
def test_optimisers_of_libraries(name: str):
    if importlib.util.find_spec(name.partition(":")[0]) is None:
        with pytest.raises(OptionError, match="pip install"):
            strategy_of(name, space())
        return
    test_only_legal_points_are_proposed(name)


@pytest.mark.parametrize("name", ["foo", "random:x", ""])
def test_unknown_strategies_are_refused(name: str):
    with pytest.raises(OptionError, match="expected one of exhaustive"):
        strategy_of(name, space())


def test_constraints_exclude_points():
    own = space().where(lambda point: point["lanes"] == 4)
    assert {point["lanes"] for point in own.points()} == {4}
    drawn = own.sample(random.Random(0))
    assert drawn is not None and drawn["lanes"] == 4


@pytest.mark.parametrize("trials, limit", [(0, None), (-1, None), (None, 0.0)])
def test_an_empty_budget_is_refused(trials: int | None, limit: float | None):
    with pytest.raises(OptionError, match="at least one trial"):
        Budget(trials, limit)


@pytest.mark.parametrize("text", ["ti", "ti=", "1x=3", "=3"])
def test_holes_need_values(text: str):
    with pytest.raises(OptionError, match="NAME=VALUE"):
        parse_holes([text])
