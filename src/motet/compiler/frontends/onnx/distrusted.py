"""Refuses operators that have no lowering, or whose lowering crashes the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.bodies import each_body
from motet.compiler.frontends.onnx.model import OnnxModel

if TYPE_CHECKING:
    import onnx


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


def _is_constant(node: onnx.NodeProto, model: OnnxModel) -> bool:
    """Whether the condition of a Compress is constant."""
    return node.op_type == "Compress" and node.input[1] in model.constants


OF_DATA = ("Compress", "NonMaxSuppression", "NonZero", "Unique")
UNKNOWN: dict[str, str] = {
    "ImageDecoder": "images are decoded before a call; give it the pixels",
}
