"""Converts from and to short element types by integer operations of `arith` on the byte that stores an element.

Every back end supports these operations, so that none needs to know the types. Rounding is to nearest, ties to even, in
one step from the source's type; it does not depend on how a processor treats subnormal numbers.

Source: the tables of ONNX's operator Cast; OCP Microscaling Formats 1.0 for f8E8M0FNU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.short_types import ShortExponent, ShortFloat, ShortInteger, ShortType

_EQUAL, _SIGNED_LESS, _SIGNED_GREATER, _UNSIGNED_LESS, _UNSIGNED_GREATER = 0, 2, 4, 6, 8
_F64_MANTISSA, _F64_BIAS = 52, 1023


@dataclass(frozen=True)
class Conversions:
    """Creates operations at `at`."""

    at: ir.InsertionPoint

    def decode(self, byte: ir.Value, kind: ShortType) -> ir.Value:
        """The element in `byte`: an i8 for integers, which are signless, else an f32."""
        if isinstance(kind, ShortInteger):
            return self._decode_integer(byte, kind)
        code = self.make("arith.extui", [byte], _integer(32))
        if isinstance(kind, ShortExponent):
            return self._decode_exponent(code)
        return self._decode_float(code, kind)

    def encode_integer(self, value: ir.Value, kind: ShortInteger) -> ir.Value:
        """The byte that stores the low bits of an integer."""
        byte = self.resize(value, 8)
        return self.make("arith.andi", [byte, self.constant(byte.type, (1 << kind.bits) - 1)])

    def encode(self, value: ir.Value, kind: ShortFloat | ShortExponent, saturate: bool = True, mode: str = "up"
               ) -> ir.Value:
        """The byte that stores a floating-point number. Too large numbers become the largest one with `saturate`, else
        an infinity or NaN. `mode` is the rounding of f8E8M0FNU: `up`, `down`, or `nearest` with ties up."""
        if isinstance(kind, ShortExponent):
            return self._encode_exponent(value, saturate, mode)
        if str(value.type) != "f64":
            value = self.widen(value, ir.F32Type.get())
        return self._encode_float(value, kind, saturate)

    # -- integers

    def _decode_integer(self, byte: ir.Value, kind: ShortInteger) -> ir.Value:
        places = self.constant(byte.type, 8 - kind.bits)
        high = self.make("arith.shli", [byte, places])
        return self.make("arith.shrsi" if kind.signed else "arith.shrui", [high, places])

    # -- floats

    def _decode_float(self, code: ir.Value, kind: ShortFloat) -> ir.Value:
        word = code.type
        size = self._and(code, (1 << (kind.bits - 1)) - 1)
        rebased = self._add(self._shift_left(size, 23 - kind.mantissa), (127 - kind.bias) << 23)
        unit = self.real(2.0 ** (1 - kind.bias - kind.mantissa))
        small = self.make("arith.mulf", [self.make("arith.sitofp", [size], ir.F32Type.get()), unit])
        below = self.compare(_UNSIGNED_LESS, size, self.constant(word, 1 << kind.mantissa))
        bits = self.select(below, self.bits(small), rebased)
        if kind.special == "ieee":
            infinite = self._or(self._shift_left(size, 23 - kind.mantissa), 0xFF << 23)
            bits = self.select(self.compare(_UNSIGNED_GREATER, size, self.constant(word, kind.largest)), infinite, bits)
        elif kind.special == "fn":
            undefined = self.compare(_EQUAL, size, self.constant(word, kind.nan))
            bits = self.select(undefined, self.constant(word, 0x7FC << 20), bits)
        sign = self._shift_left(self._shift_right(self._and(code, 1 << (kind.bits - 1)), kind.bits - 1), 31)
        bits = self.make("arith.ori", [bits, sign])
        if kind.special == "fnuz":
            undefined = self.compare(_EQUAL, code, self.constant(word, kind.nan))
            bits = self.select(undefined, self.constant(word, 0x7FC << 20), bits)
        return self.make("arith.bitcast", [bits], ir.F32Type.get())

    def _encode_float(self, value: ir.Value, kind: ShortFloat, saturate: bool) -> ir.Value:
        width, mantissa, bias = (64, _F64_MANTISSA, _F64_BIAS) if str(value.type) == "f64" else (32, 23, 127)
        bits = self.bits(value)
        word = bits.type
        size = self._and(bits, (1 << (width - 1)) - 1)
        code = self._rounded(size, kind, mantissa, bias)
        last = self.constant(word, kind.largest)
        large = self.compare(_SIGNED_GREATER, code, last)
        code = self.select(large, last if saturate else self.constant(word, kind.infinity), code)
        infinity = ((1 << (width - 1 - mantissa)) - 1) << mantissa
        undefined = self.compare(_UNSIGNED_GREATER, size, self.constant(word, infinity))
        if not saturate:  # finite types have neither infinity nor NaN
            infinite = self.compare(_EQUAL, size, self.constant(word, infinity))
            code = self.select(infinite, self.constant(word, kind.infinity), code)
        sign = self._shift_left(self._shift_right(bits, width - 1), kind.bits - 1)
        if kind.special == "none":  # NaN becomes −0, as in `ml_dtypes` and ONNX's reference
            code = self.select(undefined, self.constant(word, 0), code)
            sign = self.select(undefined, self.constant(word, 1 << (kind.bits - 1)), sign)
        else:
            code = self.select(undefined, self.constant(word, kind.nan), code)
        if kind.special == "fnuz":
            nothing = self.compare(_EQUAL, code, self.constant(word, 0))
            sign = self.select(nothing, self.constant(word, 0), sign)
        code = self.make("arith.ori", [code, sign])
        return self.resize(code, 8)

    def _rounded(self, size: ir.Value, kind: ShortFloat, mantissa: int, bias: int) -> ir.Value:
        """The code of a magnitude given by its bits, for an unbounded exponent."""
        least = bias - kind.bias + 1  # the exponent of the smallest normal number
        rebased = self._add(size, -((bias - kind.bias) << mantissa))
        normal = self._round_off(rebased, self.constant(size.type, mantissa - kind.mantissa))
        whole = self._or(self._and(size, (1 << mantissa) - 1), 1 << mantissa)
        places = self.make("arith.subi", [
            self.constant(size.type, mantissa - kind.mantissa + least), self._shift_right(size, mantissa)
        ])  # fmt: skip
        for name, bound in (("arith.minsi", mantissa + 2), ("arith.maxsi", 1)):
            places = self.make(name, [places, self.constant(size.type, bound)])
        subnormal = self._round_off(whole, places)
        below = self.compare(_UNSIGNED_LESS, size, self.constant(size.type, least << mantissa))
        return self.select(below, subnormal, normal)

    def _round_off(self, number: ir.Value, places: ir.Value) -> ir.Value:
        """`number` with its last `places` bits rounded off, to nearest, ties to even."""
        one = self.constant(number.type, 1)
        shift = "arith.shrui"
        odd = self._and(self.make(shift, [number, places]), 1)
        unit = self.make("arith.shli", [one, self.make("arith.subi", [places, one])])
        half = self.make("arith.addi", [self.make("arith.subi", [unit, one]), odd])
        return self.make("arith.shrsi", [self.make("arith.addi", [number, half]), places])

    # -- powers of two

    def _decode_exponent(self, code: ir.Value) -> ir.Value:
        word = code.type
        bits = self._shift_left(code, 23)
        for number, meaning in ((0, 1 << 22), (0xFF, 0x7FC << 20)):
            same = self.compare(_EQUAL, code, self.constant(word, number))
            bits = self.select(same, self.constant(word, meaning), bits)
        return self.make("arith.bitcast", [bits], ir.F32Type.get())

    def _encode_exponent(self, value: ir.Value, saturate: bool, mode: str) -> ir.Value:
        """Computes in float64, where no number of a shorter type is subnormal. The sign is ignored."""
        bits = self.bits(self.widen(value, ir.F64Type.get()))
        word = bits.type
        size = self._and(bits, (1 << 63) - 1)
        code = self._add(self._shift_right(size, _F64_MANTISSA), 127 - _F64_BIAS)
        rest = self._and(size, (1 << _F64_MANTISSA) - 1)
        bound = {"up": 0, "nearest": (1 << 51) - 1}.get(mode)
        if bound is not None:
            above = self.compare(_UNSIGNED_GREATER, rest, self.constant(word, bound))
            code = self.make("arith.addi", [code, self.make("arith.extui", [above], word)])
        small = self.compare(_UNSIGNED_LESS, size, self.constant(word, (_F64_BIAS - 127) << _F64_MANTISSA))
        code = self.select(small, self.constant(word, 0 if saturate else 0xFF), code)
        large = self.compare(_SIGNED_GREATER, code, self.constant(word, 0xFE))
        code = self.select(large, self.constant(word, 0xFE if saturate else 0xFF), code)
        undefined = self.compare(_UNSIGNED_GREATER, size, self.constant(word, 0x7FF << _F64_MANTISSA))
        return self.resize(self.select(undefined, self.constant(word, 0xFF), code), 8)

    # -- words

    def make(self, name: str, values: Sequence[ir.Value], kind: ir.Type | None = None) -> ir.Value:
        return ir.Operation.create(name, results=[kind or values[0].type], operands=values, ip=self.at).results[0]

    def constant(self, kind: ir.Type, value: int) -> ir.Value:
        bits = ir.IntegerType(kind).width
        signed = value - (1 << bits) if value >> (bits - 1) == 1 else value
        return self._constant(kind, ir.IntegerAttr.get(kind, signed))

    def real(self, value: float) -> ir.Value:
        return self._constant(ir.F32Type.get(), ir.FloatAttr.get(ir.F32Type.get(), value))

    def _constant(self, kind: ir.Type, value: ir.Attribute) -> ir.Value:
        return ir.Operation.create("arith.constant", results=[kind], attributes={"value": value}, ip=self.at).results[0]

    def compare(self, predicate: int, left: ir.Value, right: ir.Value) -> ir.Value:
        said = {"predicate": ir.IntegerAttr.get(_integer(64), predicate)}
        made = ir.Operation.create(
            "arith.cmpi", results=[_integer(1)], operands=[left, right], attributes=said, ip=self.at
        )
        return made.results[0]

    def select(self, condition: ir.Value, true: ir.Value, false: ir.Value) -> ir.Value:
        return self.make("arith.select", [condition, true, false], true.type)

    def bits(self, value: ir.Value) -> ir.Value:
        return self.make("arith.bitcast", [value], _integer(64 if str(value.type) == "f64" else 32))

    def widen(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        """A floating-point number in the wider type `kind`, without rounding."""
        return value if value.type == kind else self.make("arith.extf", [value], kind)

    def resize(self, value: ir.Value, bits: int) -> ir.Value:
        """The low bits of an integer, zero-extended if necessary."""
        own = ir.IntegerType(value.type).width
        if own == bits:
            return value
        return self.make("arith.trunci" if own > bits else "arith.extui", [value], _integer(bits))

    def _and(self, value: ir.Value, mask: int) -> ir.Value:
        return self.make("arith.andi", [value, self.constant(value.type, mask)])

    def _or(self, value: ir.Value, mask: int) -> ir.Value:
        return self.make("arith.ori", [value, self.constant(value.type, mask)])

    def _add(self, value: ir.Value, number: int) -> ir.Value:
        return self.make("arith.addi", [value, self.constant(value.type, number)])

    def _shift_left(self, value: ir.Value, places: int) -> ir.Value:
        return self.make("arith.shli", [value, self.constant(value.type, places)]) if places else value

    def _shift_right(self, value: ir.Value, places: int) -> ir.Value:
        return self.make("arith.shrui", [value, self.constant(value.type, places)]) if places else value


def _integer(bits: int) -> ir.Type:
    return ir.IntegerType.get_signless(bits)
