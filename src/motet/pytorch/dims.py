"""Makes negative dimensions of operators non-negative.

    aten.scatter.src(%x, -1, %index, %source)   →   aten.scatter.src(%x, 2, %index, %source)
    aten.topk(%x, 5)                            →   aten.topk(%x, 5, 2)

For some operators torch-mlir uses a negative dimension as an index into a list, and crashes.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from torch import fx

_NAMES = frozenset({"dim", "dims", "dim0", "dim1", "dim2", "axis", "start_dim", "end_dim", "dimension"})
_OF_RESULT = frozenset({"unsqueeze", "stack", "diag_embed"})  # whose dimensions refer to the result


def settle_dims(graph: fx.Graph) -> None:
    """Makes the given and default dimensions of the operators of `graph` non-negative, in place."""
    for node in graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            _settle(node, node.target)


def _settle(node: fx.Node, target: Any) -> None:
    rank = _rank(node, target)
    if rank is None:
        return
    for number, argument in enumerate(target._schema.arguments):
        if argument.name not in _NAMES:
            continue
        positional = not argument.kwarg_only and number < len(node.args)
        given = node.args[number] if positional else node.kwargs.get(argument.name, argument.default_value)
        counted = _counted(given, rank)
        if counted == given:
            continue
        if positional:
            node.update_arg(number, counted)
        else:
            node.update_kwarg(argument.name, counted)


def _rank(node: fx.Node, target: Any) -> int | None:
    """The rank that a negative dimension refers to; None if unknown."""
    if target._schema.name.removeprefix("aten::") in _OF_RESULT:
        ranks = [_rank_of(node)]
    else:
        first = next((a for a in (*node.args, *node.kwargs.values()) if isinstance(a, (fx.Node, list, tuple))), None)
        ranks = [_rank_of(each) for each in (first if isinstance(first, (list, tuple)) else [first])]
    known = [rank for rank in ranks if rank is not None]
    return max(1, *known) if known else None  # tensors of rank 0 accept 0 and -1


def _rank_of(node: Any) -> int | None:
    value: Any = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.ndim if isinstance(value, torch.Tensor) else None


def _counted(given: Any, rank: int) -> Any:
    if isinstance(given, (list, tuple)):
        return [_counted(each, rank) for each in given]
    is_negative = isinstance(given, int) and not isinstance(given, bool) and given < 0
    return given + rank if is_negative else given
