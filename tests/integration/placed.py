"""Programs for several devices, compiled inside the test's own process, and random ones of their kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tests.prepared import load_source

import motet.builder as b
from motet.artifact.reader import Artifact
from motet.artifact.writer import write_artifact
from motet.builder import Graph, Tensor
from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir
from motet.compiler.placement.place import Place
from motet.compiler.targets.device_flags import parse_device_flags
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.rates import RateTable
from motet.compiler.verify.oracle import run_oracle

TARGETS = ("x86-64-v3", "null:x86-64-v3")
DEVICES = ("a", "b", "c")


def build_placed(
    source: str | Graph, flags: Sequence[str], targets: Sequence[str] = TARGETS, table: RateTable | None = None
) -> Artifact:
    """The artifact of a program with the devices that `flags` name; with `table`, what devices can do, cost decides
    where it runs."""
    data = source if isinstance(source, str) else source.serialize()
    program = load_source(data, "test.mlir", place=Place(parse_device_flags(flags), table is not None, table=table))
    with program.module.context as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        found = [resolve_target(name) for name in targets]
        built = pipeline.build(program, found, 1, lambda what, fraction: None)
    return write_artifact(built.manifest, built.members, built.parameters)


def expected(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What upstream's plain lowering makes of the graph, as if there were no devices."""
    return run_oracle(load_source(graph.serialize(), "oracle.mlir"), graph.name, inputs)


@dataclass(frozen=True)
class RandomProgram:
    graph: Graph
    inputs: list[np.ndarray]


def random_program(seed: int, devices: Sequence[str] = DEVICES) -> RandomProgram:
    """Some ten operations on matrices, a few of them placed nowhere, some inputs and results pinned."""
    random = np.random.default_rng(seed)
    extents = [int(n) for n in random.choice([1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32], 3)]
    dynamic = bool(random.random() < 0.3)
    graph = Graph(f"program{seed}")

    def anywhere() -> str | None:
        return None if random.random() < 0.25 else str(random.choice(list(devices)))

    inputs: list[np.ndarray] = []
    values: list[Tensor] = []
    for number in range(int(random.integers(1, 4))):
        shape = (extents[0], int(random.choice(extents)))
        inputs.append(random.standard_normal(shape).astype(np.float32))
        declared = ("rows", shape[1]) if dynamic else shape
        values.append(graph.input(f"x{number}", declared, "f32", device=anywhere()))
    for number in range(int(random.integers(3, 12))):
        values.append(_operation(random, graph, values, extents, anywhere(), number))
    last = values[-1]
    graph.result(last, "last", device=anywhere())
    for number in range(int(random.integers(0, 3))):
        graph.result(values[int(random.integers(len(values)))], f"also{number}", device=anywhere())
    return RandomProgram(graph, inputs)


def _operation(
    random: np.random.Generator, graph: Graph, values: Sequence[Tensor], extents: Sequence[int], device: str | None,
    number: int,
) -> Tensor:
    x = values[int(random.integers(len(values)))]
    kind = str(random.choice(["matmul", "unary", "unary", "binary", "binary", "row", "scale", "constant"]))
    if kind == "matmul":
        shape = (int(x.shape[1]), int(random.choice(list(extents))))
        weights = (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        return b.matmul(x, graph.constant(weights, f"w{number}"), device=device)
    if kind == "unary":
        return [b.relu, b.tanh, b.abs, b.neg][int(random.integers(4))](x, device=device)
    if kind == "row":
        return b.softmax(x, -1, device=device)
    if kind == "constant":
        row = graph.constant(random.standard_normal((1, int(x.shape[1]))).astype(np.float32), f"c{number}")
        return b.add(x, row, device=device)
    if kind == "binary":
        others = [value for value in values if value.shape == x.shape]
        return [b.add, b.mul, b.maximum][int(random.integers(3))](
            x, others[int(random.integers(len(others)))], device=device
        )
    return b.mul(x, float(random.standard_normal()), device=device)
