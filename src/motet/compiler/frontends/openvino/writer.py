"""Writes the nodes of an ONNX graph for the operators of an OpenVINO model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.openvino.operation import OpenvinoOperation

if TYPE_CHECKING:
    import onnx

OPSET = 21
LAST = np.iinfo(np.int64).max  # the end of a slice that reaches the end


@dataclass
class Names:
    """Gives out names, each once."""

    given: set[str] = field(default_factory=set[str])
    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def fresh(self, name: str) -> str:
        found = name
        while found in self.given:
            self.numbers[name] = self.numbers.get(name, 1) + 1
            found = f"{name}#{self.numbers[name]}"
        self.given.add(found)
        return found


@dataclass
class GraphWriter:
    """The nodes and constants of a graph. `stem` begins the names of values, and is the operator that is written;
    `rules` are those of all operators.

    A body of a loop or branch has a writer with the same names and constants.
    """

    rules: Rules
    names: Names = field(default_factory=Names)
    constants: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    nodes: list[onnx.NodeProto] = field(default_factory=list["onnx.NodeProto"])
    stem: str = ""

    def body(self) -> GraphWriter:
        return GraphWriter(self.rules, self.names, self.constants, [], self.stem)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.add_all(op, 1, *inputs, **attributes)[0]

    def add_all(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Adds a node with several results."""
        import onnx

        name = self.names.fresh(self.stem)
        outputs = [self.names.fresh(f"{name}:{number}") for number in range(count)]
        self.nodes.append(onnx.helper.make_node(op, inputs, outputs, name, **attributes))
        return outputs

    def constant(self, value: np.ndarray | Sequence[float] | float, dtype: Any = None) -> str:
        name = self.names.fresh(f"{self.stem}/constant")
        self.constants[name] = np.asarray(value, dtype)
        return name

    def ints(self, values: Sequence[int] | int) -> str:
        """A constant of 64-bit integers: a vector, or a scalar."""
        return self.constant(np.array(values, np.int64))

    def cast(self, value: str, dtype: Any) -> str:
        import onnx

        return self.add("Cast", value, to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def joined(self, op: str, values: Sequence[str]) -> str:
        """All values combined by a binary operator."""
        first, *others = values
        for other in others:
            first = self.add(op, first, other)
        return first

    def reshape(self, value: str, extents: Sequence[int]) -> str:
        """`value` of the extents given, of which one may be -1; 0 is an extent of 0."""
        return self.add("Reshape", value, self.ints(extents), allowzero=int(0 in extents))

    def transpose(self, value: str, order: Sequence[int]) -> str:
        return value if list(order) == list(range(len(order))) else self.add("Transpose", value, perm=list(order))

    def unsqueeze(self, value: str, *axes: int) -> str:
        return self.add("Unsqueeze", value, self.ints(axes))

    def squeeze(self, value: str, *axes: int) -> str:
        return self.add("Squeeze", value, self.ints(axes))

    def slice(self, value: str, axis: int, start: int, stop: int = LAST, step: int = 1) -> str:
        return self.add("Slice", value, *(self.ints([number]) for number in (start, stop, axis, step)))

    def take(self, value: str, indices: np.ndarray, axis: int) -> str:
        """The slices of `value` at constant indices."""
        return self.add("Gather", value, self.constant(indices.astype(np.int64)), axis=axis)

    def extent(self, value: str, axis: int) -> str:
        """An extent as a vector of one element."""
        return self.add("Shape", value, start=axis, end=axis + 1)

    def reduce(self, op: str, value: str, axes: Sequence[int], keep: bool = True) -> str:
        return self.add(op, value, self.ints(axes), keepdims=int(keep))


Rule = Callable[[OpenvinoOperation, GraphWriter], "str | list[str]"]
Rules = dict[str, Rule]


def widened(op: OpenvinoOperation, w: GraphWriter, place: int = 0) -> str:
    """An operand, in f32 if it is a shorter float: sums and roots are computed in f32 and rounded once."""
    return w.cast(op.inputs[place], np.float32) if is_short(op.dtype(place)) else op.inputs[place]


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if is_short(dtype) else dtype


def is_short(dtype: np.dtype[Any]) -> bool:
    return dtype.name in ("float16", "bfloat16")


def rounded(op: OpenvinoOperation, w: GraphWriter, value: str) -> str:
    """`value`, of the type of `widened`, in the type of the operator's result."""
    return w.cast(value, op.result_dtype()) if is_short(op.result_dtype()) else value
