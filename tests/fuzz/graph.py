"""Programs as the fuzzer draws them: graphs of ONNX's operators, which every back end writes in its own language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tests.fuzz.dtypes import DTYPES, NAMES

Array = np.ndarray[Any, Any]
Extent = int | str


@dataclass(frozen=True)
class Input:
    """A tensor that a call gives. Its elements are drawn from `low` to `high` where these are given; `index` says that
    they are places, which a call may have wrong."""

    name: str
    dtype: str
    shape: tuple[Extent, ...]
    low: float | None = None
    high: float | None = None
    index: bool = False

    def concrete(self, symbols: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(symbols[e] if isinstance(e, str) else e for e in self.shape)


@dataclass(frozen=True)
class Node:
    """An operator; an input that is left out is called ''."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Graph:
    """`symbols` are the dynamic extents, with the value that each had when the graph was drawn."""

    seed: int
    opset: int
    inputs: tuple[Input, ...]
    constants: dict[str, Array]
    nodes: tuple[Node, ...]
    results: tuple[str, ...]
    symbols: dict[str, int] = field(default_factory=dict[str, int])

    def pruned(self) -> Graph:
        """Without what no result needs."""
        needed = set(self.results)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if needed & set(node.outputs):
                kept.append(node)
                needed |= set(node.inputs)
        inputs = tuple(i for i in self.inputs if i.name in needed)
        return replace(
            self, nodes=tuple(reversed(kept)), inputs=inputs,
            constants={name: a for name, a in self.constants.items() if name in needed},
            symbols={s: v for s, v in self.symbols.items() if any(s in i.shape for i in inputs)},
        )

    def values(self) -> Iterator[str]:
        for node in self.nodes:
            yield from (name for name in node.outputs if name)


def show(graph: Graph) -> str:
    """A graph in a few lines, for people."""
    lines = [f"opset {graph.opset}" + (f"; extents {graph.symbols}" if graph.symbols else "")]
    for i in graph.inputs:
        lines.append(f"  {i.name}: {i.dtype}[{','.join(map(str, i.shape))}]")
    for name, array in graph.constants.items():
        values = np.array2string(array.astype(np.float64) if NAMES[array.dtype] == "bf16" else array, threshold=12)
        lines.append(f"  {name} = {NAMES[array.dtype]}{list(array.shape)} {' '.join(values.split())}")
    for node in graph.nodes:
        words = " ".join(f"{k}={v}" for k, v in node.attributes.items())
        lines.append(f"  {', '.join(node.outputs)} = {node.op}({', '.join(node.inputs)}) {words}".rstrip())
    lines.append(f"  return {', '.join(graph.results)}")
    return "\n".join(lines)


def to_json(graph: Graph) -> dict[str, Any]:
    return {
        "seed": graph.seed, "opset": graph.opset, "symbols": graph.symbols, "results": list(graph.results),
        "inputs": [[i.name, i.dtype, list(i.shape), i.low, i.high, i.index] for i in graph.inputs],
        "constants": {n: [NAMES[a.dtype], list(a.shape), a.tobytes().hex()] for n, a in graph.constants.items()},
        "nodes": [[n.op, list(n.inputs), list(n.outputs), n.attributes] for n in graph.nodes],
    }


def from_json(data: Mapping[str, Any]) -> Graph:
    return Graph(
        data["seed"], data["opset"],
        tuple(Input(n, d, tuple(s), low, high, index) for n, d, s, low, high, index in data["inputs"]),
        {n: np.frombuffer(bytes.fromhex(h), DTYPES[d]).reshape(s).copy() for n, (d, s, h) in data["constants"].items()},
        tuple(Node(op, tuple(i), tuple(o), a) for op, i, o, a in data["nodes"]),
        tuple(data["results"]), dict(data["symbols"]),
    )
