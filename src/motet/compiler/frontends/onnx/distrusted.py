"""Refuses operators that have no lowering, or whose lowering crashes the process, and values that no memory holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from motet.artifact.validation import MAXIMUM_BYTES
from motet.compiler.frontends.onnx.bodies import each_body
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.simplify import static_shapes
from motet.compiler.frontends.onnx.well_formed import label
from motet.compiler.frontends.onnx.writing import element_types

if TYPE_CHECKING:
    import onnx

_MOST_PARTS = 4096  # each takes some 10 ms to compile


def refuse_unknown(model: OnnxModel) -> None:
    """Raises CompileError for the first node whose operator has no lowering, or whose lowering crashes the process.
    Call it after constant folding and type inference."""
    for node in model.proto.graph.node:
        if model.inner and node.op_type in OF_DATA and not _is_constant(node, model):
            raise model.error(
                f"node {node.name!r}: operator {node.op_type} is not supported in a body of If, Loop or Scan: the "
                "extents of its results depend on data; expected it outside of them"
            )
        if node.op_type in UNKNOWN and node.domain in ("", "ai.onnx"):
            raise model.error(f"node {node.name!r}: operator {node.op_type} is not supported: {UNKNOWN[node.op_type]}")
    each_body(model, refuse_unknown)


def refuse_large(model: OnnxModel) -> None:
    """Raises CompileError for the first node with a result of more bytes than a tensor may have, or of extents below 0,
    or that joins or makes too many tensors. Types must be inferred."""
    import onnx

    shapes, types = static_shapes(model), element_types(model)
    for node in model.proto.graph.node:
        parts = max(len(set(node.input)), len(node.output))
        if node.op_type in ("Concat", "Split") and parts > _MOST_PARTS:
            raise model.error(
                f"{label(node)}: operator {node.op_type} of {parts:,} parts; expected at most {_MOST_PARTS:,}: one "
                "tensor with an axis for the parts takes one node"
            )
        for name in node.output:
            if not (shape := shapes.get(name)) or not types.get(name):
                continue
            if min(shape) < 0:
                raise model.error(
                    f"{label(node)}: operator {node.op_type}: its result {name!r} has the extents {list(shape)}; "
                    "expected none below 0"
                )
            size = math.prod(shape) * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(types[name])).itemsize
            if size > MAXIMUM_BYTES:
                raise model.error(
                    f"{label(node)}: operator {node.op_type}: its result {name!r} of extents {list(shape)} has "
                    f"{size:,} bytes; expected at most {MAXIMUM_BYTES:,}"
                )
    each_body(model, refuse_large)


def _is_constant(node: onnx.NodeProto, model: OnnxModel) -> bool:
    """Whether the condition of a Compress is constant."""
    return node.op_type == "Compress" and node.input[1] in model.constants


OF_DATA = ("Compress", "NonMaxSuppression", "NonZero", "Unique")
UNKNOWN: dict[str, str] = {
    "ImageDecoder": "images are decoded before a call; give it the pixels",
}
