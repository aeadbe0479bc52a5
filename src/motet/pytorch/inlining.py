"""Replaces a node of an exported program's graph by the operators of a Python function."""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from motet.pytorch.places import SOURCE

Table = dict[Any, Callable[..., Any]]


def inline(node: fx.Node, function: Callable[..., Any], arguments: Any, table: Table) -> Any:
    """Traces `function(*arguments)` to nodes before `node`; returns its results. `arguments` has nodes where
    `function` expects tensors and symbolic numbers; operators are decomposed by `table`."""
    flat, shape = tree_flatten(arguments)
    nodes = [each for each in flat if isinstance(each, fx.Node)]
    shapes: list[Any] = []

    def on_values(*values: Any) -> Any:
        given = iter(values)
        result = function(*tree_unflatten([next(given) if isinstance(each, fx.Node) else each for each in flat], shape))
        results, form = tree_flatten(result)
        shapes.append(form)
        return results

    values = [each.meta["val"] for each in nodes]
    with _fake_mode([node.meta.get("val"), *values]):
        traced = make_fx(on_values, decomposition_table=table)(*values)
    return tree_unflatten(copy_into(node, traced, nodes), shapes[-1])


def _fake_mode(values: list[Any]) -> Any:
    return next(value.fake_mode for value in values if isinstance(value, torch.Tensor))


def copy_into(node: fx.Node, module: fx.GraphModule, arguments: list[Any]) -> Any:
    """Copies the graph of `module`, called with `arguments`, before `node`; returns its results."""
    graph = node.graph
    known: dict[fx.Node, Any] = {}
    given = iter(arguments)
    with graph.inserting_before(node):
        for each in module.graph.nodes:
            if each.op == "placeholder":
                known[each] = next(given)
            elif each.op == "output":
                return tree_map(lambda value: known[value] if isinstance(value, fx.Node) else value, each.args[0])
            else:
                known[each] = new = graph.node_copy(each, known.__getitem__)
                new.meta = {**each.meta}
                new.meta.update({key: node.meta[key] for key in SOURCE if key in node.meta})
    raise ValueError("a graph without results")


def add_constant(program: ExportedProgram, value: torch.Tensor, name: str) -> fx.Node:
    """A node for the elements of `value`, which become a constant of the program."""
    graph = program.graph
    target = f"{name}_{len(program.graph_signature.input_specs)}"
    first = next(iter(graph.nodes))
    with graph.inserting_before(first):
        node = graph.placeholder(f"c_{target}")
    mode = _fake_mode([each.meta["val"] for each in graph.nodes if isinstance(each.meta.get("val"), torch.Tensor)])
    node.meta = {"val": mode.from_tensor(value, static_shapes=True)}
    spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), target)
    program.graph_signature.input_specs.insert(0, spec)
    program.constants[target] = value
    return node
