"""Computes arithmetic on unsigned integers, which torch-mlir treats as signed, in wider signed integers.

    c = add(a, b)         a, b and c uint8    →    c = add(a.int32, b.int32).uint8
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils._pytree import tree_map

from motet.errors import CompileError
from motet.pytorch.places import SOURCE, called, find_place

_WIDER = {torch.uint8: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
_UNSIGNED = (*_WIDER, torch.uint64)
# Operators with the same bits for signed and unsigned integers of one type, or with results of another type.
_SIGNLESS = frozenset({
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "cat", "clone",
    "unsqueeze", "squeeze", "flip", "index", "index_select", "gather", "where", "alias", "detach", "lift_fresh_copy",
    "copy", "logical_not", "eq.Tensor", "ne.Tensor", "_to_copy", "stack", "split",
    "split_with_sizes", "repeat", "roll", "embedding", "full_like", "convert_element_type", "_assert_tensor_metadata",
    "sym_size",
})  # fmt: skip


def widen_unsigned(graph: Graph, name: str) -> None:
    """Rewrites the graph in place. Raises CompileError for an operator on integers without a wider type; `name` is the
    program's."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not _is_of_unsigned(node):
            continue
        whole = str(node.target).removeprefix("aten.").removeprefix("prims.")
        operator = whole.split(".")[0]
        if operator in _SIGNLESS or whole in _SIGNLESS or "getitem" in operator or _pads_by_zeros(node):
            continue
        before = node.meta["val"]
        given = [n.meta.get("val") for n in node.all_input_nodes]
        kinds = [v.dtype for v in given if _is_unsigned(v)] + [node.kwargs.get("dtype")]
        if any(kind in _UNSIGNED and kind not in _WIDER for kind in kinds) or not isinstance(before, torch.Tensor):
            raise CompileError(
                f"{called(node)} of unsigned integers: the lowering takes them for signed ones; convert them first, "
                "as by x.int()", find_place(node, name),
            )
        _widen(graph, node)


def _is_of_unsigned(node: Node) -> bool:
    """Whether the operator takes tensors of unsigned integers, or takes tensors and is asked to compute in such."""
    given = [n.meta.get("val") for n in node.all_input_nodes]
    if node.kwargs.get("dtype") in _UNSIGNED and any(isinstance(value, torch.Tensor) for value in given):
        return True
    return any(map(_is_unsigned, given))


def _pads_by_zeros(node: Node) -> bool:
    return node.target == torch.ops.aten.constant_pad_nd.default and not any(node.args[2:])


def _is_unsigned(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _UNSIGNED


def _widen(graph: Graph, node: Node) -> None:
    before = node.meta["val"]

    def wide(argument: Any) -> Any:
        if isinstance(argument, torch.dtype):
            return _WIDER.get(argument, argument)
        if not isinstance(argument, Node) or not _is_unsigned(argument.meta.get("val")):
            return argument
        with graph.inserting_before(node):
            return _converted(graph, argument, _WIDER[argument.meta["val"].dtype], node)

    args, kwargs = tree_map(wide, node.args), tree_map(wide, node.kwargs)
    values = tree_map(lambda a: a.meta["val"] if isinstance(a, Node) else a, (args, dict(kwargs)))
    with before.fake_mode:
        found = node.target(*values[0], **values[1])  # pyright: ignore[reportCallIssue]
    if found.dtype == before.dtype:
        node.args, node.kwargs = args, kwargs
        return
    with graph.inserting_before(node):
        made = graph.call_function(node.target, args, dict(kwargs))  # pyright: ignore[reportArgumentType]
    made.meta = _meta(found, node)
    # The node itself becomes the conversion, since results are identified by the names of nodes.
    node.target, node.args, node.kwargs = torch.ops.aten._to_copy.default, (made,), {"dtype": before.dtype}


def _converted(graph: Graph, node: Node, dtype: torch.dtype, like: Node) -> Node:
    """`node` as `dtype`, at the graph's insertion point, with the source location of `like`."""
    operator = torch.ops.aten._to_copy.default
    made = graph.call_function(operator, (node,), {"dtype": dtype})
    value = node.meta["val"]
    with value.fake_mode:
        made.meta = _meta(operator(value, dtype=dtype), like)
    return made


def _meta(value: Any, like: Node) -> dict[str, Any]:
    return {"val": value} | {key: like.meta[key] for key in SOURCE if key in like.meta}
