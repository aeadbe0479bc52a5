"""Which cases `make test` leaves to `make test-all`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.costs import EVERY, mark_slow, read_costs, spread


class Case(SimpleNamespace):
    """What `mark_slow` asks of a test."""

    def get_closest_marker(self, name: str) -> Any:
        return name in self.marks or None

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark.name)


def kept(names: list[str], costs: dict[str, float]) -> list[str]:
    cases: list[Any] = [Case(nodeid=name, marks=[]) for name in names]
    mark_slow(cases, costs)
    return [case.nodeid for case in cases if not case.marks]


def test_a_function_keeps_the_cases_that_its_seconds_pay_for() -> None:
    names = [*(f"a.py::test[{number}]" for number in range(20)), "a.py::other[0]", "a.py::other[1]", "a.py::alone"]
    assert kept(names, {}) == names
    some = kept(names, {"a.py::test": 0.2, "a.py::other": 9.0, "a.py::alone": 9.0})
    assert len(some) == 5 + 2 and names[0] in some and names[20] in some and names[22] in some
    assert len(kept(names, {"a.py::test": 50.0})) == 1 + 3 and len(kept(names, {"a.py::test": 0.5})) == 2 + 3


def test_all_cases_of_a_function_run_where_it_says_so() -> None:
    cases: list[Any] = [Case(nodeid=f"a.py::test[{number}]", marks=[EVERY]) for number in range(20)]
    mark_slow(cases, {"a.py::test": 50.0})
    assert all(case.marks == [EVERY] for case in cases)


@pytest.mark.parametrize("count", [5, 12, 30, 60, 61])
@pytest.mark.parametrize("period", [2, 3, 4, 5])
def test_what_is_kept_has_every_value_of_a_parameter(count: int, period: int) -> None:
    first = spread(count)[: max(3, count // 3)]
    assert sorted(spread(count)) == list(range(count))
    assert len({index % period for index in first}) == min(period, len(first)) or len(first) < 4 * period


def test_costs_are_of_tests_with_parameters() -> None:
    assert all(cost > 0 and name.startswith("tests/") and "[" not in name for name, cost in read_costs().items())
