"""Writes operators on integers, and remainders, that the torch-mlir wheel lacks or lowers wrongly, on MLIR's tensors.

    %1 = torch.operator "onnx.Cast"(%0)          %a = torch_c.to_builtin_tensor %0
           : f32 → ui16                     →    %b = linalg.generic {fptosi, trunci} ins(%a)
                                                 %1 = torch_c.from_builtin_tensor %b

The wheel has no conversions of 16-bit and unsigned types. It lowers division, bounds and absolute values of unsigned
integers as signed, negates integers as 32-bit floats, takes powers of integers as floats, crashes on remainders of
narrow integers, and calculates those of floats with the errors of a quotient and a product, where C's `fmod` is exact.
A shift by the width or more, or by a negative number, is undefined as one instruction. Conversions of floats to
integers go through 64 bits, or 32 bits for narrower integers, like a processor's instructions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from motet.compiler.frontends.onnx.operator_node import OperatorNode, Reader
from motet.compiler.frontends.onnx.short_casts import is_short_cast, short_cast
from motet.compiler.frontends.onnx.tensors import TorchKind, builtin, kind_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.nests import loops
from motet.compiler.ir.sizes import extent_of

_CONVERTED = frozenset({"si16", "ui8", "ui16", "ui32", "ui64"})
_KNOWN = frozenset({"i1", "si8", "si16", "si32", "si64", "ui8", "ui16", "ui32", "ui64", "f16", "bf16", "f32", "f64"})
_NOT_EQUAL, _SIGNED_LESS, _UNSIGNED_GREATER, _FLOAT_AT_LEAST, _FLOAT_NOT_EQUAL = 1, 2, 8, 3, 13


_Body = Callable[["_ScalarOperations", Sequence[ir.Value]], ir.Value]


def integer_reader(op: ir.Operation, name: str) -> Reader | None:
    """Writes `op`, ONNX's operator `name`; None if the wheel lowers it correctly."""
    body = _rule(op, name)
    return None if body is None else lambda node: _generic(node.op, body)


def _rule(op: ir.Operation, name: str) -> _Body | None:
    """The scalar computation that replaces `op`; None if the wheel lowers it correctly."""
    node, kinds = OperatorNode(op), [kind_of(value) for value in (*op.operands, *op.results)]
    known = [kind for kind in kinds if kind is not None and kind.element in _KNOWN]
    if name == "onnx.Clip" and known and known[0].unsigned and known[0].element != "i1":
        return _clip(kinds)
    if len(known) != len(kinds) or len(op.results) != 1:
        return None
    first, result = known[0], known[-1]
    if name == "onnx.Cast" and is_short_cast(node):
        return lambda at, values: short_cast(node, (first, result), values[0], at.convert)
    if name == "onnx.BitCast":
        return lambda at, values: at.reinterpret(values[0], first, result)
    if name in ("onnx.Cast", "onnx.CastLike"):
        if _CONVERTED.isdisjoint((first.element, result.element)):
            return None
        return lambda at, values: at.convert(values[0], first, result)
    plain = node.integer("fmod", 0) != 0
    if name == "onnx.Mod" and first.floating and plain and len(known) == 3:
        return lambda at, values: at.make("arith.remf", values)
    if first.floating or first.element == "i1":
        return None
    if name in _UNARY:
        return functools.partial(_UNARY[name], kind=first)
    if len(known) < 3:
        return None
    if name == "onnx.Pow" and not known[1].floating:
        return lambda at, values: at.power(values, first, known[1])
    if name == "onnx.Mod":
        if first.unsigned:
            return lambda at, values: at.make("arith.remui", values)
        return lambda at, values: at.remainder(values, of_divisor=not plain)
    if name == "onnx.Div" and first.unsigned:
        return lambda at, values: at.make("arith.divui", values)
    if name == "onnx.BitShift":
        left = node.text("direction") == "LEFT"
        return lambda at, values: at.shift(values, first, left)
    return None


def _negate(at: _ScalarOperations, values: Sequence[ir.Value], kind: TorchKind) -> ir.Value:
    return at.make("arith.subi", [at.constant(kind.scalar, 0), values[0]])


def _absolute(at: _ScalarOperations, values: Sequence[ir.Value], kind: TorchKind) -> ir.Value:
    """The absolute value; that of the least signed number is itself."""
    if kind.unsigned:
        return values[0]
    below = at.compare("arith.cmpi", _SIGNED_LESS, [values[0], at.constant(kind.scalar, 0)])
    return at.make("arith.select", [below, _negate(at, values, kind), values[0]], kind.scalar)


def _sign(at: _ScalarOperations, values: Sequence[ir.Value], kind: TorchKind) -> ir.Value:
    one = at.constant(kind.scalar, 1)
    if kind.unsigned:
        return at.make("arith.minui", [values[0], one])
    least = at.constant(kind.scalar, -1)
    return at.make("arith.minsi", [at.make("arith.maxsi", [values[0], least]), one])


_UNARY = {"onnx.Neg": _negate, "onnx.Abs": _absolute, "onnx.Sign": _sign}


def _clip(kinds: Sequence[TorchKind | None]) -> _Body:
    """Clip of unsigned integers between the given bounds; the last of `kinds` is the result's."""
    bounds = [name for name, kind in zip(("arith.maxui", "arith.minui"), kinds[1:-1], strict=False) if kind is not None]

    def body(at: _ScalarOperations, values: Sequence[ir.Value]) -> ir.Value:
        value = values[0]
        for name, bound in zip(bounds, values[1:], strict=True):
            value = at.make(name, [value, bound])
        return value

    return body


def _generic(op: ir.Operation, body: _Body) -> ir.Value:
    """An element-wise operation over operands that broadcast as in ONNX."""
    operands = [(builtin(value), kind) for value in op.operands if (kind := kind_of(value)) is not None]
    result = kind_of(op.results[0])
    if result is None:
        raise TypeError("a result that is no tensor")
    rank = len(result.extents)
    sizes = [_extent(operands, axis - rank) for axis, extent in enumerate(result.extents) if extent == DYNAMIC]
    empty = create("tensor.empty", result.builtin, sizes)
    maps = [_map(kind, rank) for _, kind in operands] + [ir.AffineMap.get_identity(rank)]
    return loops(
        [value for value, _ in operands], empty, maps, lambda block: body(_ScalarOperations(), block.arguments[:-1])
    )


def _extent(operands: Sequence[tuple[ir.Value, TorchKind]], axis: int) -> ir.Value:
    """The extent of the result along `axis`, counted from the end, if it is dynamic. That of an operand may have become
    known since."""
    value, kind = max(
        (each for each in operands if len(each[1].extents) >= -axis),
        key=lambda each: (each[1].extents[axis] != 1, each[1].extents[axis] != DYNAMIC),
    )
    return extent_of(value, axis + len(kind.extents))


def _map(kind: TorchKind, rank: int) -> ir.AffineMap:
    shift = rank - len(kind.extents)
    return ir.AffineMap.get(rank, 0, [
        ir.AffineConstantExpr.get(0) if extent == 1 else ir.AffineDimExpr.get(axis + shift)
        for axis, extent in enumerate(kind.extents)
    ])  # fmt: skip


class _ScalarOperations:
    """Creates scalar operations at the current insertion point."""

    def make(self, name: str, values: Sequence[ir.Value], kind: ir.Type | None = None) -> ir.Value:
        return create(name, kind or values[0].type, values)

    def constant(self, kind: ir.Type, value: int | float) -> ir.Value:
        attribute = ir.FloatAttr.get(kind, value) if isinstance(value, float) else ir.IntegerAttr.get(kind, value)
        return create("arith.constant", kind, [], {"value": attribute})

    def compare(self, name: str, predicate: int, values: Sequence[ir.Value]) -> ir.Value:
        said = {"predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)}
        return create(name, ir.IntegerType.get_signless(1), values, said)

    def remainder(self, values: Sequence[ir.Value], of_divisor: bool) -> ir.Value:
        """The remainder of signed numbers, with the sign of the dividend, or of the divisor if `of_divisor`."""
        found = self.make("arith.remsi", values)
        if not of_divisor:
            return found
        zero = self.constant(found.type, 0)
        signs = [self.compare("arith.cmpi", _SIGNED_LESS, [one, zero]) for one in (found, values[1])]
        differ = self.compare("arith.cmpi", _NOT_EQUAL, signs)
        both = self.make("arith.andi", [differ, self.compare("arith.cmpi", _NOT_EQUAL, [found, zero])])
        return self.make("arith.select", [both, self.make("arith.addi", [found, values[1]]), found], found.type)

    def power(self, values: Sequence[ir.Value], base: TorchKind, exponent: TorchKind) -> ir.Value:
        """A power modulo 2 to the width of the base; a negative exponent gives 0 for all bases but 1 and -1."""
        wide = TorchKind(base.extents, "si64")
        numbers = [self.convert(value, kind, wide) for value, kind in zip(values, (base, exponent), strict=True)]
        return self.convert(self.make("math.ipowi", numbers), wide, base)

    def shift(self, values: Sequence[ir.Value], kind: TorchKind, left: bool) -> ir.Value:
        """A shift; by the width or more, all bits become the fill bit."""
        value, places = values
        last = self.constant(value.type, kind.bits - 1)
        beyond = self.compare("arith.cmpi", _UNSIGNED_GREATER, [places, last])
        within = self.make("arith.minui", [places, last])
        moved = self.make("arith.shli" if left else "arith.shrui" if kind.unsigned else "arith.shrsi", [value, within])
        filled = moved if not (left or kind.unsigned) else self.constant(value.type, 0)
        return self.make("arith.select", [beyond, filled, moved], moved.type)

    def reinterpret(self, value: ir.Value, source: TorchKind, target: TorchKind) -> ir.Value:
        """The same bits as a number of another type; a boolean occupies a byte."""
        if source.element == "i1" and target.element != "i1":
            return self.make("arith.extui", [value], target.scalar)
        if target.element == "i1" and source.element != "i1":
            return self.compare("arith.cmpi", _NOT_EQUAL, [value, self.constant(value.type, 0)])
        return value if source.scalar == target.scalar else self.make("arith.bitcast", [value], target.scalar)

    def convert(self, value: ir.Value, source: TorchKind, target: TorchKind) -> ir.Value:
        if target.element == "i1":
            zero = self.constant(value.type, 0.0 if source.floating else 0)
            if source.floating:
                return self.compare("arith.cmpf", _FLOAT_NOT_EQUAL, [value, zero])
            return self.compare("arith.cmpi", _NOT_EQUAL, [value, zero])
        if target.floating:
            return self.make("arith.uitofp" if source.unsigned else "arith.sitofp", [value], target.scalar)
        if source.floating and target.bits < 32:
            word = self.make("arith.fptosi", [value], ir.IntegerType.get_signless(32))
            return self.make("arith.trunci", [word], target.scalar)
        if source.floating:
            return self._resize(self._whole(value, target), 64, target, "arith.extsi")
        return self._resize(value, source.bits, target, "arith.extui" if source.unsigned else "arith.extsi")

    def _resize(self, value: ir.Value, bits: int, target: TorchKind, extend: str) -> ir.Value:
        if bits == target.bits:
            return value
        return self.make("arith.trunci" if bits > target.bits else extend, [value], target.scalar)

    def _whole(self, value: ir.Value, target: TorchKind) -> ir.Value:
        """A float converted to a 64-bit integer; for unsigned targets also above 2⁶³."""
        wide = ir.IntegerType.get_signless(64)
        plain = self.make("arith.fptosi", [value], wide)
        if target.element != "ui64" or str(value.type) == "f16":
            return plain
        middle = self.constant(value.type, 2.0**63)
        less = self.make("arith.fptosi", [self.make("arith.subf", [value, middle])], wide)
        more = self.make("arith.xori", [less, self.constant(wide, -(2**63))])
        large = self.compare("arith.cmpf", _FLOAT_AT_LEAST, [value, middle])
        return self.make("arith.select", [large, more, plain], wide)
