"""What inference of ONNX's types is told, and what is made of its answers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.model import OnnxModel

if TYPE_CHECKING:
    import onnx

_log = logging.getLogger("motet")


def forget(graph: onnx.GraphProto) -> None:
    """Have inference decide again what the model declares of its outputs, and where it could only make up names
    (`unk__3`): it keeps such where it knows more."""
    for info in [*graph.value_info]:
        dims = info.type.tensor_type.shape.dim
        if dims and all(dim.dim_param.startswith("unk__") for dim in dims):
            graph.value_info.remove(info)
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def refine_outputs(model: OnnxModel, inferred: onnx.GraphProto) -> None:
    """Take over what inference learnt about outputs, but keep the extents and names the model declares. An extent that
    inference finds to be another number is left to the lowering, with a warning, as ONNX Runtime does."""
    for declared, known in zip(model.proto.graph.output, inferred.output, strict=True):
        shape = declared.type.tensor_type.shape
        if not declared.type.tensor_type.HasField("shape"):
            declared.type.CopyFrom(known.type)
        elif len(shape.dim) == len(known.type.tensor_type.shape.dim):
            for axis, (dim, other) in enumerate(zip(shape.dim, known.type.tensor_type.shape.dim, strict=True)):
                if not dim.HasField("dim_value") and other.HasField("dim_value"):
                    dim.dim_value = other.dim_value
                elif other.HasField("dim_value") and other.dim_value != dim.dim_value:
                    _log.warning(
                        "%s: output %r is declared with %d elements along axis %d, but has %d: the declaration is not "
                        "followed", model.file, declared.name, dim.dim_value, axis, other.dim_value,
                    )  # fmt: skip
                    dim.Clear()
