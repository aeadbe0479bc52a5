"""Prepares a model for ONNX's type inference, and applies the results."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.bodies import all_nodes
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.writing import element_types

if TYPE_CHECKING:
    import onnx

_log = logging.getLogger("motet")
# Operators without a rule of inference, which finds only the element type in their function bodies; the result has the
# shape of the first operand.
_OF_SAME_SHAPE = frozenset({"GroupNormalization", "MeanVarianceNormalization"})


def forget(graph: onnx.GraphProto) -> None:
    """Removes the declared shapes of outputs, and of values whose extents are all invented names (`unk__3`), so that
    inference computes them again: it keeps what is declared even if it could infer more."""
    for info in [*graph.value_info]:
        dims = info.type.tensor_type.shape.dim
        if dims and all(dim.dim_param.startswith("unk__") for dim in dims):
            graph.value_info.remove(info)
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def keep_shapes(graph: onnx.GraphProto) -> None:
    """Replaces operators whose result has the type of their operand, but for which ONNX has no inference, by Identity.
    For graphs that are only inferred: rules of the readers need the shape, or leave them to a wrong lowering."""
    for node in all_nodes(graph):
        if node.domain in ("", "ai.onnx") and node.op_type in _OF_SAME_SHAPE:
            node.op_type = "Identity"
            del node.input[1:], node.attribute[:]


def widen_attention(graph: onnx.GraphProto, inferred: onnx.GraphProto) -> bool:
    """Replaces Attention over values of rank 3 and dynamic width, for which inference finds an extent of 0, by Compress
    along the last axis, whose result has a dynamic one. For graphs that are only inferred; returns whether there were
    any."""
    import onnx

    infos = (*inferred.input, *inferred.value_info, *inferred.output)
    widths = {info.name: dims[2] for info in infos if len(dims := info.type.tensor_type.shape.dim) == 3}
    found = [
        node for node in graph.node if node.op_type == "Attention" and node.domain in ("", "ai.onnx")
        and node.input[2] in widths and not widths[node.input[2]].HasField("dim_value")
    ]  # fmt: skip
    for node in found:
        node.CopyFrom(onnx.helper.make_node("Compress", [node.input[0], node.input[2]], node.output[:1], axis=2))
    return bool(found)


def refine_outputs(model: OnnxModel, inferred: onnx.GraphProto) -> None:
    """Applies inferred types to outputs; keeps the extents and names that the model declares. If inference finds
    another number than declared, the extent is left to the lowering, with a warning, as in ONNX Runtime."""
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
        elif known.type.tensor_type.HasField("shape"):
            raise model.error(
                f"output {declared.name!r} is declared with {len(shape.dim)} axes, but has "
                f"{len(known.type.tensor_type.shape.dim)}"
            )


def name_casts(model: OnnxModel) -> bool:
    """Makes each CastLike of an inferred type a Cast to it, which folds if it is of a constant. The wheel dies of
    CastLike to unsigned integers and to int16. Returns whether anything changed."""
    import onnx

    casts = [node for node in model.proto.graph.node if node.op_type == "CastLike"]
    types = element_types(model) if casts else {}
    known = [node for node in casts if types.get(node.input[1])]
    for node in known:
        node.op_type = "Cast"
        node.attribute.append(onnx.helper.make_attribute("to", types[node.input.pop()]))
    return bool(known)
