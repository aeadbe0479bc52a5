"""Computes operators of several steps on float16 or bfloat16 operands in float32.

    y = LayerNormalization(x, s, b)   of float16   →   y = Cast(LayerNormalization(Cast(x), Cast(s), Cast(b)))

The torch-mlir wheel rounds each step to the narrow type, so that a result is wrong by several units in the last place,
and an intermediate sum, square or product overflows where the result would not: the mean of 1200 elements of 100 is an
infinity in float16. In float32 only the result is rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, Rule, copy

if TYPE_CHECKING:
    import onnx

_OPERATORS = (
    "AveragePool", "Celu", "Elu", "Gelu", "GlobalAveragePool", "GlobalLpPool", "GroupNormalization", "HardSigmoid",
    "HardSwish", "LRN", "LayerNormalization", "LogSoftmax", "LpNormalization", "LpPool", "Mish", "Mod",
    "RMSNormalization", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "Selu", "Sigmoid",
    "Softplus", "Swish",
)  # fmt: skip


def _widened(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """`node` on float32 operands, with its narrow results rounded."""
    import onnx

    narrow = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    kind = facts.types.get(node.input[0])
    if kind not in narrow:
        return None
    wide, before, after = copy(node), list[onnx.NodeProto](), list[onnx.NodeProto]()
    for index, name in enumerate(node.input):
        if facts.types.get(name) in narrow:
            wide.input[index] = f"{node.output[0]}/wide{index}"
            before.append(_cast(node, name, wide.input[index], onnx.TensorProto.FLOAT))
    for index, name in enumerate(node.output):
        if name and facts.types.get(name, kind if index == 0 else 0) in narrow:
            wide.output[index] = f"{node.output[0]}/result{index}"
            after.append(_cast(node, wide.output[index], name, facts.types.get(name, kind)))
    return [*before, wide, *after]


def _cast(node: onnx.NodeProto, value: str, result: str, kind: int | None) -> onnx.NodeProto:
    import onnx

    return onnx.helper.make_node("Cast", [value], [result], f"{node.name}/{result}", to=int(kind or 0))


def _batch_normalization(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """In training mode the statistics are results too, which keep their types."""
    return None if attribute(node, "training_mode", 0) else _widened(node, facts)


def _gemm(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """A product with only an added operand is left unchanged: products of 16-bit operands are faster."""
    plain = attribute(node, "alpha", 1.0) == 1 and attribute(node, "beta", 1.0) == 1
    return None if plain else _widened(node, facts)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_OPERATORS, _widened), "BatchNormalization": _batch_normalization, "Gemm": _gemm,
}  # fmt: skip
