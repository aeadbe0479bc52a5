"""Which cases of a test with parameters `make test` leaves to `make test-all`: those beyond a function's seconds.

`tests/costs.json` holds the mean seconds of a case of each function that is long; `python -m checks.costs` writes it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

COSTS = Path(__file__).with_suffix(".json")
EVERY = "every"  # the marker of functions all of whose cases run: only one of them finds some fault
_SECONDS = 1.0  # of the cases of one function, of which one runs in any case
_GOLDEN = 0.6180339887498949


def function_of(test: str) -> str:
    """The name of a test without its parameters."""
    return test.partition("[")[0]


def mark_slow(items: Iterable[pytest.Item], costs: Mapping[str, float]) -> None:
    """Mark as slow the cases that are too many for what one of them costs."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        marked = item.get_closest_marker("slow") or item.get_closest_marker(EVERY)
        if marked is None and function_of(item.nodeid) in costs:
            cases[function_of(item.nodeid)].append(item)
    for name, some in cases.items():
        for index in spread(len(some))[max(1, int(_SECONDS / costs[name])) :]:
            some[index].add_marker(pytest.mark.slow)


def spread(count: int) -> list[int]:
    """The numbers below `count` in an order whose first ones are spread evenly, whatever their number, and keep to no
    period, as parameters do: the fractional parts of multiples of the golden ratio."""
    return sorted(range(count), key=lambda index: index * _GOLDEN % 1)


def read_costs() -> dict[str, float]:
    return json.loads(COSTS.read_text())
