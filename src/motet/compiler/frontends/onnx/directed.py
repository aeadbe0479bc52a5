"""Writes Scans along other axes, or from the last slice to the first, as the Scan that torch-mlir's wheel lowers.

    y = Scan(x, scan_input_axes=[1], scan_input_directions=[1], scan_output_directions=[1])
                                        →   y = reversed(Scan(reversed(Transpose(x))))

The wheel ignores these attributes. The new Scan goes forwards along the first axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter

if TYPE_CHECKING:
    import onnx

WAYS = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")


def is_directed(node: onnx.NodeProto) -> bool:
    """Whether a Scan has another axis than the first, or another direction than forwards."""
    return any(any(attribute(node, way, [])) for way in WAYS)


def forwards(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto]:
    """The Scan along the first axes, forwards. Raises CompileError if an axis counts from the end of an operand or
    result of unknown rank."""
    count = attribute(node, "num_scan_inputs", 0)
    states = len(node.input) - count
    produced = len(node.output) - states
    axes, backwards, made_axes, made_backwards = (
        list(attribute(node, way, [])) or [0] * number
        for way, number in zip(WAYS, (count, count, produced, produced), strict=True)
    )
    w = NodeWriter(node, facts)
    inputs = list(node.input)
    for number, (axis, back) in enumerate(zip(axes, backwards, strict=True), states):
        moved = _moved(w, inputs[number], _axis(node, facts, node.input[number], axis), to_front=True)
        inputs[number] = w.reverse(moved, 0) if back else moved
    results = w.add_all("Scan", len(node.output), *inputs)
    w.nodes[-1].attribute.extend(item for item in node.attribute if item.name not in WAYS)
    for number, (axis, back) in enumerate(zip(made_axes, made_backwards, strict=True), states):
        value = w.reverse(results[number], 0) if back else results[number]
        results[number] = _moved(w, value, _axis(node, facts, node.output[number], axis), to_front=False)
    return w.done(results)


def _axis(node: onnx.NodeProto, facts: ModelFacts, name: str, axis: int) -> tuple[int, int]:
    """An axis, counted from the first, and the rank of the value `name`, which only other axes than the first need."""
    if axis == 0:
        return 0, 0
    rank = facts.rank(name)
    if rank is None:
        raise facts.model.error(f"node {node.name!r}: Scan along axis {axis} of {name!r}, whose rank is not known; "
                                "expected a known rank")
    return axis % rank, rank


def _moved(w: NodeWriter, value: str, place: tuple[int, int], *, to_front: bool) -> str:
    """`value` with an axis moved to the front, or the first one moved to its place."""
    axis, rank = place
    if axis == 0:
        return value
    order = [axis, *(each for each in range(rank) if each != axis)]
    return w.add("Transpose", value, perm=order if to_front else [int(each) for each in np.argsort(order)])
