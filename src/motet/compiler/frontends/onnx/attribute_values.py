"""What ONNX's text says of the values of attributes, where its schemas have a type alone. Type inference and the
torch-mlir wheel rely on it: they die of other numbers, and take other texts for any of those that are known.

Source: ONNX Operators, the descriptions of the attributes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from motet.artifact.validation import MAXIMUM_RANK

if TYPE_CHECKING:
    import onnx

MOST_PARTS = 4096  # of a Split or Concat; each takes some 10 ms to compile
_LARGE = (1 << 31) - 1
_MOST = (1 << 63) - 1
_WINDOWED = (
    "Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv", "AveragePool", "LpPool", "MaxPool",
    "MaxUnpool", "Col2Im",
)  # fmt: skip
# The least and largest number of each attribute of numbers, by operator.
_LIMITS: dict[str, dict[str, tuple[int, int]]] = {
    **dict.fromkeys(("group", "strides", "dilations", "kernel_shape"), dict.fromkeys(_WINDOWED, (1, _MOST))),
    "size": {"LRN": (1, _LARGE)},
    "pads": dict.fromkeys(_WINDOWED, (-_LARGE, _LARGE)),  # negative ones remove pixels
    "axis": dict.fromkeys(("LayerNormalization", "RMSNormalization"), (-MAXIMUM_RANK, MAXIMUM_RANK)),
    "batch_dims": {"GatherND": (0, MAXIMUM_RANK)},
    "num_outputs": {"Split": (1, MOST_PARTS)},
}
_ANY = ""  # operator
_NO_DEFAULT = ("BitShift",)
_SCATTERED = ("none", "add", "mul", "max", "min")
_AVERAGED = ("none", "mean", "sum")
_DIRECTIONS = ("forward", "reverse", "bidirectional")
# The texts of each attribute, by operator. An empty text is the default, as in ONNX Runtime.
_TEXTS: dict[str, dict[str, tuple[str, ...]]] = {
    "activation": {"CausalConvWithState": ("none", "silu", "swish")},
    "approximate": {"Gelu": ("none", "tanh")},
    "auto_pad": {_ANY: ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")},
    "coordinate_transformation_mode": {"RoiAlign": ("half_pixel", "output_half_pixel")},
    "direction": {"BitShift": ("LEFT", "RIGHT"), **dict.fromkeys(("GRU", "LSTM", "RNN"), _DIRECTIONS)},
    "keep_aspect_ratio_policy": {"Resize": ("stretch", "not_larger", "not_smaller")},
    "mode": {
        "DepthToSpace": ("DCR", "CRD"), "GridSample": ("bilinear", "linear", "nearest", "bicubic", "cubic"),
        "Pad": ("constant", "reflect", "edge", "wrap"), "RoiAlign": ("avg", "max"), "SpaceToDepth": ("DCR", "CRD"),
        "TensorScatter": ("linear", "circular"), "Upsample": ("nearest", "linear", "bilinear", "cubic"),
    },
    "padding_mode": {"GridSample": ("zeros", "border", "reflection")},
    "reduction": {
        **dict.fromkeys(("ScatterElements", "ScatterND"), _SCATTERED),
        **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _AVERAGED),
    },
    "round_mode": dict.fromkeys(("Cast", "CastLike"), ("up", "down", "nearest")),
    "update_rule": {"LinearAttention": ("linear", "gated", "delta", "gated_delta")},
}  # fmt: skip
_EQUATION = re.compile(r"[A-Za-z., ]*(->[A-Za-z. ]*)?")


def drop_empty(node: onnx.NodeProto) -> None:
    """Removes attributes of no text from `node`, of ONNX's default domain, which then has their defaults."""
    for item in list(node.attribute):
        empty = item.type == item.STRING and not item.s and not item.ref_attr_name
        if empty and _choices(node, item) and node.op_type not in _NO_DEFAULT:
            node.attribute.remove(item)


def wrong_value(node: onnx.NodeProto) -> str | None:
    """What is wrong with the first attribute of `node`, of ONNX's default domain, whose value the operator does not
    have; None if there is none."""
    for item in node.attribute:
        if item.ref_attr_name:
            continue
        if item.type in (item.INT, item.INTS) and (limits := _LIMITS.get(item.name, {}).get(node.op_type)):
            (least, most), one = limits, item.type == item.INT
            if any(not least <= value <= most for value in ([item.i] if one else item.ints)):
                expected = f"numbers from {least:,}" + (f" to {most:,}" if most < _MOST else "")
                return f"{item.name} is {item.i if one else list(item.ints)}; expected {expected}"
        text = item.s.decode(errors="replace")
        choices = _choices(node, item) if item.type == item.STRING else ()
        if choices and text not in choices:
            return f"{item.name} is {text!r}; expected one of {', '.join(choices)}"
        if item.name == "equation" and node.op_type == "Einsum" and not _EQUATION.fullmatch(text):
            return f"equation is {text!r}; expected terms of letters, such as 'ij,jk->ik'"
        if item.name == "num_outputs" and node.op_type == "Split" and item.i < len(node.output):
            return f"num_outputs is {item.i}; expected at least {len(node.output)}, the number of its results"
    return None


def _choices(node: onnx.NodeProto, item: onnx.AttributeProto) -> tuple[str, ...]:
    known = _TEXTS.get(item.name, {})
    return known.get(node.op_type, known.get(_ANY, ()))
