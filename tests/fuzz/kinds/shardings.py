"""Programs divided over a mesh, whose arguments have random shardings: the results do not change."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.fuzz.compiling import compile_sharded
from tests.fuzz.drawing import draw_graph
from tests.fuzz.graph import Graph
from tests.fuzz.graph import show as show_graph
from tests.fuzz.kinds.attempts import call, defined, judged
from tests.fuzz.languages import LANGUAGES
from tests.fuzz.tracked import Invalid
from tests.fuzz.trial import Outcome, Say

from motet.runtime import load

_MESHES = ({"a": 2}, {"a": 3}, {"a": 5}, {"a": 2, "b": 2}, {"a": 2, "b": 3})
_TRIES = 100


@dataclass(frozen=True)
class ShardedGraph:
    """`shards` are the flags of arguments and, in ONNX, of results of nodes."""

    language: str
    graph: Graph
    mesh: str
    shards: tuple[str, ...]


def draw(seed: int) -> ShardedGraph:
    """The first graph with an argument that can be divided. Raises Invalid after some tries."""
    rng = random.Random(f"shardings {seed}")
    language = rng.choice(("onnx", "mlir", "mlir", "stablehlo"))
    own, opset = LANGUAGES[language], rng.choice((18, 20, 22))
    graphs = (draw_graph(seed * _TRIES + number, opset, own.operators, own.says, 0.0) for number in range(_TRIES))
    for graph in graphs:
        if not defined(graph):
            continue
        mesh = rng.choice(_MESHES)
        shards = tuple(_shards(graph, mesh, rng))
        if shards:
            return ShardedGraph(language, graph, ",".join(f"{axis}={size}" for axis, size in mesh.items()), shards)
    raise Invalid("no graph fits")


def _shards(graph: Graph, mesh: dict[str, int], rng: random.Random) -> Iterator[str]:
    """A sharding for most arguments that have a dimension which some axis divides."""
    for number, entry in enumerate(graph.inputs):
        extents = list(entry.concrete(graph.symbols))
        found: list[str] = []
        for axis in rng.sample(sorted(mesh), len(mesh)):
            places = [place for place, extent in enumerate(extents) if extent % mesh[axis] == 0]
            if places and rng.random() < 0.8:
                place = rng.choice(places)
                extents[place] //= mesh[axis]
                found.append(f"{axis}:{place}")
        if found:
            yield f"arg{number}={','.join(found)}"


def attempt(seed: int, say: Say) -> Outcome:
    outcome = Outcome()
    try:
        drawn = draw(seed)
    except Invalid:
        return outcome
    outcome.language = drawn.language
    own = LANGUAGES[drawn.language]
    with judged(outcome):
        say(f"compile [{seed}]")
        artifact = compile_sharded(own.write([drawn.graph]), own.format, drawn.mesh, drawn.shards)
        with load(artifact, threads=1) as session:
            call(drawn.graph, session, outcome, say)
    return outcome


def show(seed: int) -> str:
    drawn = draw(seed)
    return f"{drawn.language}, --mesh {drawn.mesh} --shard {' --shard '.join(drawn.shards)}\n{show_graph(drawn.graph)}"
