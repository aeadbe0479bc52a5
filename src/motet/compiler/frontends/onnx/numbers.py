"""Arithmetic on the dynamic number operands of ONNX operators, and checks of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.extent_demands import Demand, Size
from motet.compiler.frontends.onnx.writing import REQUIRE, ModelFacts, NodeWriter

if TYPE_CHECKING:
    import onnx

    from motet.errors import CompileError

_I64 = 7  # an element type
_OPERATORS = {"+": "Add", "*": "Mul", "//": "Div", "%": "Mod", "==": "Equal", ">": "Greater", "|": "Or"}


class Numbers(NodeWriter):
    """Writes nodes, also integer arithmetic on small i64 tensors."""

    def of(self, value: Any) -> str:
        return self.constant(np.array(value, np.int64), "numbers")

    def read(self, name: str, extents: list[int]) -> str:
        return self.reshape(self.cast(name, _I64), extents)

    def plus(self, a: str, b: str) -> str:
        return self.add("Add", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.add("Sub", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.add("Mul", a, b)

    def flag(self, condition: str) -> str:
        """1 where `condition` holds, else 0."""
        return self.cast(condition, _I64)

    def choose(self, condition: str, a: str, b: str) -> str:
        return self.add("Where", condition, a, b)

    def less(self, a: str, b: str) -> str:
        return self.add("Less", a, b)

    def within(self, value: str, least: str, most: str) -> str:
        return self.add("Min", self.add("Max", value, least), most)

    def sum(self, value: str, axis: int) -> str:
        return self.over("ReduceSum", value, [axis], keepdims=0)

    def shape(self, value: str) -> str:
        """The extents of a tensor, as a vector."""
        known = self.facts.shapes.get(value)
        return self.of(known) if known is not None else self.add("Shape", value)

    def from_start(self, places: str, extent: str) -> str:
        """Indices from the start; negative ones count from the end."""
        return self.choose(self.less(places, self.of(0)), self.plus(places, extent), places)

    def require(self, value: str, condition: str, text: str) -> str:
        """`value` if `condition`, one element, holds; otherwise the call fails with `text`."""
        made = self.add("Where", self.reshape(condition, []), value, value)
        self.nodes[-1].name = f"{self.node.name}{REQUIRE}{self.node.op_type}: {text}"
        return made

    def demanded(self, demand: Demand) -> str:
        """The first input that `demand` is about, which must be met in a call."""
        sizes = [self.extent(self.node.input[number], axis) for number, axis in demand.places]
        made = self.require(self.node.input[demand.number], self.met(demand, sizes), str(demand))
        self.facts.model.demands.add(made)
        return made

    def met(self, demand: Demand, sizes: Sequence[str | int]) -> str:
        """The condition that extents fit of which some are values of the graph."""
        return demand.fits(*(Size(size, self._written) if isinstance(size, str) else size for size in sizes)).value

    def _written(self, name: str, left: str | int, right: str | int) -> str:
        if name == "<=":  # operator sets before 12 have only Greater
            name, left, right = ">", right, left - 1 if isinstance(left, int) else self._written("+", left, -1)
        a, b = (self.of(side) if isinstance(side, int) else side for side in (left, right))
        return self.add(_OPERATORS[name], a, b)


class Axes:
    """Dynamic axes of a tensor of rank `rank`: `marks` has 1 for each selected axis, else 0."""

    def __init__(self, n: Numbers, name: str, rank: int) -> None:
        count = n.facts.shapes.get(name)
        self.rank = rank
        self.count = None if count is None else int(np.prod(count))
        own = n.from_start(n.read(name, [-1, 1]), n.of(rank))
        met = n.flag(n.add("Equal", own, n.of(range(rank))))
        self.by_axis = met  # a row for each given axis, a column for each axis of the tensor
        marks = n.sum(met, 0)
        # Each given number selects one axis, and no axis is selected twice.
        good = n.add("ReduceMin", n.flag(n.add("Equal", n.sum(met, 1), n.of(1))), keepdims=0)
        once = n.add("ReduceMax", marks, keepdims=0)
        fits = n.add("And", n.add("Equal", good, n.of(1)), n.add("Equal", once, n.of(1)))
        said = f"expected different axes, each at least -{rank} and at most {rank - 1}"
        self.marks = n.require(marks, fits, said)

    def checked_rows(self, n: Numbers) -> str:
        """A row for each given axis, with a one in its column."""
        return n.plus(self.by_axis, n.mul(self.marks, n.of(0)))


def given(node: onnx.NodeProto, facts: ModelFacts, number: int) -> str:
    """The name of an input that depends on data; "" if it follows from extents alone, or is absent."""
    name = node.input[number] if len(node.input) > number else ""
    return name if name and name in facts.of_data and name not in facts.asserted else ""


def refused(node: onnx.NodeProto, facts: ModelFacts, what: str) -> CompileError:
    return facts.model.error(f"node {node.name!r}: {node.op_type} with {what}; expected a constant")
