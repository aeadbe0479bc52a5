"""Rewrites StableHLO operations that upstream lowers wrongly to operations that it lowers correctly.

    stablehlo.add %a, %b : tensor<i1>          →  stablehlo.or %a, %b
    stablehlo.power %x, %n : tensor<i32>       →  math.ipowi %x, %n / 2, squared, times %x where %n is odd
    stablehlo.convert %x : f32 to i32          →  … with the nearest number where it is out of range, and 0 for NaN
    stablehlo.reduce_precision %x, to e5m0     →  … with an infinity for NaN
    stablehlo.logistic %x : tensor<bf16>       →  on f32, rounded once
    chlo.sinh %z : tensor<complex<f32>>        →  -i · stablehlo.sine(i · z)
    stablehlo.maximum of complex numbers       →  lexicographic comparison of real and imaginary parts
    stablehlo.cbrt %z : tensor<complex<f32>>   →  the cube root of |z|, at a third of its angle
    stablehlo.reshape %x, to its own type      →  %x
    stablehlo.slice %x [5:5], empty            →  stablehlo.slice %x [0:0]
    stablehlo.dot_general, algorithm = …       →  without an algorithm

Upstream adds i1 without a carry, leaves conversions of out-of-range numbers undefined where XLA saturates, reads six
bits of an integer's exponent, cancels all digits of sinh near 0, and crashes for a reshape of an unsigned scalar to a
scalar.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations

_LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}
_INFINITIES = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
_WHOLE = "motet.corrected"  # marks operations that are already corrected
_SAFE = "motet.in_range"  # marks numbers that are known to be in range


def correct_stablehlo(module: ir.Module) -> None:
    """Rewrites the operations above in place, including those in bodies of reductions.

    CHLO operations must be rewritten before their decomposition, StableHLO's after it, so this runs twice.
    """
    for op in find_operations(module, *_RULES):
        if (result := _RULES[op.name](_ElementwiseWriter(op), op)) is not None:
            op.results[0].replace_all_uses_with(result)
            op.erase()


class _ElementwiseWriter:
    """Inserts element-wise operations with the shape of `op`'s result before `op`."""

    def __init__(self, op: ir.Operation) -> None:
        self.kind = ir.RankedTensorType(op.results[0].type)
        self._location, self._at = op.location, ir.InsertionPoint(op)

    def of(self, element: ir.Type) -> ir.Type:
        return ir.RankedTensorType.get(self.kind.shape, element, self.kind.encoding)

    def create(
        self, name: str, operands: list[ir.Value], kind: ir.Type | None = None, **attributes: ir.Attribute
    ) -> ir.Value:
        """Creates an operation; by default the result has the type of the first operand."""
        results = [kind or operands[0].type]
        return ir.Operation.create(
            name, results=results, operands=operands, attributes=attributes, loc=self._location, ip=self._at
        ).result

    def convert(self, value: ir.Value, element: ir.Type) -> ir.Value:
        return self.create("stablehlo.convert", [value], self.of(element))

    def constant(self, like: ir.Value, number: float) -> ir.Value:
        """A splat of `number` with the type of `like`."""
        element = ir.RankedTensorType(like.type).element_type
        value = (
            ir.IntegerAttr.get(element, int(number) if number < 2**63 else int(number) - 2**64)  # as a signed integer
            if isinstance(element, ir.IntegerType)
            else ir.FloatAttr.get(element, float(number))
        )
        return self.create("chlo.constant_like", [like], value=value)

    def compare(self, direction: str, left: ir.Value, right: ir.Value) -> ir.Value:
        truth = self.of(ir.IntegerType.get_signless(1))
        sign = ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>")
        return self.create("stablehlo.compare", [left, right], truth, comparison_direction=sign)

    def parts(self, number: ir.Value) -> tuple[ir.Value, ir.Value]:
        real = self.of(ir.ComplexType(ir.RankedTensorType(number.type).element_type).element_type)
        return self.create("stablehlo.real", [number], real), self.create("stablehlo.imag", [number], real)

    def complex(self, real: ir.Value, imaginary: ir.Value) -> ir.Value:
        return self.create("stablehlo.complex", [real, imaginary], self.kind)


def _add(w: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    if w.kind.element_type != ir.IntegerType.get_signless(1):
        return None
    return w.create("stablehlo.or", list(op.operands))


def _power(w: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    """Squares x to half of the exponent, which is non-negative whether the type is signed or not."""
    element = w.kind.element_type
    if not isinstance(element, ir.IntegerType):
        return None
    base, exponent = op.operands
    one, zero = w.constant(base, 1), w.constant(base, 0)
    half = w.create("stablehlo.shift_right_logical", [exponent, one])
    signless = w.of(ir.IntegerType.get_signless(element.width))
    bits = [w.create("stablehlo.bitcast_convert", [value], signless) for value in (base, half)]
    root = w.create("stablehlo.bitcast_convert", [w.create("math.ipowi", bits)], w.kind)
    odd = w.compare("NE", w.create("stablehlo.and", [exponent, one]), zero)
    once_more = w.create("stablehlo.select", [odd, base, one], w.kind)
    power = w.create("stablehlo.multiply", [w.create("stablehlo.multiply", [root, root]), once_more])
    if element.is_unsigned:
        return power
    # 1 / x ** |n|: 1 and -1 are their own inverses, all others give 0.
    vanishes = w.create(
        "stablehlo.and", [w.compare("LT", exponent, zero), w.compare("NE", w.create("stablehlo.abs", [base]), one)]
    )
    return w.create("stablehlo.select", [vanishes, zero, power], w.kind)


def _convert(w: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    (source,) = op.operands
    element = w.kind.element_type
    given = ir.RankedTensorType(source.type).element_type
    if not isinstance(element, ir.IntegerType) or element.width == 1 or str(given) not in _LARGEST:
        return None
    if not isinstance(source.owner, ir.Block) and _SAFE in source.owner.operation.attributes:
        return None
    bits = element.width - (0 if element.is_unsigned else 1)
    end = 2.0**bits if 2.0**bits <= _LARGEST[str(given)] else math.inf
    zero, least = w.constant(source, 0), 0 if element.is_unsigned else -(2**bits)
    low = w.compare("LE", source, w.constant(source, 0.0 if element.is_unsigned else -end))
    high = w.compare("GE", source, w.constant(source, end))
    odd = w.create("stablehlo.or", [w.create("stablehlo.or", [low, high]), w.compare("NE", source, source)])
    safe = w.create("stablehlo.select", [odd, zero, source], source.type, **{_SAFE: ir.UnitAttr.get()})
    number = w.create("stablehlo.convert", [safe], w.kind)
    number = w.create("stablehlo.select", [low, w.constant(number, least), number], w.kind)
    return w.create("stablehlo.select", [high, w.constant(number, 2**bits - 1), number], w.kind)


def _reduce_precision(w: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    """Rounding a NaN to a type without mantissa gives an infinity, as specified."""
    if ir.IntegerAttr(op.attributes["mantissa_bits"]).value or _WHOLE in op.attributes:
        return None
    (source,) = op.operands
    element = w.kind.element_type
    infinity = _INFINITIES[str(element)]
    word = w.of(ir.IntegerType.get_signless(element.width))
    bits = w.create("stablehlo.bitcast_convert", [source], word)
    sign_and_exponent = w.constant(bits, infinity | 1 << (element.width - 1))
    endless = w.create("stablehlo.bitcast_convert", [w.create("stablehlo.and", [bits, sign_and_exponent])], w.kind)
    names = ("exponent_bits", "mantissa_bits")
    given = {name: op.attributes[name] for name in names}
    reduced = w.create(op.name, [source], w.kind, **given, **{_WHOLE: ir.UnitAttr.get()})
    return w.create("stablehlo.select", [w.compare("NE", source, source), endless, reduced], w.kind)


def _reshape(_: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    return op.operands[0] if op.operands[0].type == op.results[0].type else None


def _slice(w: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    """Moves an empty slice at the end of a tensor, which upstream takes for out of bounds, to the start."""
    if 0 not in w.kind.shape or op.operands[0].type == w.kind:
        return None
    at = ir.InsertionPoint(op)
    low = ir.DenseI64ArrayAttr.get([0] * w.kind.rank)
    if op.attributes["start_indices"] == low:
        return None
    sizes = ir.DenseI64ArrayAttr.get(w.kind.shape)
    ones = ir.DenseI64ArrayAttr.get([1] * w.kind.rank)
    return ir.Operation.create(
        "stablehlo.slice", results=[w.kind], operands=[op.operands[0]], loc=op.location, ip=at,
        attributes={"start_indices": low, "limit_indices": sizes, "strides": ones},
    ).result  # fmt: skip


def _logistic(w: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    """Computes in f32: exp(-x) overflows in f16 and is too imprecise in bf16, where the result is finite."""
    if str(w.kind.element_type) not in ("f16", "bf16"):
        return None
    wide = w.create("stablehlo.logistic", [w.convert(op.operands[0], ir.F32Type.get())])
    return w.convert(wide, w.kind.element_type)


def _sinh(w: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    if not isinstance(w.kind.element_type, ir.ComplexType):
        return None
    real, imaginary = w.parts(op.operands[0])
    turned = w.complex(w.create("stablehlo.negate", [imaginary]), real)
    real, imaginary = w.parts(w.create("stablehlo.sine", [turned]))
    return w.complex(imaginary, w.create("stablehlo.negate", [real]))


def _cosh(w: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    if not isinstance(w.kind.element_type, ir.ComplexType):
        return None
    real, imaginary = w.parts(op.operands[0])
    return w.create("stablehlo.cosine", [w.complex(w.create("stablehlo.negate", [imaginary]), real)])


def _dot_general(_: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    """Drops the algorithm, which determines precision, not semantics; upstream cannot lower products with one."""
    if "algorithm" in op.attributes:
        del op.attributes["algorithm"]
    return None


def _cbrt(w: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    if not isinstance(w.kind.element_type, ir.ComplexType):
        return None
    real, imaginary = w.parts(op.operands[0])
    length = w.create("stablehlo.cbrt", [w.create("stablehlo.abs", [op.operands[0]], real.type)])
    angle = w.create("stablehlo.atan2", [imaginary, real])
    third = w.create("stablehlo.divide", [angle, w.constant(angle, 3)])
    factors = [w.create(f"stablehlo.{name}", [third]) for name in ("cosine", "sine")]
    return w.complex(*(w.create("stablehlo.multiply", [length, factor]) for factor in factors))


def _extremum(w: _ElementwiseWriter, op: ir.Operation) -> ir.Value | None:
    if not isinstance(w.kind.element_type, ir.ComplexType):
        return None
    (x, y), (u, v) = (w.parts(operand) for operand in op.operands)
    direction = "GT" if op.name == "stablehlo.maximum" else "LT"
    tied = w.create("stablehlo.and", [w.compare("EQ", x, u), w.compare(direction, y, v)])
    chosen = w.create("stablehlo.or", [w.compare(direction, x, u), tied])
    first = w.create("stablehlo.or", [chosen, w.compare("NE", x, x)])
    first = w.create("stablehlo.or", [first, w.compare("NE", y, y)])
    return w.create("stablehlo.select", [first, *op.operands], w.kind)


_RULES: dict[str, Callable[[_ElementwiseWriter, ir.Operation], ir.Value | None]] = {
    "chlo.cosh": _cosh,
    "chlo.sinh": _sinh,
    "stablehlo.add": _add,
    "stablehlo.cbrt": _cbrt,
    "stablehlo.convert": _convert,
    "stablehlo.logistic": _logistic,
    "stablehlo.maximum": _extremum,
    "stablehlo.minimum": _extremum,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.slice": _slice,
    "stablehlo.power": _power,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.reshape": _reshape,
}
