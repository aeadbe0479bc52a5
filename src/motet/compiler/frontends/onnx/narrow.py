"""Computes operators of several steps in float32 where their operands are float16 or bfloat16.

    y = LayerNormalization(x, s, b)   of float16   →   y = Cast(LayerNormalization(Cast(x), Cast(s), Cast(b)))

The wheel's lowering rounds each step to the narrow type, so that a result is off by several units of the last place,
and a sum, a square or a product of steps overflows where the result would not: the mean of 1200 elements of 100 is an
infinity in float16. In float32 the result is rounded once.
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
    """`node` on operands of float32, and what it computes of the narrow type rounded to it."""
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
    """In training the statistics are results as well, which keep their types."""
    return None if attribute(node, "training_mode", 0) else _widened(node, facts)


def _gemm(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """A product that is only moved by a third operand is left as it is: factors of 16 bits are multiplied faster."""
    plain = attribute(node, "alpha", 1.0) == 1 and attribute(node, "beta", 1.0) == 1
    return None if plain else _widened(node, facts)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_OPERATORS, _widened), "BatchNormalization": _batch_normalization, "Gemm": _gemm,
}  # fmt: skip
