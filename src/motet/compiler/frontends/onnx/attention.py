"""Writes FlexAttention as products around a softmax, with its graphs that modify scores and probabilities inlined.

    FlexAttention(Q, K, V)  →  MatMul(prob_mod(Softmax(score_mod(MatMul(Q·√s, Kᵀ·√s)))), V)

Types follow the specification: scores are rounded to the operands' type; the softmax and the second product have
`softmax_precision`, which is float32 for narrower operands.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy

if TYPE_CHECKING:
    import onnx


def _flex_attention(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    shapes = [facts.extents(name) for name in node.input[:3]]
    if any(shape is None or len(shape) != 4 for shape in shapes) or node.input[0] not in facts.types:
        raise facts.model.error(f"node {node.name!r}: FlexAttention takes tensors of rank 4; expected such")
    heads, kv_heads, size = shapes[0][1], shapes[1][1], shapes[0][3]  # pyright: ignore[reportOptionalSubscript]
    if heads is None or kv_heads is None or size is None:
        raise facts.model.error(
            f"node {node.name!r}: FlexAttention is supported where the number of heads and their size are known when "
            "compiling; expected constants in the shapes of Q and K"
        )
    if kv_heads == 0 or heads % kv_heads:
        raise facts.model.error(
            f"node {node.name!r}: FlexAttention has {heads} heads of queries, expected a multiple of {kv_heads}, which "
            "are of keys"
        )
    kind = facts.types[node.input[0]]
    narrow = kind in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    precision = attribute(node, "softmax_precision", None) or (onnx.TensorProto.FLOAT if narrow else kind)
    w = NodeWriter(node, facts)
    root = math.sqrt(np.float32(attribute(node, "scale", None) or 1 / math.sqrt(size)))
    factor = w.constant(np.array(root, np.float32).astype(facts.dtype(node.input[0])), "root")
    query, key = (w.add("Mul", value, factor) for value in node.input[:2])
    key, value = (_for_each_head(w, each, heads // kv_heads) for each in (key, node.input[2]))
    scores = w.add("MatMul", query, w.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = _modified(w, "score_mod", w.cast(scores, precision))
    weights = _modified(w, "prob_mod", w.add("Softmax", scores, axis=-1))
    result = w.add("MatMul", weights, w.cast(value, precision))
    return w.done([w.cast(result, facts.types[node.input[2]])])


def _for_each_head(w: NodeWriter, value: str, group: int) -> str:
    """Repeats each head of keys or values for the query heads that share it."""
    if group == 1:
        return value
    heads = (w.facts.extents(w.node.input[1]) or [0, 0])[1] or 0
    places = w.constant(np.repeat(np.arange(heads), group), "heads")
    return w.add("Gather", value, places, axis=1)


def _modified(w: NodeWriter, name: str, value: str) -> str:
    """Applies the graph in attribute `name` to `value`, under unique names."""
    import onnx

    body: onnx.GraphProto | None = attribute(w.node, name, None)
    if body is None:
        return value
    w.nodes.append(onnx.helper.make_node("Identity", [value], [body.input[0].name], f"{w.node.name}/{name}"))
    w.nodes.extend(copy(each) for each in body.node)
    return body.output[0].name


RULES: dict[str, Rule] = {"FlexAttention": _flex_attention}
