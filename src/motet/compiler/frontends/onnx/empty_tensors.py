"""Replaces empty values by constants, sums over an empty axis by zeros, and scatters of no updates by their data.

What the replaced nodes demand of extents, `assert_demands.py` asserts.
The lowerings divide by extents, or compute an extent from the number of elements, which fails for 0. Where an extent of
0 is next to a dynamic one, these replacements do not apply, and such operators are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.bodies import graphs_of
from motet.compiler.frontends.onnx.model import Extents, OnnxModel
from motet.compiler.frontends.onnx.tensors import kind_of
from motet.compiler.frontends.onnx.writing import replace_nodes
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.source_names import names_of

if TYPE_CHECKING:
    import onnx

_SCATTERS = ("Scatter", "ScatterElements", "ScatterND")
# Operators whose results have extents that depend on elements.
OF_DATA = ("Compress", "NonMaxSuppression", "NonZero", "Unique")
_REGROUPING = ("DepthToSpace", "Flatten", "MatMul", "Reshape", "SpaceToDepth")
_INDEXING = ("Gather", "GatherND", *_SCATTERS)


def fold_empty(model: OnnxModel, extents: Mapping[str, Extents]) -> bool:
    """Rewrites the graph of `model` in place, given the extents of its values; its types must be inferred. Returns
    whether it changed. A result of the graph stays a node, which returns the constant."""
    import onnx

    empty = _empty(model, extents)
    without_updates = [node for node in model.proto.graph.node if _is_without_updates(node, extents)]
    if not empty and not without_updates:
        return False
    nodes: list[onnx.NodeProto] = []
    of_calls = {dim.dim_param for value in model.proto.graph.input for dim in value.type.tensor_type.shape.dim}
    dropped = None if model.inner else model.dropped
    measurable = set[str]() if dropped is None else _measurable(model, extents)

    def drop(node: onnx.NodeProto) -> None:
        if dropped is not None:
            dropped.add(node, extents, model.constants)
            model.kept.update(name for name in measurable.intersection(node.input) if any(
                not isinstance(extent, int) and extent not in of_calls for extent in extents.get(name, ())
            ))  # fmt: skip

    for node in without_updates:
        drop(node)
        node.op_type = "Identity"
        del node.input[1:], node.attribute[:]
    changed = bool(without_updates)
    results = {value.name for value in model.proto.graph.output}
    for node in model.proto.graph.node:
        named = [name for name in node.output if name]
        if not named or any(name not in empty for name in named) or _gives_constant(model, node):
            nodes.append(node)
            continue
        changed = True
        drop(node)
        for name in named:
            held = f"{name}/empty" if name in results else name
            model.constants[held] = empty[name]
            if held != name:
                nodes.append(onnx.helper.make_node("Identity", [held], [name], f"{node.name}/{name}"))
    if changed:
        replace_nodes(model, nodes)
    return changed


def _empty(model: OnnxModel, extents: Mapping[str, Extents]) -> dict[str, np.ndarray]:
    """The values of known type that are empty, or sums over an empty axis, by name."""
    import onnx

    graph = model.proto.graph
    kinds = {info.name: info.type.tensor_type.elem_type for info in (*graph.value_info, *graph.output)}
    sums = {
        node.output[0] for node in graph.node
        if node.op_type == "Einsum" and any(0 in extents.get(name, ()) for name in node.input)
    }
    found: dict[str, np.ndarray] = {}
    written = {node.output[0] for node in graph.node if node.op_type == "TensorScatter" and len(node.input) > 2}
    for name, kind in kinds.items():
        if name in model.demands or name in written:
            continue  # asserts a demand, read or not, or will: of where an update begins
        if kind in (0, onnx.TensorProto.STRING) or not (0 in extents.get(name, ()) or name in sums):
            continue
        shape = [extent for extent in extents.get(name, (None,)) if isinstance(extent, int) and extent >= 0]
        if len(shape) == len(extents.get(name, (None,))):
            found[name] = np.zeros(shape, onnx.helper.tensor_dtype_to_np_dtype(kind))
    return found


def _measurable(model: OnnxModel, extents: Mapping[str, Extents]) -> set[str]:
    """The values whose extents cost nothing when they are not named: those of tensors with elements that are computed
    by operators with lowerings, outside of loops and branches."""
    measurable = {*model.constants, *(value.name for value in model.proto.graph.input)}
    for node in model.proto.graph.node:
        if node.op_type not in OF_DATA and not any(graphs_of(node)) and measurable.issuperset(filter(None, node.input)):
            measurable.update(name for name in node.output if 0 not in extents.get(name, (0,)))
    return measurable


def _is_without_updates(node: onnx.NodeProto, extents: Mapping[str, Extents]) -> bool:
    """Whether `node` is a scatter of no updates, whose result is its data."""
    if node.op_type == "TensorScatter":
        update = extents.get(node.input[1], ())
        axis = next((item.i for item in node.attribute if item.name == "axis"), -2)
        return -len(update) <= axis < len(update) and update[axis] == 0
    if node.op_type not in _SCATTERS:
        return False
    indices = extents.get(node.input[1], ())
    places = indices[:-1] if node.op_type == "ScatterND" else indices  # the last axis has the numbers of one index
    return 0 in places or 0 in extents.get(node.input[2], ())


def _gives_constant(model: OnnxModel, node: onnx.NodeProto) -> bool:
    return node.op_type == "Identity" and node.input[0] in model.constants


def refuse_empty(module: ir.Module, model: OnnxModel) -> None:
    """Raises CompileError for an operator in `module`, in the dialect `torch`, whose lowering crashes the process if
    one extent is 0 and another one dynamic."""
    old_softmax = ("LogSoftmax", "Softmax") if model.opsets.get("", 0) < 13 else ()  # over all axes from `axis` on
    refused = {*_REGROUPING, *_INDEXING, *old_softmax}
    for op in find_operations(module, "torch.operator"):
        operator = ir.StringAttr(op.attributes["name"]).value.removeprefix("onnx.")
        kinds = [kind_of(value) for value in (*op.operands, *op.results)] if operator in refused else []
        extents = [list(kind.extents) for kind in kinds if kind is not None]
        if operator == "MatMul":  # whose lowering collapses the batch axes
            extents = [each[:-2] for each in extents]
        if any(0 in each and DYNAMIC in each for each in extents):
            name = next(names_of(op.location), "")
            raise model.error(
                f"node {name!r}: {operator} of a tensor without elements is supported for extents that are known when "
                "compiling; expected static extents"
            )
