"""What the kinds share: graphs of which a call is defined, calls, and what an error says of an attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from tests.fuzz import calls
from tests.fuzz.drawing import draw_graph
from tests.fuzz.graph import Graph
from tests.fuzz.judge import fault
from tests.fuzz.reference import calculate
from tests.fuzz.shapes import types_of
from tests.fuzz.tracked import Invalid
from tests.fuzz.trial import Outcome, Say, verdict


def draw_defined(
    first: int, tries: int, opset: Callable[[], int], dynamic: float, fits: Callable[[Graph], bool]
) -> Graph:
    """The first graph from seed `first` on that fits and whose first call is defined. Raises Invalid after `tries`."""
    for seed in range(first, first + tries):
        graph = draw_graph(seed, opset(), dynamic=dynamic)
        if fits(graph) and defined(graph):
            return graph
    raise Invalid("no graph fits")


def defined(graph: Graph) -> bool:
    """Whether the first call of a graph is."""
    try:
        types_of(graph)
        calculate(graph, calls.feeds(graph, 0, graph.symbols))
    except Invalid:
        return False
    return True


def call(graph: Graph, session: Any, outcome: Outcome, say: Say) -> None:
    """Call the only function of a session three times; a wrong result is the outcome."""
    for number in range(3):
        symbols = calls.extents_of_call(graph, number)
        if calls.is_large(graph, symbols):
            continue
        feeds = calls.feeds(graph, number, symbols)
        try:
            known = calculate(graph, feeds)
        except Invalid:
            continue
        say(f"call {number} [{graph.seed}]")
        outcome.calls += 1
        found = session(*feeds.values())
        results: Sequence[Any] = found if isinstance(found, tuple) else (found,)
        if text := fault([np.asarray(each) for each in results], [known[name] for name in graph.results]):
            outcome.failed("wrong", f"call {number}: {text}")


@contextmanager
def judged(outcome: Outcome) -> Iterator[None]:
    """An error is the outcome."""
    try:
        yield
    except Exception as error:
        outcome.failed(*verdict(error))
