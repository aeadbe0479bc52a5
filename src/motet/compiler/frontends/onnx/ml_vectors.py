"""Writes support vector machines, of the domain `ai.onnx.ml`, as products with their support vectors.

    SVMRegressor(x)   →  kernel(x, vectors) · coefficients + rho
    SVMClassifier(x)  →  for each pair of classes such a sum, a vote for one of them; probabilities by Platt's sigmoids
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.ml import (
    chosen_labels,
    class_labels,
    dtype_of,
    float_kind,
    in_floats,
    numbers,
    post_transform,
    rows,
    transformed,
)
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, refused

if TYPE_CHECKING:
    import onnx


@dataclass
class _Machine:
    """A node writer, the input rows, and the type of the computation."""

    w: NodeWriter
    rows: str
    dtype: np.dtype[Any]

    def number(self, value: Any, what: str = "number") -> str:
        return self.w.constant(np.asarray(value).astype(self.dtype), what)

    def kernel(self, vectors: np.ndarray) -> str:
        """The kernel function of each row and each of `vectors`."""
        w, node = self.w, self.w.node
        gamma, coefficient, degree = [*attribute(node, "kernel_params", []), 0.0, 0.0, 0.0][:3]
        products = w.add("MatMul", self.rows, self.number(np.ascontiguousarray(vectors.T), "vectors"))
        how = attribute(node, "kernel_type", b"LINEAR").decode()
        if how == "LINEAR":
            return products
        if how == "RBF":  # the expansion |a|² − 2ab + |b|² would cancel
            differences = w.add("Sub", w.over("Unsqueeze", self.rows, [1]), self.number(vectors, "vectors"))
            squares = w.over("ReduceSum", w.add("Mul", differences, differences), [2], keepdims=0)
            return w.add("Exp", w.add("Mul", squares, self.number(-gamma)))
        moved = w.add("Add", w.add("Mul", products, self.number(gamma)), self.number(coefficient))
        if how == "POLY":
            return w.add("Pow", moved, self.number(int(degree)))
        if how == "SIGMOID":
            return w.add("Tanh", moved)
        raise refused(node, w.facts, f"with kernel_type {how}", "LINEAR, POLY, RBF or SIGMOID")


def _machine(node: onnx.NodeProto, facts: ModelFacts) -> _Machine:
    w = NodeWriter(node, facts)
    return _Machine(w, rows(w, in_floats(w, node.input[0]), node.input[0]), dtype_of(float_kind(w, node.input[0])))


def _shaped(node: onnx.NodeProto, facts: ModelFacts, values: np.ndarray, count: int) -> np.ndarray:
    if not count or values.size % count or not values.size:
        raise facts.model.error(
            f"node {node.name!r}: {node.op_type}: a list of {values.size} numbers; expected as many for each of {count}"
        )
    return values.reshape(count, -1)


def _regressor(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    if facts.rank(node.input[0]) is None:
        return None
    m, supports = _machine(node, facts), attribute(node, "n_supports", 0)
    factors, rho = numbers(node, "coefficients"), numbers(node, "rho")[:1]
    if supports:
        similar = m.kernel(_shaped(node, facts, numbers(node, "support_vectors"), supports))
        total = m.w.add("MatMul", similar, m.number(_shaped(node, facts, factors, supports), "coefficients"))
    else:
        total = m.w.add("MatMul", m.rows, m.number(factors.reshape(-1, 1), "coefficients"))
    result = m.w.add("Add", total, m.number(rho, "rho")) if rho.size else total
    if attribute(node, "one_class", 0):
        above = m.w.add("Greater", result, m.number(0.0))
        result = m.w.add("Where", above, m.number(1.0), m.number(-1.0))
    return m.w.done([m.w.cast(transformed(m.w, result, post_transform(node), m.dtype), onnx.TensorProto.FLOAT)])


def _pairs(count: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def _decisions(m: _Machine, counts: np.ndarray, classes: int) -> str:
    """The decision function by row and pair of classes; positive values favour the first class."""
    node, facts = m.w.node, m.w.facts
    total = int(counts.sum())
    vectors = _shaped(node, facts, numbers(node, "support_vectors"), total)
    factors = _shaped(node, facts, numbers(node, "coefficients"), classes - 1)
    rho, ends = numbers(node, "rho"), np.cumsum(counts)
    pairs = _pairs(classes)
    if factors.shape[1] != total or len(rho) != len(pairs) or len(counts) != classes:
        raise facts.model.error(
            f"node {node.name!r}: SVMClassifier of {classes} classes and {total} vectors: its lists do not fit; "
            f"expected {(classes - 1) * total} coefficients and {len(pairs)} rho"
        )
    table = np.zeros((total, len(pairs)))
    for number, (i, j) in enumerate(pairs):
        first, second = (slice(int(ends[k] - counts[k]), int(ends[k])) for k in (i, j))
        table[first, number] = factors[j - 1, first]
        table[second, number] = factors[i, second]
    return m.w.add("Add", m.w.add("MatMul", m.kernel(vectors), m.number(table, "coefficients")), m.number(rho, "rho"))


def _votes(m: _Machine, decisions: str, classes: int) -> str:
    """The number of pairs that each class wins."""
    import onnx

    w, kind = m.w, onnx.helper.np_dtype_to_tensor_dtype(m.dtype)
    first = np.zeros((len(_pairs(classes)), classes))
    second = first.copy()
    for number, (i, j) in enumerate(_pairs(classes)):
        first[number, i], second[number, j] = 1, 1
    won = w.cast(w.add("Greater", decisions, m.number(0.0)), kind)
    lost = w.add("Sub", m.number(1.0), won)
    return w.add("Add", w.add("MatMul", won, m.number(first)), w.add("MatMul", lost, m.number(second)))


def _probabilities(m: _Machine, decisions: str, classes: int) -> str:
    """The probabilities of two classes by a sigmoid, as in libsvm; onnxruntime's differ by up to 0.0025."""
    w = m.w
    scaled = w.add("Mul", decisions, m.number(numbers(w.node, "prob_a")))
    single = w.add("Sigmoid", w.add("Neg", w.add("Add", scaled, m.number(numbers(w.node, "prob_b")))))
    single = w.add("Min", w.add("Max", single, m.number(1e-7)), m.number(1 - 1e-7))
    if classes == 2:
        return w.add("Concat", single, w.add("Sub", m.number(1.0), single), axis=1)
    raise refused(
        w.node, w.facts, f"with probabilities of {classes} classes", "two classes, or no probabilities: "
        "train with probability=False, or wrap it in CalibratedClassifierCV",
    )  # fmt: skip


def _classifier(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    if facts.rank(node.input[0]) is None:
        return None
    labels = class_labels(node, facts, "classlabels_ints")
    if labels is None:
        raise refused(node, facts, "without labels", "classlabels_ints")
    m, counts = _machine(node, facts), np.array(attribute(node, "vectors_per_class", []), np.int64)
    classes, w, how = len(labels), m.w, post_transform(node)
    if not counts.sum():
        factors = _shaped(node, facts, numbers(node, "coefficients"), classes)
        scores = w.add("MatMul", m.rows, m.number(np.ascontiguousarray(factors.T), "coefficients"))
        scores = w.add("Add", scores, m.number(numbers(node, "rho")[:1], "rho"))
        places = w.add("ArgMax", scores, axis=1, keepdims=0)
    else:
        decisions = _decisions(m, counts, classes)
        places = w.add("ArgMax", _votes(m, decisions, classes), axis=1, keepdims=0)
        scores = decisions
        if numbers(node, "prob_a").size:
            scores = _probabilities(m, decisions, classes)
        elif classes == 2:
            scores = w.add("Concat", w.add("Neg", decisions), decisions, axis=1)
    result = w.cast(transformed(w, scores, how, m.dtype), onnx.TensorProto.FLOAT)
    return w.done([chosen_labels(w, places, labels), result])


RULES: dict[str, Rule] = {"SVMClassifier": _classifier, "SVMRegressor": _regressor}
