"""Loops and branches of ONNX with random bodies, which capture values from outside, against the reference of graphs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper
from tests.fuzz import calls
from tests.fuzz.as_onnx import ELEMENTS, onnx_model
from tests.fuzz.compiling import Options, compile_program, load_program
from tests.fuzz.drawing import draw_graph
from tests.fuzz.graph import Array, Graph, Input
from tests.fuzz.graph import show as show_graph
from tests.fuzz.judge import fault
from tests.fuzz.kinds.attempts import judged
from tests.fuzz.reference import calculate
from tests.fuzz.shapes import types_of
from tests.fuzz.tracked import Invalid, Tracked
from tests.fuzz.trial import Outcome, Say

_OPSETS = (18, 20, 22)


@dataclass(frozen=True)
class LoopOrBranch:
    """A body that runs `trips` times with `carried` as the input that `result` replaces; or, without `carried`, two
    bodies of which a condition chooses. `given` says that a call decides the number of trips."""

    seed: int
    bodies: tuple[Graph, ...]
    results: tuple[str, ...]
    carried: Input | None = None
    trips: int = 0
    given: bool = False

    def model(self) -> bytes:
        """The operators of each body move from a model of the bodies into the subgraphs of one node."""
        whole = onnx.ModelProto.FromString(onnx_model(self.bodies))
        parts = [self._part(whole.graph, number) for number in range(len(self.bodies))]
        inputs = list(whole.graph.input)
        if self.carried is None:
            inputs.append(helper.make_tensor_value_info("condition", TensorProto.BOOL, []))
            branches = {"then_branch": parts[0], "else_branch": parts[1]}
            node = helper.make_node("If", ["condition"], ["y"], name="choice", **branches)
        else:
            inputs.append(helper.make_tensor_value_info("trips", TensorProto.INT64, []))
            first = f"p0_{self.carried.name}"
            node = helper.make_node("Loop", ["trips", "", first], ["y", "all"], name="loop", body=parts[0])
        graph = helper.make_graph([node], "bodies", inputs, [])
        dtype, shape = types_of(self.bodies[0])[self.results[0]]
        graph.output.append(helper.make_tensor_value_info("y", ELEMENTS[dtype], shape))
        if self.carried is not None:
            extent = "trips" if self.given else self.trips
            graph.output.append(helper.make_tensor_value_info("all", ELEMENTS[dtype], [extent, *shape]))
            if not self.given:
                graph.initializer.append(onnx.numpy_helper.from_array(np.array(self.trips), "trips"))
                graph.input.remove(next(info for info in graph.input if info.name == "trips"))
        graph.initializer.extend(whole.graph.initializer)
        opset = helper.make_opsetid("", self.bodies[0].opset)
        return helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString()

    def _part(self, whole: onnx.GraphProto, number: int) -> onnx.GraphProto:
        prefix, result = f"p{number}_", f"p{number}_{self.results[number]}"
        nodes = [node for node in whole.node if node.name.startswith(f"{prefix}node")]
        dtype, shape = types_of(self.bodies[number])[self.results[number]]
        outputs = [helper.make_tensor_value_info(f"{prefix}last", ELEMENTS[dtype], shape)]
        nodes = [*nodes, helper.make_node("Identity", [result], [f"{prefix}last"])]
        if self.carried is None:
            return helper.make_graph(nodes, f"body{number}", [], outputs)
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        for node in nodes:  # the value of this trip, which has another name than the first
            node.input[:] = ["held" if name == f"{prefix}{self.carried.name}" else name for name in node.input]
        nodes += [helper.make_node("Identity", [a], [b]) for a, b in (("go", "on"), (f"{prefix}last", "each"))]
        inputs = [
            helper.make_tensor_value_info("trip", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("held", ELEMENTS[dtype], shape),
        ]
        more = helper.make_tensor_value_info("each", ELEMENTS[dtype], shape)
        on = helper.make_tensor_value_info("on", TensorProto.BOOL, [])
        return helper.make_graph(nodes, "body", inputs, [on, *outputs, more])

    def calls(self) -> Iterator[tuple[list[Array], list[Tracked], int]]:
        """Right calls: arguments, the results of each trip or of each body, and which of these is taken."""
        for number in range(3):
            feeds = [calls.feeds(body, number, body.symbols) for body in self.bodies]
            flat = [array for each in feeds for array in each.values()]
            if self.carried is None:
                made = [calculate(b, f)[r] for b, f, r in zip(self.bodies, feeds, self.results, strict=True)]
                for condition in (True, False):
                    yield [*flat, np.array(condition)], made, 0 if condition else 1
                continue
            trips = (self.trips, 0, 1)[number] if self.given else self.trips
            known: dict[str, Array | Tracked] = dict(feeds[0])
            made = []
            for _ in range(trips):
                made.append(calculate(self.bodies[0], known)[self.results[0]])
                known[self.carried.name] = _known(made[-1])
            yield [*flat, *([np.array(trips)] if self.given else [])], made, trips - 1


def _known(value: Tracked) -> Tracked:
    """What the next trip may rely on: errors that are no longer small grow as no bound says, as near a pole."""
    if not value.is_float:
        return value
    with np.errstate(all="ignore"):
        large = value.error > 1e-3 * (1 + np.abs(value.value))
    return replace(value, unknown=value.unknown | large)


def draw(seed: int) -> LoopOrBranch:
    """The program of a seed. Raises Invalid where none is found in a few hundred graphs."""
    rng = random.Random(f"bodies {seed}")
    opset, is_loop = rng.choice(_OPSETS), rng.random() < 0.6
    first: dict[tuple[str, tuple[object, ...]], tuple[Graph, str]] = {}
    for number in range(400):
        graph = draw_graph(seed * 400 + number, opset, dynamic=0.0)
        if not graph.nodes or len(graph.nodes) < rng.choice((1, 2, 3)):
            continue
        try:
            types = types_of(graph)
        except Invalid:
            continue
        made = {name for node in graph.nodes for name in node.outputs}
        for result in (name for name in graph.results if name in made):
            if is_loop:
                same = [i for i in graph.inputs if not i.index and i.low is None and types[i.name] == types[result]]
                if same:
                    carried, trips, given = rng.choice(same), rng.randrange(5), rng.random() < 0.4
                    return LoopOrBranch(seed, (graph,), (result,), carried, trips, given)
            elif types[result] in first:
                other, name = first[types[result]]
                return LoopOrBranch(seed, (other, graph), (name, result))
            else:
                first[types[result]] = graph, result
    raise Invalid("no bodies fit")


def attempt(seed: int, say: Say) -> Outcome:
    outcome = Outcome(language="onnx")
    try:
        drawn = draw(seed)
        prepared = list(drawn.calls())
    except Invalid:
        return outcome
    with judged(outcome):
        say(f"compile [{seed}]")
        artifact = compile_program(drawn.model(), "onnx", Options())
        with load_program(artifact, Options()) as session:
            for number, (arrays, made, taken) in enumerate(prepared):
                say(f"call {number} [{seed}]")
                outcome.calls += 1
                found = session(*arrays)
                if text := _fault(drawn, arrays, found, made, taken):
                    outcome.failed("wrong", f"call {number}: {text}")
    return outcome


def _fault(drawn: LoopOrBranch, arrays: list[Array], found: object, made: list[Tracked], taken: int) -> str:
    if drawn.carried is None:
        return fault([np.asarray(found)], [made[taken]])
    last, every = (np.asarray(each) for each in found)  # type: ignore[misc]
    if not made:
        place = [f"p0_{i.name}" for i in drawn.bodies[0].inputs].index(f"p0_{drawn.carried.name}")
        same = last.tobytes() == arrays[place].tobytes() and every.shape == (0, *arrays[place].shape)
        return "" if same else "no trips change what is carried"
    if len(every) != len(made):
        return f"{len(every)} results of trips, expected {len(made)}"
    return fault([last, *every], [made[taken], *made])


def show(seed: int) -> str:
    drawn = draw(seed)
    how = "If" if drawn.carried is None else f"Loop of {drawn.trips}{' (a call decides)' if drawn.given else ''}, " \
          f"{drawn.carried.name} becomes {drawn.results[0]}"
    return "\n".join([how, *(show_graph(body) for body in drawn.bodies)])
