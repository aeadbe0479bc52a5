"""Stores tensors of short element types (8-bit floats, types of 6, 4 and 2 bits) as tensors of bytes, in ONNX's graph.

    y = Cast(x, to=FLOAT8E4M3FN)       y: float8e4m3fn   →   y = Cast(x, to=UINT8, short_to="f8E4M3FN")   y: uint8
    z = Transpose(y)                   z: float8e4m3fn   →   z = Transpose(y)                             z: uint8
    w = Cast(z, to=FLOAT)              w: float          →   w = Cast(z, to=FLOAT, short_from="f8E4M3FN") w: float

Operators that move elements move bytes. Quantisation and comparisons are first rewritten with Cast
(`linear_quantisation.py`; comparisons in float32). `short_casts.py` lowers casts with these attributes. The byte format
of an element is that of `ir/short_types.py`; callers see the model's inputs and results with their original types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx import linear_quantisation
from motet.compiler.frontends.onnx.bodies import all_nodes, each_body, graphs_of, separate_bodies
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.simplify import attribute, infer_shapes, name_nodes
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, element_types, replace_nodes
from motet.compiler.ir.short_types import ShortExponent, ShortType, short_type, stored

if TYPE_CHECKING:
    import onnx

SHORT_FROM, SHORT_TO = "short_from", "short_to"
_TYPE_ATTRIBUTES = ("to", "output_dtype", "dtype")
# Operators whose results have elements of the inputs or of the attribute `value`, or zeros.
_MOVES = frozenset({
    "Compress", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand", "Flatten", "Gather",
    "GatherElements", "GatherND", "Identity", "If", "Loop", "Pad", "Reshape", "ReverseSequence", "Scan",
    "ScatterElements", "ScatterND", "SequenceAt", "SequenceConstruct", "Shape", "Size", "Slice", "SpaceToDepth",
    "Split", "Squeeze", "TensorScatter", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
})  # fmt: skip


def store_short_types(model: OnnxModel) -> None:
    """Rewrites the graph of `model` and its bodies in place if they have such types, and records the types of inputs
    and outputs in `model.elements`. Raises CompileError for an operator that computes with such a type."""
    if not _has_short_types(model):
        return
    name_nodes(model)
    separate_bodies(model)
    _write_with_casts(model)
    infer_shapes(model)  # infers the types of outputs that declare none
    for value in (*model.proto.graph.input, *model.proto.graph.output):
        if (kind := kind_of(value.type.tensor_type.elem_type)) is not None:
            model.elements[value.name] = kind.name
    _store(model)
    for name, array in model.constants.items():
        if short_type(array.dtype) is not None:
            model.constants[name] = stored(array)


def kind_of(number: int | None) -> ShortType | None:
    """The short type of ONNX's type `number`; None for other types."""
    import onnx

    if number in (None, onnx.TensorProto.UNDEFINED):
        return None
    try:
        return short_type(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)))
    except KeyError:
        return None


def _has_short_types(model: OnnxModel) -> bool:
    graph = model.proto.graph
    values = [value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)]
    if any(kind_of(number) is not None for number in values):
        return True
    if any(short_type(array.dtype) is not None for array in model.constants.values()):
        return True
    return any(kind_of(number) is not None for node in all_nodes(graph) for number in _numbers(node))


def _numbers(node: onnx.NodeProto) -> Iterator[int]:
    """The element types in the attributes of a node."""
    for item in node.attribute:
        if item.name in _TYPE_ATTRIBUTES:
            yield item.i
        if item.HasField("t"):
            yield item.t.data_type
    for graph in graphs_of(node):
        yield from (tensor.data_type for tensor in graph.initializer)
        yield from (value.type.tensor_type.elem_type for value in (*graph.input, *graph.output))


# -- rewriting with casts


def _write_with_casts(model: OnnxModel) -> None:
    """Rewrites operators that compute with short types with Cast, in the graph and its bodies."""
    infer_shapes(model)
    each_body(model, _write_with_casts)
    facts = ModelFacts.of(model)
    nodes: list[onnx.NodeProto] = []
    for node in model.proto.graph.node:
        if node.domain not in ("", "ai.onnx") or not _is_short(node, facts.types):
            nodes.append(node)
            continue
        rule = _RULES.get(node.op_type)
        made = rule(node, facts) if rule is not None else None
        if rule is not None and made is None:
            raise model.error(
                f"node {node.name!r}: {node.op_type} of {_names(node, facts.types)} is not supported in this form; "
                "expected scales of rank 0 or 1, or of the rank of the input with block_size, and an axis of it"
            )
        nodes += made or [node]
    replace_nodes(model, nodes)


def _is_short(node: onnx.NodeProto, types: Mapping[str, int]) -> bool:
    return any(kind_of(types.get(name)) is not None for name in (*node.input, *node.output)) or any(
        kind_of(number) is not None for number in _numbers(node)
    )


def _names(node: onnx.NodeProto, types: Mapping[str, int]) -> str:
    kinds = [kind_of(types.get(name)) for name in (*node.input, *node.output)]
    return " and ".join(dict.fromkeys(kind.name for kind in kinds if kind is not None)) or "a short type"


def _cast_like(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    if node.input[1] not in facts.types:
        return None
    given = {
        name: value for name in ("saturate", "round_mode") if (value := attribute(node, name, None)) is not None
    }
    w = NodeWriter(node, facts)
    return w.done([w.add("Cast", node.input[0], to=facts.types[node.input[1]], **given)])


def _in_float32(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """`node` on float32 operands, for operators whose result does not depend on the type."""
    import onnx

    w = NodeWriter(node, facts)
    inputs = [
        w.cast(name, onnx.TensorProto.FLOAT) if kind_of(facts.types.get(name)) is not None else name
        for name in node.input
    ]
    given = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    result = w.add(node.op_type, *inputs, **given)
    own = facts.types.get(node.output[0])
    return w.done([w.cast(result, own) if own is not None and kind_of(own) is not None else result])


def _product(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """QLinearMatMul of 8-bit floats: dequantises, multiplies and quantises again."""
    a, scale_a, zero_a, b, scale_b, zero_b, scale_y, zero_y = node.input
    w = NodeWriter(node, facts)
    factors = [w.add("DequantizeLinear", *one) for one in ((a, scale_a, zero_a), (b, scale_b, zero_b))]
    w.done([w.add("QuantizeLinear", w.add("MatMul", *factors), scale_y, zero_y)])
    return _expanded(w, facts)


def _expanded(w: NodeWriter, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """The nodes of `w`, with its quantisation written with casts."""
    import onnx

    types = facts.types | {node.output[0]: onnx.TensorProto.FLOAT for node in w.nodes}
    wider = ModelFacts(facts.model, facts.shapes, types, facts.ranks)
    found: list[onnx.NodeProto] = []
    for node in w.nodes:
        rule = {
            "DequantizeLinear": linear_quantisation.dequantize, "QuantizeLinear": linear_quantisation.quantize
        }.get(node.op_type)
        made = [node] if rule is None else rule(node, wider)
        if made is None:
            return None
        found += made
    return found


_RULES: dict[str, Rule] = {
    "CastLike": _cast_like, "DequantizeLinear": linear_quantisation.dequantize, "QLinearMatMul": _product,
    "QuantizeLinear": linear_quantisation.quantize,
    **dict.fromkeys(
        ("Dropout", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual"), _in_float32
    ),
}  # fmt: skip


# -- storing as bytes


def _store(model: OnnxModel) -> None:
    """Gives every value of a short type the type uint8, and every Cast attributes that name its short types."""
    import onnx

    infer_shapes(model)
    types = element_types(model)
    each_body(model, _store)
    graph = model.proto.graph
    for node in graph.node:
        if node.domain in ("", "ai.onnx") and _is_short(node, types):
            _store_node(model, node, types)
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if kind_of(value.type.tensor_type.elem_type) is not None:
            value.type.tensor_type.elem_type = onnx.TensorProto.UINT8


def _store_node(model: OnnxModel, node: onnx.NodeProto, types: Mapping[str, int]) -> None:
    store = {"BitCast": _store_bit_cast, "Cast": _store_cast}.get(node.op_type)
    if store is not None:
        store(node, types)
        return
    if node.op_type not in _MOVES:
        raise model.error(
            f"node {node.name!r}: {node.op_type} of {_names(node, types)} is not supported; such elements are moved, "
            "compared and converted alone: expected a Cast to float or to an integer of 8 bits or more before it"
        )
    if attribute(node, "reduction", b"none") != b"none":
        raise model.error(
            f"node {node.name!r}: {node.op_type} of {_names(node, types)} with a reduction is not supported; expected "
            "none, or a Cast to float before it"
        )
    padded = node.op_type == "Pad" and not (len(node.input) > 2 and node.input[2])
    if (padded or node.op_type == "Trilu") and isinstance(kind_of(types.get(node.input[0])), ShortExponent):
        raise model.error(f"node {node.name!r}: {node.op_type} of f8E8M0FNU, which has no zero, is not supported")
    _store_attributes(node)


def _store_attributes(node: onnx.NodeProto) -> None:
    import onnx

    for item in node.attribute:
        if item.HasField("t") and kind_of(item.t.data_type) is not None:
            array = onnx.numpy_helper.to_array(item.t)
            item.t.CopyFrom(onnx.numpy_helper.from_array(stored(array), item.t.name))


def _store_cast(node: onnx.NodeProto, types: Mapping[str, int]) -> None:
    import onnx

    source, target = kind_of(types.get(node.input[0])), kind_of(attribute(node, "to", 0))
    if source is not None and source == target:
        _make_identity(node)
        return
    for kind, name in ((source, SHORT_FROM), (target, SHORT_TO)):
        if kind is not None:
            node.attribute.append(onnx.helper.make_attribute(name, kind.name))
    if target is not None:
        _set_type(node)


def _store_bit_cast(node: onnx.NodeProto, types: Mapping[str, int]) -> None:
    """BitCast between short types, or from unsigned bytes: the bytes are unchanged."""
    import onnx

    source, target = types.get(node.input[0]), attribute(node, "to", 0)
    if kind_of(target) is not None:
        _set_type(node)
        target = onnx.TensorProto.UINT8
    if target == onnx.TensorProto.UINT8 and (kind_of(source) is not None or source == onnx.TensorProto.UINT8):
        _make_identity(node)


def _set_type(node: onnx.NodeProto) -> None:
    import onnx

    next(item for item in node.attribute if item.name == "to").i = onnx.TensorProto.UINT8


def _make_identity(node: onnx.NodeProto) -> None:
    node.op_type = "Identity"
    del node.attribute[:]


__all__ = ["SHORT_FROM", "SHORT_TO", "kind_of", "store_short_types"]
