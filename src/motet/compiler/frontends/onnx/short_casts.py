"""The scalar bodies of casts from and to short element types, which `short_types.py` stores as bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from motet.compiler.frontends.onnx.operator_node import OperatorNode
from motet.compiler.frontends.onnx.short_types import SHORT_FROM, SHORT_TO
from motet.compiler.frontends.onnx.tensors import TorchKind
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.short_conversions import Conversions
from motet.compiler.ir.short_types import SHORT_TYPES, ShortInteger

# Converts a number between two types that are not short.
Convert = Callable[[ir.Value, TorchKind, TorchKind], ir.Value]


def is_short_cast(node: OperatorNode) -> bool:
    return bool(node.text(SHORT_FROM) or node.text(SHORT_TO))


def short_cast(node: OperatorNode, kinds: Sequence[TorchKind], value: ir.Value, convert: Convert) -> ir.Value:
    """The result of a cast of `value`, from the first of `kinds` to the second."""
    conversions, (kind, result) = Conversions(ir.InsertionPoint.current), kinds
    source, target = (SHORT_TYPES.get(node.text(name)) for name in (SHORT_FROM, SHORT_TO))
    if source is not None:
        value = conversions.decode(value, source)
        kind = TorchKind(kind.extents, "si8" if isinstance(source, ShortInteger) else "f32")
    if target is None:
        return _widened(conversions, value, kind, result, convert)
    if isinstance(target, ShortInteger):
        if kind.floating:
            value = convert(value, kind, TorchKind(kind.extents, "si32"))
        return conversions.encode_integer(value, target)
    if not kind.floating:
        wide = TorchKind(kind.extents, "f64" if kind.bits > 16 else "f32")
        value = convert(value, kind, wide)
    return conversions.encode(value, target, bool(node.integer("saturate", 1)), node.text("round_mode", "up"))


def _widened(
    conversions: Conversions, value: ir.Value, kind: TorchKind, result: TorchKind, convert: Convert
) -> ir.Value:
    if kind.element == result.element:
        return value
    if not (kind.floating and result.floating):
        return convert(value, kind, result)
    return conversions.make("arith.extf" if result.element == "f64" else "arith.truncf", [value], result.scalar)
