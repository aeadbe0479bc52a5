"""Draws a random program: operators one after the other, each fed by what is there already or by a new input."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.fuzz.dtypes import ALL, DTYPES, UNSIGNED
from tests.fuzz.graph import Array, Graph, Input, Node
from tests.fuzz.operators import DRAWS, evaluate
from tests.fuzz.registry import Rejected, accepts
from tests.fuzz.tracked import Invalid, Tracked, exact
from tests.fuzz.values import draw_values

Says = Callable[[str, Any, Sequence["Tracked | None"], Sequence[Tracked]], bool]

EXTENTS = (1, 1, 2, 2, 3, 3, 4, 5, 5, 7, 7, 8, 9, 11, 13, 15, 16, 17, 19, 23, 31, 32, 33, 63, 65, 0)
ELEMENTS = 1500  # of one tensor, about
WEIGHTS = {
    "elementwise": 6, "cast": 2, "reduction": 4, "product": 4, "window": 3, "norm": 2, "movement": 7, "index": 4,
    "order": 2, "quantised": 1, "generic": 6,
}


class Drawer:
    """A graph being drawn, with the values that its first call would have."""

    def __init__(
        self, seed: int, opset: int, operators: frozenset[str] | None, says: Says | None, dynamic: float
    ) -> None:
        self.seed = seed
        self.rng = random.Random(f"graph {seed}")
        self.numbers = np.random.default_rng(seed % 2**63)
        self.opset = opset
        self.dynamic = self.rng.random() < dynamic
        self.operators = operators
        self.says = says
        self.favourite = self.rng.choice(("f32", "f32", "f32", *ALL))
        self.inputs: list[Input] = []
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.known: dict[str, Tracked] = {}
        self.symbols: dict[str, int] = {}
        self._is_symbol: dict[int, bool] = {}

    # -- what there is -----------------------------------------------------------------------------

    def dtype(self, name: str) -> str:
        return self.known[name].dtype

    def shape(self, name: str) -> tuple[int, ...]:
        return self.known[name].shape

    def values(self) -> list[str]:
        """Everything that an operator may take, but constants."""
        return [*(i.name for i in self.inputs if not i.index), *(o for n in self.nodes for o in n.outputs if o)]

    def pick(
        self, dtypes: Sequence[str] = ALL, ranks: tuple[int, int] = (0, 4), fits: Callable[[str], bool] | None = None,
        fresh: float = 0.15, low: float | None = None, high: float | None = None,
    ) -> str:
        """A value of one of `dtypes`, of a rank between `ranks`; with the chance `fresh`, or for want of one, an
        input."""
        found = [
            name for name in self.values()
            if self.dtype(name) in dtypes and ranks[0] <= len(self.shape(name)) <= ranks[1]
            and (fits is None or fits(name))
        ]
        if found and low is None and self.rng.random() >= fresh:
            return self.rng.choice(found[-4:] if self.rng.random() < 0.6 else found)
        name = self.fresh(self.any_of(dtypes), self.any_shape(*ranks), low, high)
        if fits is not None and not fits(name):
            raise Rejected("no value fits")
        return name

    def any_of(self, dtypes: Sequence[str]) -> str:
        """A type out of `dtypes`, more often that which this graph likes."""
        return self.favourite if self.favourite in dtypes and self.rng.random() < 0.7 else self.rng.choice(list(dtypes))

    def extent(self) -> int:
        extent = self.rng.choice(EXTENTS)
        return extent if extent or self.rng.random() < 0.4 else 3

    def any_shape(self, low: int, high: int) -> tuple[int, ...]:
        rank = self.rng.choice([r for r in (0, 1, 1, 2, 2, 2, 3, 3, 4, 5) if low <= r <= high] or [low])
        taken = [e for i in self.inputs for e in (i.concrete(self.symbols))]
        shape: list[int] = []
        for _ in range(rank):
            again = taken and self.rng.random() < 0.35
            shape.append(self.rng.choice(taken) if again else self.extent())
        while np.prod([max(e, 1) for e in shape], initial=1) > ELEMENTS:
            largest = shape.index(max(shape))
            shape[largest] = self.rng.choice((1, 2, 3, 5))
        return tuple(shape)

    # -- what is added -----------------------------------------------------------------------------

    def fresh(
        self, dtype: str, shape: Sequence[int], low: float | None = None, high: float | None = None, *,
        index: bool = False, static: bool = False, constant: float = 0.15,
    ) -> str:
        """A new input or, with the chance `constant`, a constant."""
        if dtype in UNSIGNED and self.rng.random() < 0.95:
            constant = 0.0  # most are refused
        if self.rng.random() < constant:
            return self.constant(draw_values(self.numbers, dtype, tuple(shape), low, high))
        name = f"x{len(self.inputs)}"
        extents = tuple(shape) if static or not self.dynamic else tuple(map(self._extent, shape))
        self.inputs.append(Input(name, dtype, extents, low, high, index))
        self.known[name] = exact(draw_values(self.numbers, dtype, tuple(shape), low, high), dtype)
        return name

    def _extent(self, extent: int) -> int | str:
        """The name of an extent that is dynamic in this graph, or the extent."""
        if extent < 2:
            return extent
        if not self._is_symbol.setdefault(extent, self.rng.random() < 0.6):
            return extent
        self.symbols[f"n{extent}"] = extent
        return f"n{extent}"

    def constant(self, array: Array, dtype: str = "") -> str:
        array = array.astype(DTYPES[dtype]) if dtype else array
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        kinds = {np_dtype: short for short, np_dtype in DTYPES.items()}
        self.known[name] = exact(array, kinds[array.dtype])
        return name

    def integers(self, values: Sequence[int]) -> str:
        """Axes, extents, places: a vector of int64."""
        return self.constant(np.array(list(values), np.int64))

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> tuple[str, ...]:
        """Adds an operator; its results. Raises Rejected where it does not exist for such operands."""
        dtypes = tuple(self.dtype(name) if name else "" for name in inputs)
        if self.operators is not None and op not in self.operators:
            raise Rejected(f"{op}: not in the language")
        if not op.startswith("linalg.") and not accepts(op, self.opset, dtypes):
            raise Rejected(f"{op} of {dtypes}")
        operands = [self.known[name] if name else None for name in inputs]
        try:
            with np.errstate(all="ignore"):
                results = evaluate(op, attributes, operands)
        except Invalid as invalid:
            raise Rejected(str(invalid)) from None
        if any(result.value.size > 8 * ELEMENTS for result in results):
            raise Rejected("too large")
        if self.says is not None and not self.says(op, attributes, operands, results):
            raise Rejected(f"{op}: not in this form in the language")
        names = tuple(f"v{sum(len(n.outputs) for n in self.nodes) + k}" for k in range(len(results)))
        self.nodes.append(Node(op, tuple(inputs), names, {k: v for k, v in attributes.items() if v is not None}))
        self.known.update(zip(names, results, strict=True))
        return names

    def step(self) -> None:
        """One operator more, or none if what was drawn does not fit."""
        before = (list(self.inputs), dict(self.constants), list(self.nodes), dict(self.symbols))
        family = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        _, draw = self.rng.choice(DRAWS[family])
        try:
            draw(self)
        except Rejected:
            self.inputs, self.constants, self.nodes, self.symbols = before

    def finish(self) -> Graph:
        """The graph: its results are what nothing reads, some values that are read, rarely an input."""
        read = {name for node in self.nodes for name in node.inputs}
        made = [name for node in self.nodes for name in node.outputs if name]
        results = [name for name in made if name not in read or self.rng.random() < 0.12]
        if self.inputs and self.rng.random() < 0.03:
            results.append(self.rng.choice(self.inputs).name)
        if results and self.rng.random() < 0.02:
            results.append(results[0])
        graph = Graph(
            self.seed, self.opset, tuple(self.inputs), self.constants, tuple(self.nodes), tuple(results), self.symbols
        )
        return graph.pruned()


def draw_graph(
    seed: int, opset: int, operators: frozenset[str] | None = None, says: Says | None = None, dynamic: float = 0.25
) -> Graph:
    """The program of a seed, of `operators` alone if they are given, and of forms that `says` finds can be written:
    always the same for the same arguments."""
    drawer = Drawer(seed, opset, operators, says, dynamic)
    size = drawer.rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 7))
    for _ in range(200):
        drawer.step()
        if len(drawer.nodes) >= size:
            break
    return drawer.finish()
