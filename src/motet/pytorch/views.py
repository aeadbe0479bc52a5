"""settle-views: rewrites views between dynamic extents as merges and splits of dimensions.

    %v = aten.view(%x, [b·l, 16])    // of b×l×2×8   →   aten.flatten(aten.flatten(%x, 0, 1), 1, 2)

In PyTorch's graph, extents are symbolic expressions, which determine the corresponding dimensions. MLIR's types only
have dynamic extents, and torch-mlir's lowering of views would have to guess, sometimes wrongly.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from motet.compiler.passes.normalise.reassociation import Monomial, match_groups

_VIEWS = (
    torch.ops.aten.view.default, torch.ops.aten.reshape.default, torch.ops.aten._unsafe_view.default,
)  # fmt: skip
_FLATTEN = torch.ops.aten.flatten.using_ints
_UNFLATTEN = torch.ops.aten.unflatten.int


def settle_views(graph: fx.Graph) -> None:
    """Rewrites the graph in place; views of static extents are kept."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _VIEWS:
            _settle(graph, node)
    graph.lint()


def _settle(graph: fx.Graph, node: fx.Node) -> None:
    source: Any = node.args[0]
    sizes: Any = node.args[1]
    before, after = source.meta["val"].shape, node.meta["val"].shape
    if all(isinstance(extent, int) for extent in (*before, *after)) or not before or not after:
        return
    groups = match_groups([_monomial(extent) for extent in before], [_monomial(extent) for extent in after])
    if any(_unsplittable(sizes, targets) for _, targets in groups):
        return
    with graph.inserting_before(node):
        value: Any = source
        for axis, (axes, _) in enumerate(groups):
            if len(axes) > 1:
                value = _insert(graph, node, _FLATTEN, value, axis, axis + len(axes) - 1)
        for axis, (_, targets) in reversed(list(enumerate(groups))):
            if len(targets) > 1:
                value = _insert(graph, node, _UNFLATTEN, value, axis, [sizes[target] for target in targets])
    node.replace_all_uses_with(value)
    graph.erase_node(node)


def _unsplittable(sizes: Sequence[Any], targets: Sequence[int]) -> bool:
    """Whether a size to be inferred by torch is among those that a dimension is split into."""
    return len(targets) != 1 and (not targets or any(sizes[target] == -1 for target in targets))


def _insert(graph: fx.Graph, like: fx.Node, operator: Any, source: fx.Node, *arguments: Any) -> fx.Node:
    new = graph.call_function(operator, (source, *arguments))
    values = [
        [_value(item) for item in argument] if isinstance(argument, list) else argument for argument in arguments
    ]
    new.meta = {**like.meta, "val": operator(source.meta["val"], *values)}
    new.meta.pop("tensor_meta", None)
    return new


def _value(item: Any) -> Any:
    return item.meta["val"] if isinstance(item, fx.Node) else item


def _monomial(extent: Any) -> Monomial:
    if isinstance(extent, int):
        return Monomial(extent)
    formula: Any = extent.node.expr.factor()
    number, product = formula.as_coeff_Mul()
    if not number.is_Integer:
        return Monomial(1, ((str(formula), 1),))
    result = Monomial(int(number))
    for factor in product.args if product.is_Mul else (product,):
        base, power = factor.as_base_exp()
        if power.is_Integer and power > 0:
            result = result.times(Monomial(1, ((str(base), int(power)),)))
        else:
            result = result.times(Monomial(1, ((str(factor), 1),)))
    return result

