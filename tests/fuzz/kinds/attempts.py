"""What the kinds share: graphs of which a call is defined, and what an error says of an attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.fuzz import calls
from tests.fuzz.drawing import draw_graph
from tests.fuzz.graph import Graph
from tests.fuzz.reference import calculate
from tests.fuzz.shapes import types_of
from tests.fuzz.tracked import Invalid
from tests.fuzz.trial import Outcome, verdict


def draw_defined(
    first: int, tries: int, opset: Callable[[], int], dynamic: float, fits: Callable[[Graph], bool]
) -> Graph:
    """The first graph from seed `first` on that fits and whose first call is defined. Raises Invalid after `tries`."""
    for seed in range(first, first + tries):
        graph = draw_graph(seed, opset(), dynamic=dynamic)
        if not fits(graph):
            continue
        try:
            types_of(graph)
            calculate(graph, calls.feeds(graph, 0, graph.symbols))
        except Invalid:
            continue
        return graph
    raise Invalid("no graph fits")


@contextmanager
def judged(outcome: Outcome) -> Iterator[None]:
    """An error is the outcome."""
    try:
        yield
    except Exception as error:
        outcome.failed(*verdict(error))
