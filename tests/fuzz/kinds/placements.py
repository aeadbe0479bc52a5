"""Programs whose operators run on random devices, of which one is lost in a call: the results do not change."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.fuzz.as_onnx import onnx_model
from tests.fuzz.compiling import compile_placed
from tests.fuzz.graph import Graph
from tests.fuzz.graph import show as show_graph
from tests.fuzz.kinds.attempts import call, draw_defined, judged
from tests.fuzz.tracked import Invalid
from tests.fuzz.trial import Outcome, Say

from motet.errors import DeviceLost
from motet.runtime import load

_FLAGS = ("a=host", "b=null[3],null[2],@a", "c=null[1],@b")
_LOST = {"b": "null/3", "c": "null/1"}


@dataclass(frozen=True)
class PlacedGraph:
    """`places` has the device of each node; `lost` is lost after `after` of its submissions; "" for none."""

    graph: Graph
    places: tuple[str, ...]
    lost: str
    after: int


def draw(seed: int) -> PlacedGraph:
    rng = random.Random(f"placements {seed}")
    graph = draw_defined(seed * 100, 100, lambda: rng.choice((18, 20, 22)), 0.25, lambda graph: len(graph.nodes) > 1)
    places = tuple(rng.choice("aabbc") for _ in graph.nodes)
    lost = rng.choice(["", *(_LOST[device] for device in sorted({*places} - {"a"}))])
    return PlacedGraph(graph, places, lost, rng.randrange(4))


def attempt(seed: int, say: Say) -> Outcome:
    outcome = Outcome(language="onnx")
    try:
        drawn = draw(seed)
    except Invalid:
        return outcome
    with judged(outcome):
        say(f"compile [{seed}]")
        named = [(f"p0_node{number}", device) for number, device in enumerate(drawn.places)]
        artifact = compile_placed(onnx_model([drawn.graph]), _FLAGS, named)
        with load(artifact) as session:
            if drawn.lost:
                _lose(session, drawn.lost, drawn.after)
            call(drawn.graph, session, outcome, say)
    return outcome


def _lose(session: Any, uri: str, after: int) -> None:
    """Makes an open device fail as one does that is gone, from its `after`-th submission on."""
    loaded = next((each for each in session._bound.opened if each.uri == uri), None)
    if loaded is None:
        return
    submit, count = loaded.device.submit, 0

    def failing(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if count > after:
            raise DeviceLost(uri, "unplugged")
        return submit(*arguments, **named)

    loaded.device.submit = failing


def show(seed: int) -> str:
    drawn = draw(seed)
    lost = f"; {drawn.lost} is lost after {drawn.after} submissions" if drawn.lost else ""
    return f"nodes on {' '.join(drawn.places)} of {', '.join(_FLAGS)}{lost}\n{show_graph(drawn.graph)}"
