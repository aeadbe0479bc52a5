"""Beam search: the tokens of each beam, followed back from the last step by the indices of parents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.openvino.operation import OpenvinoOperation, extents_of
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules

if TYPE_CHECKING:
    import onnx

_STEP, _ROW = 0, 1  # axes of [steps, rows, beams]


def _gather_tree(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Goes through the steps from the last to the first. A beam begins at the last step of its row, `max_seq_len`, and
    has the end token behind it, and behind its first end token."""
    tokens, parents, lengths, end = op.inputs
    length = w.unsqueeze(w.cast(lengths, np.int64), 1)
    shape = w.add("Shape", tokens)
    beams = w.add("Range", w.ints(0), w.reshape(w.extent(tokens, 2), []), w.ints(1))
    first = w.add("Expand", beams, w.slice(shape, 0, 1))
    count = w.reshape(w.extent(tokens, _STEP), [])
    steps = w.add("Range", w.ints(0), count, w.ints(1))
    body = _step(op, w, length, end)
    _, found = w.add_all(
        "Scan", 2, first, steps, tokens, w.cast(parents, np.int64), body=body, num_scan_inputs=3,
        scan_input_directions=[1, 1, 1], scan_output_directions=[1],
    )
    ended = w.cast(w.add("Equal", found, end), np.int64)
    before = w.add("CumSum", ended, w.ints(_STEP), exclusive=1)
    return w.add("Where", w.add("Greater", before, w.ints(0)), end, found)


def _step(op: OpenvinoOperation, w: GraphWriter, length: str, end: str) -> onnx.GraphProto:
    """The body for one step: the beams [rows, beams] that are followed, and their tokens."""
    import onnx

    inner = w.body()
    beams, step, token, parent = (w.names.fresh(f"{w.stem}/{name}") for name in ("beams", "step", "tokens", "parents"))
    known = extents_of(op.node.input_value(0))
    given: list[int | None] = [None, None] if known is None else known[_ROW:]

    def info(name: str, dtype: Any, extents: list[int | None]) -> onnx.ValueInfoProto:
        named = [f"{name}.{axis}" if extent is None else extent for axis, extent in enumerate(extents)]
        return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), named)

    is_inside = inner.add("Less", step, length)
    chosen = inner.add("Where", is_inside, inner.add("GatherElements", token, beams, axis=1), end)
    followed = inner.add("Where", is_inside, inner.add("GatherElements", parent, beams, axis=1), beams)
    inputs = [info(beams, np.int64, given), info(step, np.int64, []), info(token, op.dtype(0), given),
              info(parent, np.int64, given)]
    outputs = [info(followed, np.int64, given), info(chosen, op.dtype(0), given)]
    return onnx.helper.make_graph(inner.nodes, w.names.fresh(f"{w.stem}/body"), inputs, outputs)


RULES: Rules = {"GatherTree": _gather_tree}
