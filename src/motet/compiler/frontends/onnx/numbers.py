"""Arithmetic on the dynamic number operands of ONNX operators, and checks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.writing import REQUIRE, ModelFacts, NodeWriter

if TYPE_CHECKING:
    import onnx

    from motet.errors import CompileError

_F32, _I64, _BOOL, _F64 = 1, 7, 9, 11  # element types


class Numbers:
    """Writes integer arithmetic on small i64 tensors."""

    def __init__(self, w: NodeWriter) -> None:
        self.w = w

    def of(self, value: Any) -> str:
        return self.w.constant(np.array(value, np.int64), "numbers")

    def read(self, name: str, extents: list[int]) -> str:
        return self.w.reshape(self.w.cast(name, _I64), extents)

    def add(self, a: str, b: str) -> str:
        return self.w.add("Add", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.w.add("Sub", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.w.add("Mul", a, b)

    def flag(self, condition: str) -> str:
        """1 where `condition` holds, else 0."""
        return self.w.cast(condition, _I64)

    def choose(self, condition: str, a: str, b: str) -> str:
        return self.w.add("Where", condition, a, b)

    def less(self, a: str, b: str) -> str:
        return self.w.add("Less", a, b)

    def within(self, value: str, least: str, most: str) -> str:
        return self.w.add("Min", self.w.add("Max", value, least), most)

    def sum(self, value: str, axis: int) -> str:
        return self.w.over("ReduceSum", value, [axis], keepdims=0)

    def shape(self, value: str) -> str:
        """The extents of a tensor, as a vector."""
        known = self.w.facts.shapes.get(value)
        return self.of(known) if known is not None else self.w.add("Shape", value)

    def from_start(self, places: str, extent: str) -> str:
        """Indices from the start; negative ones count from the end."""
        return self.choose(self.less(places, self.of(0)), self.add(places, extent), places)

    def require(self, value: str, condition: str, text: str) -> str:
        """`value` if `condition`, one element, holds; otherwise the call fails with `text`."""
        node = self.w.node
        made = self.w.add("Where", self.w.reshape(condition, []), value, value)
        self.w.nodes[-1].name = f"{node.name}{REQUIRE}{node.op_type}: {text}"
        return made


class Axes:
    """Dynamic axes of a tensor of rank `rank`: `marks` has 1 for each selected axis, else 0."""

    def __init__(self, n: Numbers, name: str, rank: int) -> None:
        count = n.w.facts.shapes.get(name)
        self.rank = rank
        self.count = None if count is None else int(np.prod(count))
        own = n.from_start(n.read(name, [-1, 1]), n.of(rank))
        met = n.flag(n.w.add("Equal", own, n.of(range(rank))))
        self.by_axis = met  # a row for each given axis, a column for each axis of the tensor
        marks = n.sum(met, 0)
        # Each given number selects one axis, and no axis is selected twice.
        good = n.w.add("ReduceMin", n.flag(n.w.add("Equal", n.sum(met, 1), n.of(1))), keepdims=0)
        once = n.w.add("ReduceMax", marks, keepdims=0)
        fits = n.w.add("And", n.w.add("Equal", good, n.of(1)), n.w.add("Equal", once, n.of(1)))
        said = f"expected different axes, each at least -{rank} and at most {rank - 1}"
        self.marks = n.require(marks, fits, said)


    def checked_rows(self, n: Numbers) -> str:
        """A row for each given axis, with a one in its column."""
        return n.add(self.by_axis, n.mul(self.marks, n.of(0)))


def given(node: onnx.NodeProto, facts: ModelFacts, number: int) -> str:
    """The name of an input that depends on data; "" if it follows from extents alone, or is absent."""
    name = node.input[number] if len(node.input) > number else ""
    return name if name and name in facts.of_data and name not in facts.asserted else ""


def refused(node: onnx.NodeProto, facts: ModelFacts, what: str) -> CompileError:
    return facts.model.error(f"node {node.name!r}: {node.op_type} with {what}; expected a constant")
