"""Makes Python's functions of extents operators, which the compiler lowers (`compiler/frontends/torch/numbers.py`).

    torch.sym_min(%n, 5)              →   motet.extent_min(%n, 5)
    math.ceil(operator.truediv(%n, 3))   →   motet.extent_ceil(motet.extent_div(motet.extent_float(%n), 3.0))

Sums, differences, products and // of integers stay as they are.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from motet.errors import CompileError
from motet.pytorch.places import SOURCE, find_place

_OF_INTEGERS: Mapping[Any, str] = {torch.sym_min: "min", torch.sym_max: "max", operator.mod: "mod"}
_ROUNDED: Mapping[Any, str] = {
    math.ceil: "ceil", math.floor: "floor", math.trunc: "trunc", round: "round", torch.sym_int: "trunc",
}  # fmt: skip
_OF_FLOATS: Mapping[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div", operator.pow: "pow",
    torch.sym_min: "least", torch.sym_max: "most",
}  # fmt: skip
_ROOT = getattr(torch, "_sym_sqrt", None)
_LEFT = frozenset({operator.add, operator.sub, operator.mul, operator.floordiv, operator.neg})  # the importer has them
_SCHEMAS: Mapping[str, str] = {
    **dict.fromkeys(_OF_INTEGERS.values(), "(SymInt a, SymInt b) -> SymInt"),
    **dict.fromkeys(_ROUNDED.values(), "(float a) -> SymInt"),
    **dict.fromkeys(_OF_FLOATS.values(), "(float a, float b) -> float"),
    "float": "(SymInt a) -> float",
}


def state_specialised(graph: fx.Graph) -> None:
    """Gives inputs the extents that tracing took for those of the example, though they were to be dynamic: only the
    tensors that it made of them know."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or not isinstance(value, torch.Tensor):
            continue
        known = [int(extent) if _is_number(extent) else extent for extent in value.shape]
        if any(isinstance(extent, torch.SymInt) and _is_number(extent) for extent in value.shape):
            with value.fake_mode:  # pyright: ignore[reportAttributeAccessIssue]
                node.meta["val"] = value.new_empty(known)
            node.meta.pop("tensor_meta", None)


def _is_number(extent: Any) -> bool:
    return isinstance(extent, int) or extent.node.expr.is_number


def settle_extents(graph: fx.Graph, name: str) -> None:
    """Rewrites the graph in place. Raises CompileError for another function of extents; `name` is the program's."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if isinstance(node.target, torch._ops.OpOverload):
            _take_number(node, node.target)
            continue
        if not isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat)):
            continue
        with graph.inserting_before(node):
            made = _settled(graph, node)
        if made is None:
            function = getattr(node.target, "__name__", str(node.target)).removeprefix("sym_").removeprefix("_sym_")
            raise CompileError(
                f"{function} of extents: it has no lowering; expected sums, differences, products, quotients, %, min, "
                "max, round, powers and roots of extents; or pass the number as a tensor", find_place(node, name),
            )
        if made is not node:
            node.replace_all_uses_with(made)
            graph.erase_node(node)


def _take_number(node: fx.Node, target: torch._ops.OpOverload) -> None:
    """Chooses the form of an operator whose second operand is a number where that operand is one, such as an extent."""
    other: Any = node.args[1] if len(node.args) > 1 else None
    if not isinstance(other, fx.Node) or not isinstance(other.meta.get("val"), (torch.SymInt, torch.SymFloat)):
        return
    name = target._overloadname.replace("Tensor", "Scalar")
    if target._overloadname.startswith("Tensor") and hasattr(target.overloadpacket, name):
        node.target = getattr(target.overloadpacket, name)


def _settled(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """The node, or one in its place; None if there is no operator for it."""
    whole = isinstance(node.meta["val"], torch.SymInt)
    target, given = node.target, list(node.args)
    if target in _ROUNDED and len([each for each in given if each is not None]) == 1:
        if _is_whole(given[0]):
            return given[0] if isinstance(given[0], fx.Node) else None
        return _operator(graph, node, _ROUNDED[target], [given[0]])
    if whole:
        if target in _LEFT:
            return node
        if target is operator.pow and isinstance(given[1], int) and 0 < given[1] <= 8:
            made: Any = given[0]
            for _ in range(given[1] - 1):
                value = made.meta["val"] * given[0].meta["val"]
                made = _like(graph.call_function(operator.mul, (made, given[0])), node, value)
            return made
        return _operator(graph, node, _OF_INTEGERS[target], given) if target in _OF_INTEGERS else None
    if target is torch.sym_float:
        return _as_float(graph, node, given[0])
    if target is operator.neg:
        target, given = operator.sub, [0.0, *given]
    elif _ROOT is not None and target is _ROOT:
        target, given = operator.pow, [*given, 0.5]
    if target not in _OF_FLOATS:
        return None
    return _operator(graph, node, _OF_FLOATS[target], [_as_float(graph, node, each) for each in given])


def _is_whole(value: Any) -> bool:
    return isinstance(value.meta["val"] if isinstance(value, fx.Node) else value, (int, torch.SymInt))


def _as_float(graph: fx.Graph, node: fx.Node, value: Any) -> Any:
    if not isinstance(value, fx.Node):
        return float(value)
    if not _is_whole(value):
        return value
    return _like(_operator(graph, node, "float", [value]), node, torch.sym_float(value.meta["val"]))


def _operator(graph: fx.Graph, node: fx.Node, name: str, given: list[Any]) -> fx.Node:
    """A call of an operator in the place of `node`, registered with PyTorch when it is first needed."""
    whole = f"extent_{name}"
    if not hasattr(torch.ops.motet, whole):
        torch.library.define(f"motet::{whole}", _SCHEMAS[name])
    return _like(graph.call_function(getattr(torch.ops.motet, whole).default, tuple(given)), node, node.meta["val"])


def _like(made: fx.Node, node: fx.Node, value: Any) -> fx.Node:
    """The node `made` with the place of `node` in the source."""
    made.meta = {"val": value} | {key: node.meta[key] for key in SOURCE if key in node.meta}
    return made
