"""Writes scalers, encoders and linear models of `ai.onnx.ml`, as scikit-learn's converters make, with ONNX operators.

Strings and maps are refused by name. Normalizer with MAX divides by the largest magnitude, as in scikit-learn and
ONNX's reference; onnxruntime divides by the largest element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, refused

if TYPE_CHECKING:
    import onnx


def numbers(node: onnx.NodeProto, name: str, dtype: Any = np.float32) -> np.ndarray:
    """An attribute's list, or the elements of attribute `…_as_tensor`, which may be doubles."""
    import onnx

    tensor = attribute(node, f"{name}_as_tensor", None)
    if tensor is not None:
        return onnx.numpy_helper.to_array(tensor).reshape(-1)
    return np.array(attribute(node, name, []), dtype)


def in_floats(w: NodeWriter, value: str) -> str:
    """`value` in float32, or in float64 if it is float64."""
    import onnx

    floating = w.facts.types[value] in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    return value if floating else w.cast(value, onnx.TensorProto.FLOAT)


def rows(w: NodeWriter, value: str, known: str) -> str:
    """`value` as a matrix: if the input `known` is a vector, it is one row."""
    return w.over("Unsqueeze", value, [0]) if w.facts.rank(known) == 1 else value


def float_kind(w: NodeWriter, value: str) -> int:
    """The type of `in_floats`' result."""
    import onnx

    double = w.facts.types[value] == onnx.TensorProto.DOUBLE
    return onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT


def dtype_of(kind: int) -> np.dtype[Any]:
    import onnx

    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))


# -- classes ------------------------------------------------------------------------------------------


def class_labels(node: onnx.NodeProto, facts: ModelFacts, name: str) -> np.ndarray | None:
    """The integer labels of classes; None if classes are numbered from 0. Raises CompileError for strings."""
    if attribute(node, "classlabels_strings", None):
        raise refused(node, facts, "with labels of strings", f"{name}: train with classes that are integers")
    found = attribute(node, name, None)
    return np.array(found, np.int64) if found else None


def transformed(w: NodeWriter, scores: str, how: str, dtype: np.dtype[Any]) -> str:
    """`scores` after post_transform `how` of a classifier or ensemble."""
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return w.add("Sigmoid", scores)
    if how == "SOFTMAX":
        return w.add("Softmax", scores, axis=1)
    if how == "SOFTMAX_ZERO":
        least = w.constant(np.array(1e-7, dtype), "least")
        some = w.cast(w.add("Greater", w.add("Abs", scores), least), w.facts.types[w.node.input[0]])
        largest = w.over("ReduceMax", scores, [1], keepdims=1)
        powers = w.add("Exp", w.add("Sub", scores, largest))
        terms = w.add("Where", w.cast(some, 9), powers, w.add("Mul", scores, w.add("Exp", w.add("Neg", largest))))
        total = w.over("ReduceSum", terms, [1], keepdims=1)
        zero, half = (w.constant(np.array(number, dtype), "number") for number in (0.0, 0.5))
        return w.add("Where", w.add("Equal", total, zero), half, w.add("Div", terms, total))
    if how == "PROBIT":
        return _probit(w, scores, dtype)
    raise refused(w.node, w.facts, f"with post_transform {how}", "NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT")


def _probit(w: NodeWriter, scores: str, dtype: np.dtype[Any]) -> str:
    """√2 · erf⁻¹(2x - 1), by Winitzki's approximation, as in onnxruntime and ONNX's reference."""

    def number(value: float) -> str:
        return w.constant(np.array(value, dtype), "number")

    centred = w.add("Sub", w.add("Mul", scores, number(2.0)), number(1.0))
    log = w.add("Log", w.add("Mul", w.add("Sub", number(1.0), centred), w.add("Add", number(1.0), centred)))
    first = w.add("Add", number(2 / (np.pi * 0.147)), w.add("Mul", log, number(0.5)))
    inner = w.add("Sub", w.add("Mul", first, first), w.add("Mul", log, number(1 / 0.147)))
    root = w.add("Sqrt", w.add("Sub", w.add("Sqrt", inner), first))
    return w.add("Mul", w.add("Mul", w.add("Sign", centred), root), number(1.41421356))


def chosen_labels(w: NodeWriter, places: str, labels: np.ndarray | None) -> str:
    """The labels of the classes at `places`."""
    if labels is None or np.array_equal(labels, np.arange(len(labels))):
        return places
    return w.add("Gather", w.constant(labels, "labels"), places, axis=0)


def post_transform(node: onnx.NodeProto) -> str:
    return attribute(node, "post_transform", b"NONE").decode()


# -- linear -------------------------------------------------------------------------------------------


def _linear(w: NodeWriter, targets: int, bias: np.ndarray) -> str:
    node, facts = w.node, w.facts
    factors = numbers(node, "coefficients")
    if not targets or factors.size % targets or bias.size not in (0, 1, targets):
        raise facts.model.error(
            f"node {node.name!r}: {node.op_type} has {factors.size} coefficients and {bias.size} intercepts for "
            f"{targets} results; expected as many for each"
        )
    kind = dtype_of(float_kind(w, node.input[0]))
    value = rows(w, in_floats(w, node.input[0]), node.input[0])
    weights = np.ascontiguousarray(factors.reshape(targets, -1).T.astype(kind))
    result = w.add("MatMul", value, w.constant(weights, "coefficients"))
    return w.add("Add", result, w.constant(bias.astype(kind), "intercepts")) if bias.size else result


def _linear_regressor(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    if facts.rank(node.input[0]) is None:
        return None
    w = NodeWriter(node, facts)
    result = _linear(w, attribute(node, "targets", 1), numbers(node, "intercepts"))
    kind = dtype_of(float_kind(w, node.input[0]))
    return w.done([w.cast(transformed(w, result, post_transform(node), kind), onnx.TensorProto.FLOAT)])


def _linear_classifier(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    if facts.rank(node.input[0]) is None:
        return None
    w, labels, bias = NodeWriter(node, facts), class_labels(
        node, facts, "classlabels_ints"
    ), numbers(node, "intercepts")
    kind = dtype_of(float_kind(w, node.input[0]))
    scores = _linear(w, bias.size or (1 if labels is None else len(labels)), bias)
    if bias.size == 1:  # a single score, of two classes
        places = w.cast(w.over("Squeeze", w.add("Greater", scores, w.constant(np.zeros((), kind), "zero")), [1]), 7)
        labels = np.array([0, 1] if labels is None else [0, *labels][-2:], np.int64)
        scores = w.add("Concat", w.add("Neg", scores), scores, axis=1)
    else:
        places = w.add("ArgMax", scores, axis=1, keepdims=0)
    result = w.cast(transformed(w, scores, post_transform(node), kind), onnx.TensorProto.FLOAT)
    return w.done([chosen_labels(w, places, labels), result])


# -- features -----------------------------------------------------------------------------------------


def _scaler(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    w, kind = NodeWriter(node, facts), dtype_of(float_kind(NodeWriter(node, facts), node.input[0]))
    value, offset, scale = in_floats(w, node.input[0]), numbers(node, "offset"), numbers(node, "scale")
    if offset.size:
        value = w.add("Sub", value, w.constant(offset.astype(kind), "offset"))
    if scale.size:
        value = w.add("Mul", value, w.constant(scale.astype(kind), "scale"))
    return w.done([w.cast(value, onnx.TensorProto.FLOAT)])


def _normalizer(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Normalizer along the last axis; a row of zeros stays zero."""
    import onnx

    if (rank := facts.rank(node.input[0])) is None:
        return None
    w, norm = NodeWriter(node, facts), attribute(node, "norm", b"MAX").decode()
    kind, value = dtype_of(float_kind(w, node.input[0])), in_floats(w, node.input[0])
    terms = w.add("Mul", value, value) if norm == "L2" else w.add("Abs", value)
    if norm not in ("L1", "L2", "MAX"):
        raise refused(node, facts, f"with norm {norm}", "L1, L2 or MAX")
    size = w.over("ReduceMax" if norm == "MAX" else "ReduceSum", terms, [rank - 1], keepdims=1)
    if norm == "L2":
        size = w.add("Sqrt", size)
    none = w.add("Equal", size, w.constant(np.zeros((), kind), "zero"))
    result = w.add("Div", value, w.add("Where", none, w.constant(np.ones((), kind), "one"), size))
    return w.done([w.cast(result, onnx.TensorProto.FLOAT)])


def _binarizer(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    w, kind = NodeWriter(node, facts), facts.types[node.input[0]]
    threshold = w.constant(np.array(attribute(node, "threshold", 0.0)).astype(dtype_of(kind)), "threshold")
    return w.done([w.cast(w.add("Greater", node.input[0], threshold), kind)])


def _imputer(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    w, kind = NodeWriter(node, facts), dtype_of(facts.types[node.input[0]])
    floating = kind.kind == "f"
    values = np.array(attribute(node, "imputed_value_floats" if floating else "imputed_value_int64s", []), kind)
    replaced = attribute(node, "replaced_value_float" if floating else "replaced_value_int64", 0)
    if not values.size:
        raise refused(node, facts, f"of {kind} without values of its type", "imputed values of the input's type")
    missing = w.add("IsNaN", node.input[0]) if floating and np.isnan(replaced) else w.add(
        "Equal", node.input[0], w.constant(np.array(replaced, kind), "replaced"))  # fmt: skip
    return w.done([w.add("Where", missing, w.constant(values, "imputed"), node.input[0])])


def _one_hot(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """OneHotEncoder; unknown categories become zeros. With zeros=0 they should raise an error, which is not done."""
    import onnx

    classes = attribute(node, "cats_int64s", None)
    rank = facts.rank(node.input[0])
    if not classes:
        raise refused(node, facts, "of strings", "cats_int64s")
    if rank is None:
        return None
    w = NodeWriter(node, facts)
    value = w.over("Unsqueeze", w.cast(node.input[0], onnx.TensorProto.INT64), [rank])
    same = w.add("Equal", value, w.constant(np.array(classes, np.int64), "classes"))
    return w.done([w.cast(same, onnx.TensorProto.FLOAT)])


def _feature_vectorizer(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    w = NodeWriter(node, facts)
    parts: list[str] = []
    for name in node.input:
        if facts.rank(name) is None:
            return None
        parts.append(rows(w, w.cast(name, onnx.TensorProto.FLOAT), name))
    return w.done([w.add("Concat", *parts, axis=1)])


def _array_feature_extractor(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    if (rank := facts.rank(node.input[0])) is None:
        return None
    w = NodeWriter(node, facts)
    places = w.reshape(node.input[1], [-1])
    return w.done([rows(w, w.add("Gather", node.input[0], places, axis=rank - 1), node.input[0])])


def _label_encoder(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """LabelEncoder: compares the element with all keys; ArgMax gives the index of the equal one."""
    keys, values, default = (_table(node, facts, what) for what in ("keys", "values", "default"))
    if keys is None or values is None or (rank := facts.rank(node.input[0])) is None:
        return None
    if len(keys) != len(values) or not len(keys):
        raise facts.model.error(
            f"node {node.name!r}: LabelEncoder has {len(keys)} keys and {len(values)} values; expected as many, and one"
        )
    last = np.array([0 if values.dtype.kind == "i" else -0.0]) if default is None else default
    w, kind = NodeWriter(node, facts), dtype_of(facts.types[node.input[0]])
    value = w.over("Unsqueeze", node.input[0], [rank])
    same = w.add("Equal", value, w.constant(keys.astype(kind), "keys"))
    missing = np.isnan(keys) if kind.kind == "f" else np.zeros(len(keys), np.bool_)
    if missing.any():
        same = w.add("Or", same, w.add("And", w.add("IsNaN", value), w.constant(missing, "missing")))
    hits = w.cast(same, 6)
    place = w.add("ArgMax", hits, axis=rank, keepdims=0)
    found = w.cast(w.over("ReduceMax", hits, [rank], keepdims=0), 9)
    chosen = w.add("Gather", w.constant(values, "values"), place, axis=0)
    return w.done([w.add("Where", found, chosen, w.constant(last.astype(values.dtype)[0], "default"))])


def _table(node: onnx.NodeProto, facts: ModelFacts, what: str) -> np.ndarray | None:
    """The keys, values or default of a LabelEncoder, each in one of several attributes."""
    import onnx

    if attribute(node, f"{what}_strings" if what != "default" else "values_strings", None):
        raise refused(node, facts, "of strings", "keys and values that are numbers")
    tensor = attribute(node, f"{what}_tensor", None)
    if tensor is not None:
        if tensor.data_type == onnx.TensorProto.STRING:
            raise refused(node, facts, "of strings", "keys and values that are numbers")
        return onnx.numpy_helper.to_array(tensor).reshape(-1)
    if what == "default":
        floating = attribute(node, "values_floats", None) is not None
        found = attribute(node, "default_float" if floating else "default_int64", 0.0 if floating else -1)
        return np.array([found])
    floats = attribute(node, f"{what}_floats", None)
    if floats is not None:
        return np.array(floats, np.float32)
    return np.array(attribute(node, f"{what}_int64s", []), np.int64)


RULES: dict[str, Rule] = {
    "ArrayFeatureExtractor": _array_feature_extractor, "Binarizer": _binarizer,
    "FeatureVectorizer": _feature_vectorizer, "Imputer": _imputer, "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier, "LinearRegressor": _linear_regressor, "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot, "Scaler": _scaler,
}  # fmt: skip
