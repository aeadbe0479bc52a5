"""Simplifies an ONNX graph before the import, where ONNX has more information than linalg.

- Empty values become constants.
- An If with a constant condition becomes its branch. Exporters write such an If where the rank of a result depends on
  an extent, for example for PyTorch's `squeeze`.
- Shapes of static values, and values computed from constants alone, become constants.
- Batch normalisation with constant statistics is folded into the weights of the preceding convolution,
  or becomes one multiplication and one addition.
- Constant weights of Gemm are transposed and scaled once.

Constants are stored as arrays in `OnnxModel.constants`. Numbers are combined in double precision and rounded
once.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from motet.compiler.frontends.onnx.bodies import each_body, graphs_of, reads, separate_bodies
from motet.compiler.frontends.onnx.ceiled_pools import drop_windows
from motet.compiler.frontends.onnx.dead_nodes import drop_dead_nodes
from motet.compiler.frontends.onnx.empty_tensors import fold_empty
from motet.compiler.frontends.onnx.evaluation import FOLD_BYTES, evaluate
from motet.compiler.frontends.onnx.inferred import forget, keep_shapes, name_casts, refine_outputs, widen_attention
from motet.compiler.frontends.onnx.model import Extents, OnnxModel
from motet.compiler.frontends.onnx.writing import REQUIRE, replace_nodes, static_shapes, symbolic_shapes

if TYPE_CHECKING:
    import onnx

MAX_ROUNDS = 16
_FEW_CONCATS, _LONG_VECTOR = 16, 1 << 16
_LONGEST_STEP = (1 << 31) - 1  # of a Slice: longer ones take one element of any axis, too


def simplify(model: OnnxModel) -> None:
    """Simplifies the graph of `model` and its bodies in place until nothing changes; shapes are inferred afterwards."""
    name_nodes(model)
    separate_bodies(model)
    _simplify(model)


def _simplify(model: OnnxModel) -> None:
    extents: Mapping[str, Extents] = {}
    for _ in range(MAX_ROUNDS):
        infer_shapes(model)
        changed = name_casts(model)
        extents = symbolic_shapes(model)
        changed |= fold_empty(model, extents)
        changed |= fold_required(model)
        changed |= fold_constants(model)
        changed |= fold_shapes(model)
        changed |= fold_extents(model)
        changed |= inline_branches(model)
        changed |= fold_gemm_weights(model)
        changed |= fold_batch_normalization(model)
        if not changed:
            break
    drop_dead_nodes(model, extents)
    each_body(model, _simplify)


def name_nodes(model: OnnxModel) -> None:
    """Gives every node of the main graph a unique name, for errors."""
    seen: set[str] = set()
    for index, node in enumerate(model.proto.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.name or node.op_type}#{index}"
        seen.add(node.name)


def infer_shapes(model: OnnxModel) -> None:
    """Infers types and shapes of all values. Small constants are included with their data, so that shapes computed
    from them are known."""
    import onnx

    whole = onnx.ModelProto()
    whole.CopyFrom(model.proto)
    forget(whole.graph)
    keep_shapes(whole.graph)
    used = count_uses(model.proto.graph)
    steps = {node.input[4] for node in whole.graph.node if node.op_type == "Slice" and len(node.input) > 4}
    for name, array in model.constants.items():
        if name not in used:
            continue
        if name in steps:
            array = array.clip(-_LONGEST_STEP, _LONGEST_STEP)  # inference adds steps without a check
        if array.nbytes <= FOLD_BYTES:
            whole.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        else:
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            whole.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    try:
        follows = not _has_long_vectors(whole)
        inferred = onnx.shape_inference.infer_shapes(whole, data_prop=follows)
        while drop_windows(whole.graph, inferred.graph) or widen_attention(whole.graph, inferred.graph):
            inferred = onnx.shape_inference.infer_shapes(whole, data_prop=follows)
    except onnx.shape_inference.InferenceError as error:
        reason = " ".join(str(error).split()).removeprefix("[ShapeInferenceError] ")
        raise model.error(f"types or shapes do not fit each other: {reason}") from error
    del model.proto.graph.value_info[:]
    outputs = {value.name for value in model.proto.graph.output}  # which declare their own types
    model.proto.graph.value_info.extend(value for value in inferred.graph.value_info if value.name not in outputs)
    refine_outputs(model, inferred.graph)


def _has_long_vectors(model: onnx.ModelProto) -> bool:
    """Whether concatenations grow to vectors of which inference would keep millions of unknown elements one by one."""
    import onnx

    # Only these make vectors. Inference takes time, and many networks concatenate channels.
    nodes = [node for node in model.graph.node if node.op_type == "Concat" and attribute(node, "axis", 1) in (0, -1)]
    made = {name for node in nodes for name in node.output}
    if len(made) < _FEW_CONCATS:
        return False
    inferred = onnx.shape_inference.infer_shapes(model).graph
    values = (value.type.tensor_type.shape for value in (*inferred.value_info, *inferred.output) if value.name in made)
    return any(len(shape.dim) == 1 and shape.dim[0].dim_value > _LONG_VECTOR for shape in values)


def fold_constants(model: OnnxModel) -> bool:
    """Evaluates nodes whose inputs are all constant; returns whether there were any."""
    kept: list[onnx.NodeProto] = []
    outputs = {output.name for output in model.proto.graph.output}
    shapes = functools.cache(lambda: static_shapes(model))
    for node in model.proto.graph.node:
        kept_for = outputs.intersection(node.output) or REQUIRE in node.name
        values = None if kept_for else evaluate(model, node, shapes)
        if values is None:
            kept.append(node)
        else:
            model.constants.update(values)
    return replace_nodes(model, kept)


def fold_required(model: OnnxModel) -> bool:
    """Removes assertions (`Numbers.require`) that always hold. Raises CompileError for one that never holds."""
    changed = False
    for node in model.proto.graph.node:
        condition = model.constants.get(node.input[0]) if REQUIRE in node.name else None
        if condition is None:
            continue
        name, said = node.name.split(REQUIRE, 1)
        if not condition.all():
            raise model.error(f"node {name!r}: {said}")
        node.name, node.op_type, changed = f"{name}/{node.output[0]}", "Identity", True
        del node.input[2:], node.input[:1]
    return changed


def _has(model: OnnxModel, *operators: str) -> bool:
    return any(node.op_type in operators for node in model.proto.graph.node)


def fold_shapes(model: OnnxModel) -> bool:
    """Replaces Shape and Size of values of known shape by constants; returns whether there were any."""
    if not _has(model, "Shape", "Size"):
        return False
    shapes = static_shapes(model)
    outputs = {output.name for output in model.proto.graph.output}
    kept: list[onnx.NodeProto] = []
    for node in model.proto.graph.node:
        shape = shapes.get(node.input[0]) if node.op_type in ("Shape", "Size") and node.input else None
        if shape is None or node.output[0] in outputs:
            kept.append(node)
        elif node.op_type == "Size":
            model.constants[node.output[0]] = np.array(int(np.prod(shape)), np.int64)
        else:
            start, end = attribute(node, "start", 0), attribute(node, "end", len(shape))
            model.constants[node.output[0]] = np.array(shape[start:end], np.int64)
    return replace_nodes(model, kept)


def fold_extents(model: OnnxModel) -> bool:
    """Replaces Gather and Slice of a Shape by constants if the extents that they take are known. Records that a tensor
    reshaped to the shape of another one has its extents, which ONNX's shape inference does not find."""
    if not _has(model, "Shape"):
        return False
    extents = {
        name: [extent if isinstance(extent, int) else None for extent in shape]
        for name, shape in symbolic_shapes(model).items()
    }
    changed = False
    outputs = {output.name for output in model.proto.graph.output}
    taken: dict[str, list[int | None]] = {}
    kept: list[onnx.NodeProto] = []
    for node in model.proto.graph.node:
        if node.op_type == "Shape" and node.input[0] in extents:
            shape = extents[node.input[0]]
            taken[node.output[0]] = shape[attribute(node, "start", 0) : attribute(node, "end", len(shape))]
        elif node.op_type == "Reshape" and node.input[1] in taken:
            changed |= _note(model, node.output[0], taken[node.input[1]], extents.get(node.output[0]))
        part = _part(model, node, taken[node.input[0]]) if node.input and node.input[0] in taken else None
        if part is None or node.output[0] in outputs:
            kept.append(node)
        else:
            model.constants[node.output[0]] = part
    return replace_nodes(model, kept) or changed


def _note(model: OnnxModel, name: str, shape: list[int | None], before: list[int | None] | None) -> bool:
    """Records the extents of a value for the next inference; returns whether they add information."""
    if 0 in shape or (before is not None and len(before) != len(shape)):
        return False  # in the shape of a Reshape, 0 has another meaning
    known = before or [None] * len(shape)
    if before is not None and all(one is not None or other is None for one, other in zip(known, shape, strict=True)):
        return False
    for info in model.proto.graph.value_info:
        if info.name == name:
            dims = info.type.tensor_type.shape.dim
            for axis, extent in enumerate(shape):
                dim = dims[axis] if before else dims.add()
                if extent is not None:
                    dim.dim_value = extent
            return True
    return False


def _part(model: OnnxModel, node: onnx.NodeProto, shape: list[int | None]) -> np.ndarray | None:
    """The extents that `node` takes of `shape`; None if it is another operator, or an extent is unknown."""
    given = [model.constants.get(name) for name in node.input[1:]]
    places = np.arange(len(shape))
    if node.op_type == "Gather" and given[0] is not None:
        chosen = given[0]
        if chosen.size and (chosen.min() < -len(shape) or chosen.max() >= len(shape)):
            return None
        places = places[chosen]
    elif node.op_type == "Slice" and len(given) >= 2 and all(one is not None and one.size == 1 for one in given):
        start, end, _, step = [*(int(one.item()) for one in given if one is not None), *(0, 1)[len(given) - 2 :]]
        if step == 0:
            return None
        places = places[start:end:step]
    else:
        return None
    found = [shape[place] for place in places.reshape(-1)]
    return None if None in found else np.array(found, np.int64).reshape(places.shape)


def inline_branches(model: OnnxModel) -> bool:
    """Rewrites the graph of `model` in place; names in bodies must be unique. Returns whether it changed."""
    import onnx

    graph = model.proto.graph
    if not any(node.op_type == "If" and node.input[0] in model.constants for node in graph.node):
        return False
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        condition = model.constants.get(node.input[0]) if node.op_type == "If" and node.input else None
        if condition is None or condition.size != 1:
            nodes.append(node)
            continue
        branch = _branch(node, "then_branch" if condition.any() else "else_branch")
        nodes += branch.node
        nodes += [
            onnx.helper.make_node("Identity", [value.name], [output], f"{node.name}/{output}")
            for value, output in zip(branch.output, node.output, strict=False) if output
        ]
    return replace_nodes(model, nodes)


def _branch(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    for item, graph in zip(node.attribute, graphs_of(node), strict=True):
        if item.name == name:
            return graph
    raise ValueError(f"an If without {name}")


def fold_gemm_weights(model: OnnxModel) -> bool:
    """Transposes and scales the constants b and c of Gemm(a, b, c, transB, alpha, beta) once, unless a weight would
    overflow or become 0, which would make an infinite input NaN."""
    changed = False
    for node in model.proto.graph.node:
        if node.op_type != "Gemm" or node.input[1] not in model.constants:
            continue
        weight = model.constants[node.input[1]]
        if weight.dtype.kind not in "f":
            continue
        alpha, beta = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)
        bias = model.constants.get(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        has_bias = len(node.input) > 2 and bool(node.input[2])
        if attribute(node, "transB", 0):
            node.input[1] = _add(model, node.input[1], "transposed", np.ascontiguousarray(weight.T))
            _set_attribute(node, "transB", 0)
            changed = True
        least = float(ml_dtypes.finfo(weight.dtype).smallest_normal)
        scaled = _scaled(model.constants[node.input[1]], alpha, least)
        if alpha != 1.0 and scaled is not None:
            node.input[1] = _add(model, node.input[1], "scaled", scaled)
            _set_attribute(node, "alpha", 1.0)
            changed = True
        if beta != 1.0 and (bias is not None or not has_bias):
            scaled = None if bias is None else _scaled(bias, beta, least)
            if bias is not None and scaled is None:
                continue
            if scaled is not None:
                node.input[2] = _add(model, node.input[2], "scaled", scaled)
            _set_attribute(node, "beta", 1.0)
            changed = True
    return changed


def _scaled(array: np.ndarray, factor: float | np.ndarray, least: float = 0.0) -> np.ndarray | None:
    """`array` times `factor`, in float64 and rounded once, unless it makes a number infinite, which other numbers would
    have made finite again, or less than `least`, if it was not 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (array.astype(np.float64) * factor).astype(array.dtype)
    inside = np.isfinite(scaled) & (np.abs(scaled.astype(np.float64)) >= least)
    return scaled if bool((inside | (array == 0) | ~np.isfinite(array)).all()) else None


def fold_batch_normalization(model: OnnxModel) -> bool:
    """Folds BatchNormalization with constant statistics: y = x s + t, s = scale / sqrt(var + eps), t = shift - mean s.

        Conv(x, w, b) ; BatchNormalization  →  Conv(x, w s, b s + t)
        BatchNormalization(x)               →  Add(Mul(x, s), t)
    """
    import onnx

    if not _has(model, "BatchNormalization"):
        return False
    graph = model.proto.graph
    uses = count_uses(graph)
    producers = {output: node for node in graph.node for output in node.output}
    shapes = symbolic_shapes(model)
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        factors = _normalization_factors(model, node)
        if factors is None:
            kept.append(node)
            continue
        scale, shift = factors
        conv = producers.get(node.input[0])
        alone = conv is not None and conv.op_type == "Conv" and uses[node.input[0]] == 1
        if conv is not None and alone and _scale_conv(model, conv, scale, shift):
            conv.output[0] = node.output[0]
            continue
        if node.input[0] not in shapes:
            kept.append(node)
            continue
        aligned = (-1, *([1] * (len(shapes[node.input[0]]) - 2)))
        scaled = f"{node.output[0]}/scaled"
        factor = _add(model, node.output[0], "scale", scale.reshape(aligned))
        offset = _add(model, node.output[0], "shift", shift.reshape(aligned))
        kept.append(onnx.helper.make_node("Mul", [node.input[0], factor], [scaled], name=f"{node.name}/scale"))
        kept.append(onnx.helper.make_node("Add", [scaled, offset], [node.output[0]], name=node.name))
    return replace_nodes(model, kept)


def _normalization_factors(model: OnnxModel, node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray] | None:
    """(s, t) of an inference-mode batch normalisation with constant statistics, in the type of its scale; else None."""
    if node.op_type != "BatchNormalization" or attribute(node, "training_mode", 0):
        return None
    if sum(bool(name) for name in node.output) != 1 or any(name not in model.constants for name in node.input[1:5]):
        return None
    statistics = [model.constants[name] for name in node.input[1:5]]
    if any(array.dtype != statistics[0].dtype for array in statistics):
        return None
    scale, shift, mean, variance = (array.astype(np.float64) for array in statistics)
    factor = scale / np.sqrt(variance + attribute(node, "epsilon", 1e-5))
    dtype = statistics[0].dtype
    return factor.astype(dtype), (shift - mean * factor).astype(dtype)


def _scale_conv(model: OnnxModel, conv: onnx.NodeProto, scale: np.ndarray, shift: np.ndarray) -> bool:
    weight = model.constants.get(conv.input[1])
    bias_name = conv.input[2] if len(conv.input) > 2 else ""
    if weight is None or weight.dtype != scale.dtype or (bias_name and bias_name not in model.constants):
        return False
    factor = scale.astype(np.float64)
    bias = model.constants[bias_name].astype(np.float64) if bias_name else 0.0
    per_filter = factor.reshape(-1, *([1] * (weight.ndim - 1)))
    folded = _scaled(weight, per_filter)
    if folded is None:
        return False
    inputs = [
        conv.input[0],
        _add(model, conv.input[1], "normalized", folded),
        _add(model, f"{conv.output[0]}/bias", "normalized", (bias * factor + shift).astype(weight.dtype)),
    ]
    del conv.input[:]
    conv.input.extend(inputs)
    return True


def count_uses(graph: onnx.GraphProto) -> Counter[str]:
    """The number of readers of each value; a result of the graph counts as a reader."""
    uses = Counter(output.name for output in graph.output)
    for node in graph.node:
        uses.update(reads(node))
    return uses


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """The value of a node's attribute, or `default`."""
    import onnx

    for item in node.attribute:
        if item.name == name:
            return onnx.helper.get_attribute_value(item)
    return default


def _set_attribute(node: onnx.NodeProto, name: str, value: float | int) -> None:
    import onnx

    for item in node.attribute:
        if item.name == name:
            item.CopyFrom(onnx.helper.make_attribute(name, value))


def _add(model: OnnxModel, stem: str, suffix: str, array: np.ndarray) -> str:
    """Adds a constant under an unused name, and returns the name."""
    name, count = f"{stem}/{suffix}", 1
    while name in model.constants:
        count += 1
        name = f"{stem}/{suffix}{count}"
    model.constants[name] = array
    return name
