"""Writes activations, products and normalisations of the domain `com.microsoft`, which onnxruntime's optimiser creates
by fusing several operators, with ONNX's operators.

16-bit floats are normalised in float32, as in onnxruntime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.ml import dtype_of
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy, refused

if TYPE_CHECKING:
    import onnx


def given(node: onnx.NodeProto, place: int) -> str:
    """The name of an optional input; "" if it is absent."""
    return node.input[place] if len(node.input) > place else ""


def wanted(node: onnx.NodeProto, place: int) -> bool:
    """Whether an optional result is present."""
    return len(node.output) > place and bool(node.output[place])


def number(w: NodeWriter, value: float, like: str) -> str:
    """A constant of the type of the model's value `like`."""
    return w.constant(np.array(value).astype(dtype_of(w.facts.types[like])), "number")


def done(w: NodeWriter, values: dict[int, str]) -> list[onnx.NodeProto]:
    """The nodes of `w`, with `values` as the node's results of these numbers."""
    made = [values.get(place, "") for place in range(len(w.node.output))]
    for place, output in enumerate(w.node.output):
        if output and not made[place]:
            raise refused(w.node, w.facts, f"with its result {place}", "a model that does not use it")
    kept = [(value, output) for value, output in zip(made, w.node.output, strict=True) if output]
    for value, output in kept:
        w.nodes.append(_identity(value, output, f"{w.node.name}/{output}"))
    return w.nodes


def _identity(value: str, output: str, name: str) -> onnx.NodeProto:
    import onnx

    return onnx.helper.make_node("Identity", [value], [output], name)


# -- activations ----------------------------------------------------------------------------------------


def _erf_gelu(w: NodeWriter, value: str, like: str) -> str:
    inner = w.add("Erf", w.add("Mul", value, number(w, 0.5**0.5, like)))
    return w.add("Mul", w.add("Mul", value, number(w, 0.5, like)), w.add("Add", inner, number(w, 1.0, like)))


def _tanh_gelu(w: NodeWriter, value: str, like: str) -> str:
    cube = w.add("Mul", w.add("Mul", w.add("Mul", value, value), value), number(w, 0.044715, like))
    inner = w.add("Mul", w.add("Add", value, cube), number(w, (2 / np.pi) ** 0.5, like))
    half = w.add("Mul", value, number(w, 0.5, like))
    return w.add("Mul", half, w.add("Add", w.add("Tanh", inner), number(w, 1.0, like)))


def _gelu(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Gelu, BiasGelu, and FastGelu, which is the tanh approximation."""
    w = NodeWriter(node, facts)
    value, kind = node.input[0], facts.types[node.input[0]]
    if given(node, 1):
        value = w.add("Add", value, node.input[1])
    wide, like = _widened(w, value, kind), _like(w, kind)
    gelu = _tanh_gelu if node.op_type == "FastGelu" else _erf_gelu
    return done(w, {0: w.cast(gelu(w, wide, like), kind)})


def _like(w: NodeWriter, kind: int) -> str:
    """The name of a value of the type that `_widened` returns."""
    import onnx

    double = kind == onnx.TensorProto.DOUBLE
    name = w.constant(np.zeros((), np.float64 if double else np.float32), "zero")
    w.facts.types[name] = onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT
    return name


def _widened(w: NodeWriter, value: str, kind: int) -> str:
    import onnx

    narrow = kind in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    return w.cast(value, onnx.TensorProto.FLOAT) if narrow else value


def _quick_gelu(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    w, value = NodeWriter(node, facts), node.input[0]
    inner = w.add("Mul", value, number(w, attribute(node, "alpha", 1.702), value))
    return done(w, {0: w.add("Mul", value, w.add("Sigmoid", inner))})


def _bias_softmax(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """BiasSoftmax with a bias that is broadcast to the inner axes."""
    rank, own, axis = facts.rank(node.input[0]), facts.rank(node.input[1]), attribute(node, "axis", 1)
    if rank is None or own is None:
        return None
    w = NodeWriter(node, facts)
    if axis % rank != rank - 1:
        raise refused(node, facts, f"over axes {axis % rank} to {rank - 1}", "the last axis alone")
    if not attribute(node, "is_inner_broadcast", 1) and own != rank:
        raise refused(node, facts, "with is_inner_broadcast=0 and a bias of fewer axes", "as many axes")
    return done(w, {0: w.add("Softmax", w.add("Add", node.input[0], node.input[1]), axis=-1)})


def activated(w: NodeWriter, value: str, like: str, activation: str, params: list[float]) -> str:
    """`value` after the activation that a fused node names."""
    node, facts = w.node, w.facts
    if not activation:
        return value
    if activation in ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish"):
        return w.add(activation, value)
    if activation in ("LeakyRelu", "Elu", "ThresholdedRelu"):
        return w.add(activation, value, **({"alpha": params[0]} if params else {}))
    if activation == "HardSigmoid":
        return w.add(activation, value, **dict(zip(("alpha", "beta"), params, strict=False)))
    if activation == "Clip" and len(params) == 2:
        least, most = (number(w, end, like) for end in params)
        return w.add("Min", w.add("Max", value, least), most)
    raise refused(node, facts, f"with activation {activation}", "Relu, Clip, LeakyRelu, HardSigmoid, Sigmoid or Tanh")


def _plain_attributes(made: onnx.NodeProto, node: onnx.NodeProto, left_out: set[str]) -> None:
    made.attribute.extend(item for item in node.attribute if item.name not in left_out)


def _fused(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """FusedConv and FusedGemm: the operator, an addition, and an activation."""
    w, operator = NodeWriter(node, facts), node.op_type.removeprefix("Fused")
    activation = attribute(node, "activation", b"").decode()
    params = list(attribute(node, "activation_params", []))
    params += [attribute(node, f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    value = w.add(operator, *[name for name in node.input[:3] if name])
    left_out = {"activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma"}
    _plain_attributes(w.nodes[-1], node, left_out)
    if operator == "Conv" and given(node, 3):
        value = w.add("Add", value, node.input[3])
    return done(w, {0: activated(w, value, node.input[0], activation, [item for item in params if item is not None])})


def transposed(w: NodeWriter, value: str, rank: int) -> str:
    """`value` with its last two axes swapped."""
    return w.add("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])


def _fused_product(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    w, operands = NodeWriter(node, facts), list(node.input[:2])
    if any(facts.rank(name) is None for name in operands):
        return None
    for place, side in enumerate("AB"):
        rank = facts.rank(operands[place]) or 0
        if attribute(node, f"transBatch{side}", 0) and rank > 2:  # the first axis moves behind the batch axes
            operands[place] = w.add("Transpose", operands[place], perm=[*range(1, rank - 1), 0, rank - 1])
        if attribute(node, f"trans{side}", 0) and rank > 1:
            operands[place] = transposed(w, operands[place], rank)
    value, alpha = w.add("MatMul", *operands), attribute(node, "alpha", 1.0)
    return done(w, {0: value if alpha == 1 else w.add("Mul", value, number(w, alpha, node.input[0]))})


# -- normalisations -------------------------------------------------------------------------------------


def normalised(
    w: NodeWriter, value: str, kind: int, scale: str, shift: str, axes: list[int], *, centred: bool = True
) -> dict[int, str]:
    """Normalises `value`, of type `kind`, over its trailing axes `axes`. Returns by result number: the result, the
    mean, and the factor (the inverse of the standard deviation)."""
    like, results = _like(w, kind), dict[int, str]()
    deviations = wide = _widened(w, value, kind)
    if centred:
        results[1] = w.over("ReduceMean", wide, axes, keepdims=1)
        deviations = w.add("Sub", wide, results[1])
    variance = w.over("ReduceMean", w.add("Mul", deviations, deviations), axes, keepdims=1)
    default = 1e-5 if w.node.op_type.endswith("LayerNormalization") and "Skip" not in w.node.op_type else 1e-12
    epsilon = number(w, attribute(w.node, "epsilon", default), like)
    results[2] = w.add("Reciprocal", w.add("Sqrt", w.add("Add", variance, epsilon)))
    unit = w.add("Mul", w.add("Mul", deviations, results[2]), _widened(w, scale, w.facts.types[scale]))
    if shift:
        unit = w.add("Add", unit, _widened(w, shift, w.facts.types[shift]))
    return {0: w.cast(unit, kind), **results}


def _layer_normalization(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank = facts.rank(node.input[0])
    if rank is None:
        return None
    w, kind = NodeWriter(node, facts), facts.types[node.input[0]]
    axes, centred = list(range(attribute(node, "axis", -1) % rank, rank)), node.op_type == "LayerNormalization"
    results = normalised(w, node.input[0], kind, node.input[1], given(node, 2), axes, centred=centred)
    if not centred:
        results[1] = results[2]
    return done(w, results)


def _skip_normalization(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank = facts.rank(node.input[0])
    if rank is None:
        return None
    w, centred = NodeWriter(node, facts), node.op_type == "SkipLayerNormalization"
    shift, bias = (given(node, 3), given(node, 4)) if centred else ("", given(node, 3))
    total = w.add("Add", node.input[0], node.input[1])
    if bias:
        total = w.add("Add", total, bias)
    kind = facts.types[node.input[0]]
    results = normalised(w, total, kind, node.input[2], shift, [rank - 1], centred=centred)
    return done(w, {**results, 3: total})


def _embed_normalization(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """EmbedLayerNormalization: the sum of word, position and segment embeddings; the second result counts the words
    that are not masked."""
    import onnx

    words, segments, word_table, place_table, segment_table, scale, shift = node.input[:7]
    mask, places = given(node, 7), given(node, 8)
    w, kind = NodeWriter(node, facts), facts.types[word_table]
    total = w.add("Gather", word_table, words, axis=0)
    if not places:
        extent = w.extent(words, 1)
        zero, one = (w.constant(np.array(item, np.int64), "number") for item in (0, 1))
        places = w.add("Range", zero, extent, one)
    total = w.add("Add", total, w.add("Gather", place_table, places, axis=0))
    if segments and segment_table:
        total = w.add("Add", total, w.add("Gather", segment_table, segments, axis=0))
    results = normalised(w, total, kind, scale, shift, [2])
    counted = ""
    if wanted(node, 1):
        kept = mask or w.add("Mul", words, w.constant(np.zeros((), dtype_of(facts.types[words])), "zero"))
        counted = w.cast(w.over("ReduceSum", w.cast(kept, 7), [1], keepdims=0), onnx.TensorProto.INT32)
    return done(w, {0: results[0], 1: counted, 2: total})


# -- others ---------------------------------------------------------------------------------------------


def _moved(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Operators that ONNX's domain has since adopted under the same name."""
    import onnx

    if not onnx.defs.has(node.op_type, facts.version):
        since = onnx.defs.get_schema(node.op_type).since_version
        raise refused(node, facts, f"with operator set {facts.version}", f"operator set {since} or later")
    made = copy(node)
    made.domain = ""
    return [made]


def _distances(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    metric = attribute(node, "metric", b"sqeuclidean").decode()
    if metric not in ("euclidean", "sqeuclidean"):
        raise refused(node, facts, f"with metric {metric}", "euclidean or sqeuclidean")
    w = NodeWriter(node, facts)
    deviations = w.add("Sub", w.over("Unsqueeze", node.input[0], [1]), w.over("Unsqueeze", node.input[1], [0]))
    squares = w.over("ReduceSum", w.add("Mul", deviations, deviations), [2], keepdims=0)
    return done(w, {0: squares if metric == "sqeuclidean" else w.add("Sqrt", squares)})


def _expand_dims(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    axis = facts.model.constants.get(node.input[1])
    if axis is None:
        raise refused(node, facts, "by an axis that a call decides", "a constant")
    w = NodeWriter(node, facts)
    return done(w, {0: w.over("Unsqueeze", node.input[0], [int(axis.item())])})


def _pool_last(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank = facts.rank(node.input[0])
    if rank is None:
        return None
    w = NodeWriter(node, facts)
    value = w.add("MaxPool", w.add("Transpose", node.input[0], perm=[0, rank - 1, *range(1, rank - 1)]))
    _plain_attributes(w.nodes[-1], node, set())
    return done(w, {0: w.add("Transpose", value, perm=[0, *range(2, rank), 1])})


def constant(node: onnx.NodeProto, facts: ModelFacts, place: int, what: str) -> Any:
    """The value of an input that must be constant."""
    found = facts.model.constants.get(given(node, place))
    if found is None:
        raise refused(node, facts, f"of {what} that a call gives", "an initializer")
    return found


RULES: dict[str, Rule] = {
    "BiasGelu": _gelu, "BiasSoftmax": _bias_softmax, "CDist": _distances,
    "EmbedLayerNormalization": _embed_normalization,
    "ExpandDims": _expand_dims, "FastGelu": _gelu, "FusedConv": _fused, "FusedGemm": _fused,
    "FusedMatMul": _fused_product, "Gelu": _gelu, "GridSample": _moved, "LayerNormalization": _layer_normalization,
    "NhwcMaxPool": _pool_last, "Pad": _moved, "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _layer_normalization, "SkipLayerNormalization": _skip_normalization,
    "SkipSimplifiedLayerNormalization": _skip_normalization, "TransposeMatMul": _fused_product, "Trilu": _moved,
}  # fmt: skip
