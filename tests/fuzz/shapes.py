"""The type of every value of a graph, with the extents that a call decides."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
from tests.fuzz.calls import extents_of_call, is_large
from tests.fuzz.graph import Extent, Graph
from tests.fuzz.reference import calculate
from tests.fuzz.tracked import Invalid
from tests.fuzz.values import draw_values

Types = dict[str, tuple[str, tuple[Extent | None, ...]]]


def types_of(graph: Graph) -> Types:
    """Each value's dtype and extents: numbers, names of dynamic ones, and None for what is calculated of these.

    Found by calculating the graph again with other values of the dynamic extents: much larger ones, and those of later
    calls, so that no slice that ends with a short axis is declared to be as long as it was first.
    """
    first = _shapes(graph, graph.symbols)
    moved = {name: value + 40 + 2 * number for number, (name, value) in enumerate(graph.symbols.items())}
    samples: list[tuple[dict[str, int], dict[str, tuple[str, tuple[int, ...]]]]] = []
    try:
        second = _shapes(graph, moved) if graph.symbols else first
    except Invalid:
        second = None  # a constant is as long as one of them: it is not known which extents follow it
    for symbols in (extents_of_call(graph, number) for number in (1, 2)) if graph.symbols else ():
        with contextlib.suppress(Invalid):
            samples.append((symbols, _shapes(graph, symbols)))
    found: Types = {}
    declared = {i.name: i.shape for i in graph.inputs}
    for name, (dtype, shape) in first.items():
        if name in declared:
            found[name] = (dtype, declared[name])
        elif second is None:
            found[name] = (dtype, (None,) * len(shape))
        else:
            pairs = zip(shape, second[name][1], strict=True)
            extents = [_extent(a, b, graph.symbols, moved) for a, b in pairs]
            found[name] = (dtype, tuple(_confirmed(e, axis, name, samples) for axis, e in enumerate(extents)))
    return found


def _confirmed(
    extent: Extent | None, axis: int, name: str,
    samples: Sequence[tuple[dict[str, int], dict[str, tuple[str, tuple[int, ...]]]]],
) -> Extent | None:
    """`extent`, or None where it is another one in one of the samples."""
    for symbols, shapes in samples:
        if shapes[name][1][axis] != (symbols[extent] if isinstance(extent, str) else extent):
            return None
    return extent


def _extent(first: int, second: int, symbols: dict[str, int], moved: dict[str, int]) -> Extent | None:
    if first == second:
        return first
    return next((name for name in symbols if (symbols[name], moved[name]) == (first, second)), None)


def _shapes(graph: Graph, symbols: dict[str, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
    if is_large(graph, symbols):
        raise Invalid("too large to try")
    numbers = np.random.default_rng(1)
    feeds = {
        i.name: draw_values(numbers, i.dtype, i.concrete(symbols), i.low if i.low is not None else -3,
                            i.high if i.high is not None else 3)
        for i in graph.inputs
    }
    return {name: (value.dtype, value.shape) for name, value in calculate(graph, feeds).items()}
