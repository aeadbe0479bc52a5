"""Small ONNX models, one or a few operators each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Shapes = Mapping[str, Sequence[int]]
Step = tuple[str, Sequence[str], str, Mapping[str, object]]  # operator, inputs, output, attributes


def chain(
    inputs: Shapes, steps: Sequence[Step], outputs: Shapes, constants: Mapping[str, np.ndarray] | None = None
) -> bytes:
    """The serialized model that runs `steps` in order; all tensors are f32."""
    nodes = [helper.make_node(op, list(names), [out], **attributes) for op, names, out, attributes in steps]
    graph = helper.make_graph(
        nodes, "row",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
