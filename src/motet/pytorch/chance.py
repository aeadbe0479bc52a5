"""Takes random numbers out of graphs: torch draws them before each call, and the graph reads them as inputs.

    native_dropout(x, 0.5)                      →    mask = bernoulli(empty_like(x), 0.5)      drawn by torch
                                                     x * mask * 2, mask                        compiled

The draws are those of PyTorch's own operators on the same device, so that its generators and seeds apply.
"""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

_ATEN = torch.ops.aten


def _strided_bernoulli(like: Any, p: float) -> Any:
    """In the order of the strides of `like`, as dropout has it; the operator's is that of contiguous tensors."""
    return torch.empty_like(like).bernoulli_(p)


# Operators whose results depend on no element of their arguments.
_DRAWN: Mapping[Any, Callable[..., Any]] = {operator: operator for operator in (
    _ATEN.rand.default, _ATEN.rand_like.default, _ATEN.randn.default, _ATEN.randn_like.default, _ATEN.randperm.default,
    _ATEN.randint.default, _ATEN.randint.low, _ATEN.randint_like.default, _ATEN.randint_like.low_dtype,
    _ATEN.uniform.default, _ATEN.normal.float_float, _ATEN.normal_functional.default, _ATEN.exponential.default,
)} | {_ATEN.bernoulli.p: _strided_bernoulli}  # fmt: skip


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Those that separate the random numbers of an operator from its arithmetic."""
    return {_ATEN.native_dropout.default: _dropout, _ATEN.bernoulli.default: _bernoulli}


def _dropout(x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """The result and its mask, for the same state of the generator as PyTorch's on the cpu."""
    shape_of = torch.empty_like(x, dtype=torch.bool)
    if train is False or p == 0:
        return x.clone(), torch.ones_like(shape_of)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(shape_of)
    mask = _ATEN.bernoulli.p(shape_of, 1 - p)
    return x * mask * (1 / (1 - p)), mask


def _bernoulli(x: Any, *, generator: Any = None) -> Any:
    return (torch.rand_like(x) < x).to(x.dtype)


@dataclass(frozen=True)
class Draws:
    """The calls that make the random numbers of a graph, whose other inputs are `inputs`: functions and their
    arguments, where tensors and extents are those of tracing."""

    calls: Sequence[tuple[Any, Any, Any]]
    inputs: Sequence[Any]

    def draw(self, arguments: Sequence[Any]) -> list[Any]:
        """New numbers for a call of the graph with `arguments`."""
        symbol = next(filter(None, map(_symbolic, self.inputs)), None)
        extents = symbol.node.shape_env.bind_symbols(self.inputs, arguments) if symbol is not None else {}

        def known(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                sizes, strides = ([known(one) for one in given] for given in (value.shape, value.stride()))
                return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
            return int(value.node.expr.xreplace(extents)) if isinstance(value, torch.SymInt) else value

        return [draw(*tree_map(known, args), **tree_map(known, kwargs)) for draw, args, kwargs in self.calls]


def take_draws(program: fx.GraphModule) -> Draws:
    """Replaces the graph's random numbers by additional inputs, which follow the others."""
    graph = program.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    last = placeholders[-1] if placeholders else None
    calls: list[tuple[Any, Any, Any]] = []
    for number, node in enumerate(list(graph.nodes)):
        if node.op != "call_function" or node.target not in _DRAWN:
            continue
        calls.append((_DRAWN[node.target], *fx.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])))
        with graph.inserting_after(last) if last else graph.inserting_before():
            last = graph.placeholder(f"drawn_{number}")
        last.meta = dict(node.meta)
        node.replace_all_uses_with(last)
        sources = node.all_input_nodes
        for unused in (node, *(source for source in sources if source.op != "placeholder" and len(source.users) == 1)):
            graph.erase_node(unused)
    program.recompile()
    return Draws(calls, [node.meta["val"] for node in placeholders])


def _symbolic(value: Any) -> Any:
    """A symbolic extent of an input of a graph; None if it has none."""
    sizes = value.shape if isinstance(value, torch.Tensor) else [value]
    return next((size for size in sizes if isinstance(size, torch.SymInt)), None)
