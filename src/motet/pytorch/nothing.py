"""make-nothing: creates empty tensors directly, whatever the model computes them from, and drops writes of them.

    %v = aten.view(%y, [0, 8])             →     %v = aten.empty([0, 8])
    %z = aten.index_put(%x, [%i], %v)            (%x in the place of %z)

torch-mlir's lowering divides by their extents.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from motet.pytorch.places import SOURCE

_WRITES = frozenset({
    "index_put", "index_add", "index_copy", "scatter", "scatter_add", "scatter_reduce", "masked_scatter",
})  # fmt: skip


def make_nothing(graph: fx.Graph) -> None:
    """Rewrites the graph in place."""
    changed = False
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if _is_nothing(node):
            value = node.meta["val"]
            with graph.inserting_before(node):
                kind = {"dtype": value.dtype, "device": value.device}
                new = graph.call_function(torch.ops.aten.empty.memory_format, (list(value.shape),), kind)
            new.meta = {"val": value, **{key: node.meta[key] for key in SOURCE if key in node.meta}}
        elif _name(node) in _WRITES and any(map(_is_nothing, node.all_input_nodes[1:])):
            new = node.all_input_nodes[0]
        else:
            continue
        node.replace_all_uses_with(new)
        graph.erase_node(node)
        changed = True
    if changed:
        graph.eliminate_dead_code()
        graph.lint()


def _is_nothing(node: fx.Node) -> bool:
    value: Any = node.meta.get("val")
    extents: list[Any] = list(value.shape) if isinstance(value, torch.Tensor) else []
    return 0 in extents and all(isinstance(extent, int) for extent in extents)


def _name(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.").split(".")[0]
