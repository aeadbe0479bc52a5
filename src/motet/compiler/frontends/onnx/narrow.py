"""Computes operators of several steps on float16 or bfloat16 operands in float32.

    y = LayerNormalization(x, s, b)   of float16   →   y = Cast(LayerNormalization(Cast(x), Cast(s), Cast(b)))

The torch-mlir wheel rounds each step to the narrow type, so that a result is wrong by several units in the last place,
and an intermediate sum, square or product overflows where the result would not: the mean of 1200 elements of 100 is an
infinity in float16. In float32 only the result is rounded. OneHot and EyeLike of unsigned integers, at which the wheel
aborts, are computed in int64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy

if TYPE_CHECKING:
    import onnx

_OPERATORS = (
    "AveragePool", "Celu", "Elu", "Gelu", "GlobalAveragePool", "GroupNormalization", "HardSigmoid",
    "HardSwish", "LRN", "LayerNormalization", "LogSoftmax", "LpNormalization", "LpPool", "Mish", "Mod",
    "RMSNormalization", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "Selu", "Sigmoid",
    "Softplus", "Swish",
)  # fmt: skip
_UNSIGNED = (4, 13)  # uint16, uint64


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


def _one_hot(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """OneHot of unsigned values of which the wheel dies, by int64."""
    import onnx

    kind = facts.types.get(node.input[2], 0)
    if kind not in _UNSIGNED:
        return None
    w = NodeWriter(node, facts)
    made = w.add("OneHot", *node.input[:2], w.cast(node.input[2], onnx.TensorProto.INT64))
    w.nodes[-1].attribute.extend(node.attribute)
    return w.done([w.cast(made, kind)])


def _scatter(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """A scatter by indices of 8 bits, or along an axis from the end, of which the wheel dies: by int64, along the axis
    from the beginning."""
    import onnx

    axis, rank = attribute(node, "axis", 0), facts.rank(node.input[0])
    narrow = facts.types.get(node.input[1]) in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    if not narrow and (axis >= 0 or rank is None):
        return None
    wide, casts = copy(node), list[onnx.NodeProto]()
    if narrow:
        wide.input[1] = f"{node.output[0]}/indices"
        casts.append(_cast(node, node.input[1], wide.input[1], onnx.TensorProto.INT64))
    for item in wide.attribute:
        if item.name == "axis":
            item.i = axis % rank if rank else axis
    return [*casts, wide]


def _eye_like(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """EyeLike of unsigned results of which the wheel dies, by int64."""
    import onnx

    kind = attribute(node, "dtype", facts.types.get(node.input[0], 0))
    if kind not in _UNSIGNED:
        return None
    w = NodeWriter(node, facts)
    wide = onnx.TensorProto.INT64
    made = w.add("EyeLike", w.cast(node.input[0], wide), k=attribute(node, "k", 0), dtype=wide)
    return w.done([w.cast(made, kind)])


RULES: dict[str, Rule] = {
    **dict.fromkeys(_OPERATORS, _widened), "BatchNormalization": _batch_normalization, "Gemm": _gemm,
    "EyeLike": _eye_like, "OneHot": _one_hot, "Scatter": _scatter, "ScatterND": _scatter,
}  # fmt: skip
