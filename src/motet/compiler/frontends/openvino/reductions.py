"""Reductions along axes, cumulative sums, and softmax."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.openvino.operation import OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rule, Rules

_KINDS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2")


def _axes(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.cast(op.inputs[1], np.int64) if op.value(1) is None else w.ints(op.axes(1, op.rank(0)))


def _reduction(name: str) -> Rule:
    def rule(op: OpenvinoOperation, w: GraphWriter) -> str:
        keep = int(bool(op.attribute("keep_dims", False)))
        value, dtype = op.inputs[0], op.dtype(0)
        if name == "Mean" and dtype.kind in "iu":  # rounded towards zero
            value = w.cast(value, np.float64)
        found = w.add(f"Reduce{name}", value, _axes(op, w), keepdims=keep, noop_with_empty_axes=1)
        return w.cast(found, dtype) if name == "Mean" and dtype.kind in "iu" else found

    return rule


def _logical(name: str) -> Rule:
    def rule(op: OpenvinoOperation, w: GraphWriter) -> str:
        keep = int(bool(op.attribute("keep_dims", False)))
        numbers = w.cast(op.inputs[0], np.int32)
        return w.cast(w.add(name, numbers, _axes(op, w), keepdims=keep, noop_with_empty_axes=1), np.bool_)

    return rule


def _cumulative(op: OpenvinoOperation, w: GraphWriter) -> str:
    flags = {name: int(bool(op.attribute(name, False))) for name in ("exclusive", "reverse")}
    axis = w.ints(op.axes(1, op.rank(0))[0]) if op.value(1) is not None else w.cast(op.inputs[1], np.int64)
    return w.add("CumSum", op.inputs[0], axis, **flags)


def _softmax(name: str) -> Rule:
    return lambda op, w: w.add(name, op.inputs[0], axis=int(op.attribute("axis", 1 if op.version == 1 else -1)))


RULES: Rules = {
    **{f"Reduce{name}": _reduction(name) for name in _KINDS},
    "ReduceLogicalAnd": _logical("ReduceMin"), "ReduceLogicalOr": _logical("ReduceMax"), "CumSum": _cumulative,
    "Softmax": _softmax("Softmax"), "LogSoftmax": _softmax("LogSoftmax"),
}
