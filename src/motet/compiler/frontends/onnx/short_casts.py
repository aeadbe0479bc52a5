"""The scalar bodies of casts from and to short element types, which `short_types.py` stores as bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from motet.compiler.frontends.onnx.short_types import SHORT_FROM, SHORT_TO
from motet.compiler.frontends.onnx.tensors import TorchKind
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.short_conversions import Conversions
from motet.compiler.ir.short_types import SHORT_TYPES, ShortInteger, ShortType

# Converts a number between two types that are not short.
Convert = Callable[[ir.Value, TorchKind, TorchKind], ir.Value]


def is_short_cast(op: ir.Operation) -> bool:
    return _named(op, SHORT_FROM) is not None or _named(op, SHORT_TO) is not None


def short_cast(
    op: ir.Operation, kinds: Sequence[TorchKind], at: ir.InsertionPoint, value: ir.Value, convert: Convert
) -> ir.Value:
    """The result of the cast `op` of `value`, from the first of `kinds` to the second."""
    conversions, (kind, result) = Conversions(at), kinds
    source, target = _named(op, SHORT_FROM), _named(op, SHORT_TO)
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
    return conversions.encode(value, target, bool(_number(op, "saturate", 1)), _text(op, "round_mode", "up"))


def _widened(
    conversions: Conversions, value: ir.Value, kind: TorchKind, result: TorchKind, convert: Convert
) -> ir.Value:
    if kind.element == result.element:
        return value
    if not (kind.floating and result.floating):
        return convert(value, kind, result)
    return conversions.make("arith.extf" if result.element == "f64" else "arith.truncf", [value], result.scalar)


def _named(op: ir.Operation, name: str) -> ShortType | None:
    text = _text(op, name, "")
    return SHORT_TYPES[text] if text else None


def _text(op: ir.Operation, name: str, default: str) -> str:
    key = f"torch.onnx.{name}"
    return ir.StringAttr(op.attributes[key]).value if key in op.attributes else default


def _number(op: ir.Operation, name: str, default: int) -> int:
    key = f"torch.onnx.{name}"
    return ir.IntegerAttr(op.attributes[key]).value if key in op.attributes else default
