"""Operators that have no lowering, or whose lowering ends the process."""

from __future__ import annotations

from motet.compiler.frontends.onnx_bodies import each_body
from motet.compiler.frontends.onnx_model import OnnxModel


def refuse_unknown(model: OnnxModel) -> None:
    """Raise CompileError for the first node of an operator that has no lowering, or whose lowering ends the process.
    To be called when nodes of constants are folded, and types known."""
    for node in model.proto.graph.node:
        if node.op_type in UNKNOWN and node.domain in ("", "ai.onnx"):
            raise model.error(f"node {node.name!r}: operator {node.op_type} is not supported: {UNKNOWN[node.op_type]}")
    each_body(model, refuse_unknown)


UNKNOWN: dict[str, str] = {
    "ImageDecoder": "images are decoded before a call; give it the pixels",
}
