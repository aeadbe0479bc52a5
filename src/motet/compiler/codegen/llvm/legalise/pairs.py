"""Integers of 128 bits, which OpenCL lacks, as pairs of 64 bits: keys of sorts are such.

    %m = icmp slt i128 %a, %b    →    %m = a.high < b.high, or a.high = b.high and a.low < b.low
"""

from __future__ import annotations

import re
from collections.abc import Callable

from motet.compiler.codegen.llvm.ir import BOOLEAN, LONG, Instruction, IrValue, Type, bits_of
from motet.compiler.codegen.llvm.legalise.parts import PartWriter, part_name

_WIDE = re.compile(r"(?<![%\w.])i128\b")  # not a name
_HALF, _BITS, _BYTES = LONG, 64, 8
Pair = tuple[IrValue, IrValue]  # low, high


def has_pairs(line: str) -> bool:
    return _WIDE.search(line) is not None


def split_pair(writer: PartWriter, line: str, made: Instruction | None) -> bool:
    """Write `line`, which contains `i128` and is read as `made`; False for an address in memory, whose operands are no
    pairs. Raises NotImplementedError for an instruction without a form on pairs."""
    opcode = made.opcode if made else line.split()[0]
    if made and opcode == "getelementptr" and Type("i128") not in [operand.type for operand in made.operands]:
        return False
    if opcode == "alloca":
        writer.lines.append(_WIDE.sub("[2 x i64]", line))
        return True
    form = _FORMS.get(opcode)
    if made is None or form is None:
        raise NotImplementedError(f"{opcode} of integers of 128 bits")
    form(writer, made)
    return True


def _pair(value: IrValue) -> Pair:
    if value.is_local:
        return IrValue(_HALF, part_name(value.text, 0)), IrValue(_HALF, part_name(value.text, 1))
    number = bits_of(value) or 0
    low, high = number & (1 << _BITS) - 1, number >> _BITS
    return IrValue(_HALF, str(low)), IrValue(_HALF, str(high))


def _define(writer: PartWriter, made: Instruction, low: IrValue, high: IrValue) -> None:
    for number, value in enumerate((low, high)):
        writer.same(part_name(made.result, number), value)


def _half(writer: PartWriter, text: str) -> IrValue:
    return writer.emit(_HALF, text)


def _load(writer: PartWriter, made: Instruction) -> None:
    for number in range(2):
        address = _at(writer, made.operands[0], number)
        writer.emit(_HALF, f"load i64, {address}, align {_BYTES}", part_name(made.result, number))


def _store(writer: PartWriter, made: Instruction) -> None:
    value, pointer = made.operands
    for number, half in enumerate(_pair(value)):
        writer.lines.append(f"  store {half}, {_at(writer, pointer, number)}, align {_BYTES}")


def _at(writer: PartWriter, pointer: IrValue, number: int) -> IrValue:
    return writer.emit(pointer.type, f"getelementptr i8, {pointer}, i64 {_BYTES}") if number else pointer


def _phi(writer: PartWriter, made: Instruction) -> None:
    for number in range(2):
        incoming = (f"[ {_pair(o)[number].text}, {b} ]" for o, b in zip(made.operands, made.labels, strict=True))
        writer.emit(_HALF, f"phi i64 {', '.join(incoming)}", part_name(made.result, number))


def _select(writer: PartWriter, made: Instruction) -> None:
    condition, first, second = made.operands
    for number, (a, b) in enumerate(zip(_pair(first), _pair(second), strict=True)):
        writer.emit(_HALF, f"select {condition}, {a}, {b}", part_name(made.result, number))


def _bitwise(writer: PartWriter, made: Instruction) -> None:
    first, second = made.operands
    for number, (a, b) in enumerate(zip(_pair(first), _pair(second), strict=True)):
        writer.emit(_HALF, f"{made.opcode} {a}, {b.text}", part_name(made.result, number))


def _extend(writer: PartWriter, made: Instruction) -> None:
    value = made.operands[0]
    low = value if value.type == _HALF else _half(writer, f"{made.opcode} {value} to i64")
    high = _half(writer, f"ashr {low}, 63") if made.opcode == "sext" else IrValue(_HALF, "0")
    _define(writer, made, low, high)


def _trunc(writer: PartWriter, made: Instruction) -> None:
    low, _ = _pair(made.operands[0])
    if made.type == _HALF:
        writer.same(made.result, low)
    else:
        writer.emit(made.type, f"trunc {low} to {made.type}", made.result)


def _shift(writer: PartWriter, made: Instruction) -> None:
    value, amount = made.operands
    if amount.is_local:
        raise NotImplementedError("shifts of integers of 128 bits by other numbers than constants")
    (low, high), by = _pair(value), int(amount.text)
    if made.opcode == "shl":
        _define(writer, made, *_shifted_up(writer, low, high, by))
        return
    if by >= _BITS:
        first = _moved(writer, made.opcode, high, by - _BITS)
        rest = _half(writer, f"ashr {high}, 63") if made.opcode == "ashr" else IrValue(_HALF, "0")
    else:
        first, rest = _joined(writer, "lshr", low, "shl", high, by), _moved(writer, made.opcode, high, by)
    _define(writer, made, first, rest)


def _shifted_up(writer: PartWriter, low: IrValue, high: IrValue, by: int) -> Pair:
    if by >= _BITS:
        return IrValue(_HALF, "0"), _moved(writer, "shl", low, by - _BITS)
    return _moved(writer, "shl", low, by), _joined(writer, "shl", high, "lshr", low, by)


def _joined(writer: PartWriter, opcode: str, kept: IrValue, other_opcode: str, other: IrValue, by: int) -> IrValue:
    """`kept` shifted by `by`, with the bits of `other` that come in."""
    if by == 0:
        return kept
    own = _moved(writer, opcode, kept, by)
    coming = _moved(writer, other_opcode, other, _BITS - by)
    return _half(writer, f"or {own}, {coming.text}")


def _moved(writer: PartWriter, opcode: str, value: IrValue, by: int) -> IrValue:
    return _half(writer, f"{opcode} {value}, {by}") if by else value


def _compare(writer: PartWriter, made: Instruction) -> None:
    (low, high), (other_low, other_high) = map(_pair, made.operands)
    predicate = made.detail
    same = writer.emit(BOOLEAN, f"icmp eq {high}, {other_high.text}")
    if predicate in ("eq", "ne"):
        lower = writer.emit(BOOLEAN, f"icmp {predicate} {low}, {other_low.text}")
        if predicate == "eq":
            writer.emit(BOOLEAN, f"and {same}, {lower.text}", made.result)
            return
        differ = writer.emit(BOOLEAN, f"icmp ne {high}, {other_high.text}")
        writer.emit(BOOLEAN, f"or {differ}, {lower.text}", made.result)
        return
    lower = writer.emit(BOOLEAN, f"icmp u{predicate[1:]} {low}, {other_low.text}")
    upper = writer.emit(BOOLEAN, f"icmp {predicate[0]}{predicate[1]}t {high}, {other_high.text}")
    writer.emit(BOOLEAN, f"select {same}, {lower}, {upper}", made.result)


_FORMS: dict[str, Callable[[PartWriter, Instruction], None]] = {
    "load": _load, "store": _store, "phi": _phi, "select": _select, "zext": _extend, "sext": _extend, "trunc": _trunc,
    "and": _bitwise, "or": _bitwise, "xor": _bitwise, "shl": _shift, "lshr": _shift, "ashr": _shift, "icmp": _compare,
}
