"""Writes graphs as StableHLO, a function for each; extents are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tests.fuzz import as_mlir
from tests.fuzz.as_mlir import literal, neutral
from tests.fuzz.dtypes import UNSIGNED
from tests.fuzz.graph import Graph, Node
from tests.fuzz.scalars import element
from tests.fuzz.tracked import Tracked

_UNARY = {
    "Exp": "exponential", "Log": "log", "Sqrt": "sqrt", "Sin": "sine", "Cos": "cosine", "Tan": "tan", "Tanh": "tanh",
    "Floor": "floor", "Ceil": "ceil", "Round": "round_nearest_even", "Neg": "negate", "Abs": "abs", "Not": "not",
    "BitwiseNot": "not", "Sigmoid": "logistic", "Sign": "sign",
}  # fmt: skip
_BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Max": "maximum", "Min": "minimum", "And": "and", "Or": "or",
    "Xor": "xor", "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor", "Div": "divide", "Pow": "power",
}  # fmt: skip
_RELATIONS = {"Equal": "EQ", "Less": "LT", "Greater": "GT", "LessOrEqual": "LE", "GreaterOrEqual": "GE"}
_FOLDS = {"ReduceSum": "add", "ReduceProd": "multiply", "ReduceMax": "maximum", "ReduceMin": "minimum"}
OPERATORS = frozenset(_UNARY) | frozenset(_BINARY) | frozenset(_RELATIONS) | frozenset(_FOLDS) | {
    "Where", "Cast", "Transpose", "Expand", "Slice", "Pad", "Concat", "Unsqueeze", "Squeeze", "Identity", "Reshape",
    "MatMul", "Clip",
}


def says(
    op: str, attributes: Mapping[str, Any], operands: Sequence[Tracked | None], results: Sequence[Tracked]
) -> bool:
    """Whether this form of an operator is written here."""
    if op in ("Neg", "Abs", "Sign") and operands[0] is not None and operands[0].dtype in UNSIGNED:
        return False
    if op == "Clip" and any(x is None or x.dtype == "bool" for x in operands):
        return False
    if op == "MatMul":
        return all(x is not None and len(x.shape) == 2 for x in operands)
    if op in ("Max", "Min") and any(x is not None and x.dtype == "bool" for x in operands):
        return False
    if op == "Pow":
        return operands[0] is not None and operands[1] is not None and operands[0].dtype == operands[1].dtype
    return as_mlir.says(op, attributes, operands, results)


def stablehlo_module(graphs: Sequence[Graph]) -> str:
    return "\n".join(_Writer(graph, f"p{number}").function() for number, graph in enumerate(graphs))


def _element(dtype: str) -> str:
    return f"ui{dtype[1:]}" if dtype in UNSIGNED else element(dtype)


def _tensor(dtype: str, shape: Sequence[Any]) -> str:
    return f"tensor<{''.join(f'{e}x' for e in shape)}{_element(dtype)}>"


class _Writer(as_mlir.Writer):
    constant = "stablehlo.constant"

    def type(self, name: str) -> str:
        return _tensor(self.dtype(name), self.shape(name))

    def spread(self, name: str, shape: Sequence[Any]) -> str:
        """A value as large as the result that it is broadcast to."""
        own = self.shape(name)
        if tuple(own) == tuple(shape):
            return f"%{name}"
        self.count += 1
        fresh = f"%b{self.count}"
        dims = list(range(len(shape) - len(own), len(shape)))
        self.say(f"{fresh} = stablehlo.broadcast_in_dim %{name}, dims = {dims} : ({self.type(name)}) -> "
                 f"{_tensor(self.dtype(name), shape)}")
        return fresh

    def scalar(self, value: str, dtype: str) -> str:
        self.count += 1
        self.say(f"%k{self.count} = stablehlo.constant dense<{value}> : {_tensor(dtype, ())}")
        return f"%k{self.count}"

    def write(self, node: Node) -> None:
        op, result = node.op, node.outputs[0]
        kind, shape = self.type(result), self.shape(result)
        first = node.inputs[0]
        if op in _UNARY:
            self.say(f"%{result} = stablehlo.{_UNARY[op]} %{first} : {kind}")
        elif op in _BINARY:
            a, b = (self.spread(name, shape) for name in node.inputs)
            self.say(f"%{result} = stablehlo.{_BINARY[op]} {a}, {b} : {kind}")
        elif op in _RELATIONS:
            a, b = (self.spread(name, shape) for name in node.inputs)
            side = _tensor(self.dtype(first), shape)
            self.say(f"%{result} = stablehlo.compare {_RELATIONS[op]}, {a}, {b} : ({side}, {side}) -> {kind}")
        elif op == "Where":
            c, a, b = (self.spread(name, shape) for name in node.inputs)
            self.say(f"%{result} = stablehlo.select {c}, {a}, {b} : {_tensor('bool', shape)}, {kind}")
        elif op == "Clip":
            self.say(f"%{result}m = stablehlo.maximum %{first}, {self.spread(node.inputs[1], shape)} : {kind}")
            self.say(f"%{result} = stablehlo.minimum %{result}m, {self.spread(node.inputs[2], shape)} : {kind}")
        elif op == "Cast":
            self.say(f"%{result} = stablehlo.convert %{first} : ({self.type(first)}) -> {kind}")
        else:
            self._move(node)

    def _move(self, node: Node) -> None:
        op, result, first = node.op, node.outputs[0], node.inputs[0]
        kind, shape = self.type(result), self.shape(result)
        if op == "Transpose":
            order = node.attributes.get("perm") or list(reversed(range(len(shape))))
            self.say(f"%{result} = stablehlo.transpose %{first}, dims = {order} : ({self.type(first)}) -> {kind}")
        elif op == "Expand":
            dims = list(range(len(shape) - len(self.shape(first)), len(shape)))
            self.say(f"%{result} = stablehlo.broadcast_in_dim %{first}, dims = {dims} : ({self.type(first)}) -> {kind}")
        elif op in ("Squeeze", "Unsqueeze", "Reshape", "Identity"):
            self.say(f"%{result} = stablehlo.reshape %{first} : ({self.type(first)}) -> {kind}")
        elif op == "Concat":
            kinds = ", ".join(self.type(i) for i in node.inputs)
            self.say(f"%{result} = stablehlo.concatenate {', '.join(f'%{i}' for i in node.inputs)}, "
                     f"dim = {node.attributes['axis'] % len(shape)} : ({kinds}) -> {kind}")
        elif op == "MatMul":
            self.say(f"%{result} = stablehlo.dot_general %{first}, %{node.inputs[1]}, contracting_dims = [1] x [0] : "
                     f"({self.type(first)}, {self.type(node.inputs[1])}) -> {kind}")
        elif op == "Slice":
            self._slice(node)
        elif op == "Pad":
            self._pad(node)
        else:
            self._reduce(node)

    def _slice(self, node: Node) -> None:
        first, result = node.inputs[0], node.outputs[0]
        parts = [self.graph.constants[name].tolist() for name in node.inputs[1:5]]
        extents = self.shape(first)
        shown = [f"0:{e}:1" for e in extents]
        for begin, _, axis, by in zip(*parts, strict=True):
            extent = extents[axis]
            begin = min(max(begin + extent if begin < 0 else begin, 0), extent)
            size = self.shape(result)[axis]
            shown[axis] = f"{begin}:{begin + (size - 1) * by + 1}:{by}" if size else f"0:0:{by}"
        self.say(f"%{result} = stablehlo.slice %{first} [{', '.join(shown)}] : ({self.type(first)}) -> "
                 f"{self.type(result)}")

    def _pad(self, node: Node) -> None:
        first, result = node.inputs[0], node.outputs[0]
        pads = self.graph.constants[node.inputs[1]].tolist()
        rank, dtype = len(pads) // 2, self.dtype(result)
        fill = f"%{node.inputs[2]}" if len(node.inputs) > 2 else self.scalar(literal(np.zeros(()), dtype), dtype)
        self.say(f"%{result} = stablehlo.pad %{first}, {fill}, low = {pads[:rank]}, high = {pads[rank:]}, "
                 f"interior = {[0] * rank} : ({self.type(first)}, {_tensor(dtype, ())}) -> {self.type(result)}")

    def _reduce(self, node: Node) -> None:
        first, result = node.inputs[0], node.outputs[0]
        dtype = self.dtype(first)
        axes = sorted({int(axis) % len(self.shape(first)) for axis in self.graph.constants[node.inputs[1]]})
        start = self.scalar(neutral(node.op, dtype), dtype)
        self.say(f"%{result} = stablehlo.reduce(%{first} init: {start}) applies stablehlo.{_FOLDS[node.op]} across "
                 f"dimensions = {axes} : ({self.type(first)}, {_tensor(dtype, ())}) -> {self.type(result)}")

