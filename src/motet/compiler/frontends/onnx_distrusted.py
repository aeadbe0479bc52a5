"""Forms of operators that the wheel's ONNX lowering is known to get wrong.

Each was found by running ONNX's own node tests against the lowered program: the plain lowering gives the same wrong
numbers, so nothing later could notice. A clear refusal is better than a wrong number; an entry goes when the
wheel gets it right, which a test watches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from motet.compiler.frontends.onnx_model import OnnxModel

if TYPE_CHECKING:
    import onnx


def refuse_distrusted(model: OnnxModel) -> None:
    """Raise CompileError for the first node of a distrusted form."""
    tensors = _tensors(model)
    for node in model.proto.graph.node:
        rule = RULES.get(node.op_type)
        if rule is None or node.domain not in ("", "ai.onnx"):
            continue
        what = rule(node, tensors)
        if what is not None:
            name = f"node {node.name!r}" if node.name else f"node that computes {list(node.output)}"
            raise model.error(f"{name}: {node.op_type} {what} is not supported: its lowering gives wrong numbers")


@dataclass(frozen=True)
class Tensor:
    """What the model declares of a tensor."""

    unsigned: bool
    rank: int


def _tensors(model: OnnxModel) -> dict[str, Tensor]:
    import onnx

    kinds = (onnx.TensorProto.UINT8, onnx.TensorProto.UINT16, onnx.TensorProto.UINT32, onnx.TensorProto.UINT64)
    graph = model.proto.graph
    declared = {
        value.name: Tensor(value.type.tensor_type.elem_type in kinds, len(value.type.tensor_type.shape.dim))
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    return declared | {name: Tensor(array.dtype.kind == "u", array.ndim) for name, array in model.constants.items()}


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    import onnx

    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


def _unsigned(node: onnx.NodeProto, tensors: Tensors) -> str | None:
    of = tensors.get(node.input[0])
    return "of unsigned integers" if of is not None and of.unsigned else None


def _max_pool(node: onnx.NodeProto, tensors: Tensors) -> str | None:
    if len(node.output) > 1 and node.output[1]:
        return "with indices as a result"
    return _unsigned(node, tensors)


def _integer_product(node: onnx.NodeProto, tensors: Tensors) -> str | None:
    return _unsigned(node, tensors) and "of unsigned integers without zero points" if len(node.input) < 3 else None


def _upsample(node: onnx.NodeProto, tensors: Tensors) -> str | None:
    return "with mode linear" if _attributes(node).get("mode") == b"linear" else None


def _quantised_product(node: onnx.NodeProto, tensors: Tensors) -> str | None:
    of = tensors.get(node.input[0])
    return "of batches" if of is not None and of.rank > 2 else None


def _local_response(node: onnx.NodeProto, tensors: Tensors) -> str | None:
    return "over an even number of channels" if _attributes(node).get("size", 1) % 2 == 0 else None


def _recurrent(node: onnx.NodeProto, tensors: Tensors) -> str | None:
    if node.op_type == "LSTM" and len(node.input) > 7 and node.input[7]:
        return "with peepholes"
    usual = {"GRU": [b"Sigmoid", b"Tanh"], "LSTM": [b"Sigmoid", b"Tanh", b"Tanh"]}[node.op_type]
    named = _attributes(node).get("activations", usual)
    known = b", ".join(usual).decode()
    return None if named == usual * (len(named) // len(usual)) else f"with activations other than {known}"


def _grid_sample(node: onnx.NodeProto, tensors: Tensors) -> str | None:
    attributes = _attributes(node)
    if attributes.get("mode") == b"nearest":
        return "with mode nearest"
    zeros = attributes.get("padding_mode", b"zeros") == b"zeros" and not attributes.get("align_corners", 0)
    return "with zeros around, and corners that are not aligned" if zeros else None


def _resize(node: onnx.NodeProto, tensors: Tensors) -> str | None:
    attributes = _attributes(node)
    scaled = len(node.input) > 2 and bool(node.input[2])
    aligned = attributes.get("coordinate_transformation_mode") == b"align_corners"
    return "by scales with align_corners" if scaled and aligned else None


def _weighted_loss(node: onnx.NodeProto, tensors: Tensors) -> str | None:
    mean = _attributes(node).get("reduction", b"mean") == b"mean"
    weighted = len(node.input) > 2 and bool(node.input[2])
    of = tensors.get(node.input[0])
    return "of two dimensions with weights and reduction mean" if mean and weighted and of and of.rank == 2 else None


Tensors = dict[str, Tensor]
RULES: dict[str, Callable[[Any, Tensors], str | None]] = {
    "DequantizeLinear": _unsigned,
    "GRU": _recurrent,
    "LRN": _local_response,
    "LSTM": _recurrent,
    "MatMulInteger": _integer_product,
    "MaxPool": _max_pool,
    "QLinearMatMul": _quantised_product,
    "GridSample": _grid_sample,
    "Resize": _resize,
    "Upsample": _upsample,
    "SoftmaxCrossEntropyLoss": _weighted_loss,
    "NegativeLogLikelihoodLoss": _weighted_loss,
}
