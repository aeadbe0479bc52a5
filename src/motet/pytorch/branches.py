"""settle-branches: rewrites torch.cond as both of its bodies and a selection between their results.

    %y = cond(%p, @then, @else, (%x))   →   %a = …then(%x)   %b = …else(%x)   %y = aten.where(%p, %a, %b)

Bodies that torch.export accepts have no effects, and results of equal shapes.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from motet.pytorch.inlining import Table, copy_into, inline


def settle_branches(graph: fx.Graph, table: Table) -> None:
    """Rewrites the graph in place, including nested bodies."""
    cond = torch.ops.higher_order.cond
    while found := [node for node in graph.nodes if node.op == "call_function" and node.target is cond]:
        for node in found:
            _settle(node, table)
    graph.eliminate_dead_code()
    _drop_bodies(graph)


def _drop_bodies(graph: fx.Graph) -> None:
    """Removes the bodies, which the importer would take for functions of the program."""
    owner: Any = graph.owning_module
    used = {node.target for node in graph.nodes if node.op == "get_attr"}
    for name, child in list(owner.named_children()):
        if isinstance(child, fx.GraphModule) and name not in used:
            delattr(owner, name)


def _settle(node: fx.Node, table: Table) -> None:
    graph = node.graph
    predicate, *bodies, operands = node.args
    results = [_called(node, body, list(operands)) for body in bodies]  # pyright: ignore[reportArgumentType]
    chosen = [_choose(node, predicate, first, second, table) for first, second in zip(*results, strict=True)]
    for user in list(node.users):
        if user.target is operator.getitem:
            user.replace_all_uses_with(chosen[user.args[1]])  # pyright: ignore
            graph.erase_node(user)
    graph.erase_node(node)


def _called(node: fx.Node, body: Any, operands: list[Any]) -> list[Any]:
    """Inlines a body; returns its results."""
    owner: Any = node.graph.owning_module
    module = owner.get_submodule(body.target)
    for each in module.graph.nodes:
        if each.op == "get_attr":  # a nested torch.cond's body: names repeat at each level
            held, each.target = getattr(module, each.target), f"{body.target}_{each.target}"
            for place in (module, owner):
                setattr(place, each.target, held)
    found = copy_into(node, module, operands)
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _choose(node: fx.Node, predicate: Any, first: Any, second: Any, table: Table) -> Any:
    if first is second or not isinstance(first, fx.Node):
        return first
    if isinstance(predicate, bool):
        return first if predicate else second
    anchor = node.next  # the node itself has several values, and no fake mode
    return inline(anchor if _is_tensor(anchor) else node, torch.where, (predicate, first, second), table)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
