"""Expands intrinsics of LLVM IR that OpenCL lacks: extremes that keep NaN, masked memory, reductions of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from motet.compiler.codegen.llvm.ir import Instruction, IrValue, Type, bits_of, elements_of
from motet.compiler.codegen.llvm.legalise.parts import Lane, PartWriter

_Combine = Callable[[PartWriter, IrValue, IrValue, Sequence[str]], IrValue]
Expansion = Callable[[PartWriter, Instruction], bool]  # False: the instruction stays as it is

_INFINITY = {"half": 0x7C00, "bfloat": 0x7F80, "float": 0x7F800000, "double": 0x7FF << 52}

# -- extremes that keep NaN and the sign of zero ---------------------------------------------------------


def _extreme(opposite: str, merge: str) -> Expansion:
    """IEEE 754-2019 minimum and maximum: NaN if an operand is, and -0 less than +0."""

    def expand(writer: PartWriter, made: Instruction) -> bool:
        results = writer.part_names(made.result, made.type)
        first, second = (writer.parts(operand) for operand in made.operands)
        for (name, _), a, b in zip(results, first, second, strict=True):
            writer.same(name, extreme_of(writer, a, b, opposite, merge))
        return True

    return expand


def extreme_of(writer: PartWriter, a: IrValue, b: IrValue, opposite: str, merge: str) -> IrValue:
    """b is chosen where a is `opposite` ("gt": of the least) to it; `merge` of the bits of two zeros is the one to
    choose."""
    kind = a.type
    bits = Type("i1", kind.lanes)
    if not a.is_local:
        a, b = b, a
    if (comparison := _with_constant(b, opposite, merge)) is not None:
        past = writer.emit(bits, f"fcmp {comparison} {a}, {b.text}")
        return writer.emit(kind, f"select {past}, {b}, {a}")
    past = writer.emit(bits, f"fcmp o{opposite} {a}, {b.text}")
    chosen = writer.emit(kind, f"select {past}, {b}, {a}")
    number = Type(f"i{kind.bits}", kind.lanes)
    x, y = (writer.emit(number, f"bitcast {value} to {number}") for value in (a, b))
    joined = writer.emit(number, f"{merge} {x}, {y.text}")
    zero = writer.emit(kind, f"bitcast {joined} to {kind}")
    equal = writer.emit(bits, f"fcmp oeq {a}, {b.text}")
    chosen = writer.emit(kind, f"select {equal}, {zero}, {chosen}")
    lost = writer.emit(bits, f"fcmp uno {b}, {b.text}")
    return writer.emit(kind, f"select {lost}, {b}, {chosen}")


def _with_constant(value: IrValue, opposite: str, merge: str) -> str | None:
    """The comparison after which the constant `value` is chosen; None if one does not do: for NaN, or zeros of both
    signs. A zero that precedes the other one is chosen when they are equal."""
    if value.is_local:
        return None
    signs: set[int] = set()
    for element in elements_of(value) if value.type.lanes else [value]:
        bits = bits_of(element)
        sign, size = divmod(bits or 0, 1 << (element.type.bits - 1))
        if bits is None or size > _INFINITY[element.type.element]:
            return None
        if size == 0:
            signs.add(sign)
    if len(signs) > 1:
        return None
    first = 1 if merge == "or" else 0
    return f"o{opposite}" if signs and first not in signs else f"o{opposite[0]}e"


# -- masked memory -------------------------------------------------------------------------------------


def _masked_load(writer: PartWriter, made: Instruction) -> bool:
    """Lanes that are not set read a variable that all may read."""
    pointer, mask, other = _memory(made)
    kind = made.type.of(1)
    spare = _spare(writer, pointer.type)
    lanes: list[Lane] = []
    for number, (bit, old) in enumerate(zip(writer.scalars(mask), writer.scalars(other), strict=True)):
        if bit.text in ("false", "0"):
            lanes.append((old, 0))
            continue
        address = _address(writer, pointer, number, kind)
        if bit.text not in ("true", "-1", "1"):
            address = writer.emit(address.type, f"select {bit}, {address}, {spare}")
        value = writer.emit(kind, f"load {kind}, {address}, align {kind.bytes}")
        if bit.text not in ("true", "-1", "1"):
            value = writer.emit(kind, f"select {bit}, {value}, {old}")
        lanes.append((value, 0))
    writer.define(made.result, made.type, lanes)
    return True


def _masked_store(writer: PartWriter, made: Instruction) -> bool:
    """Lanes that are not set write a variable that is never read."""
    value, (pointer, mask, _) = made.operands[0], _memory(made, 1)
    kind = value.type.of(1)
    spare = _spare(writer, pointer.type)
    for number, (bit, element) in enumerate(zip(writer.scalars(mask), writer.scalars(value), strict=True)):
        if bit.text in ("false", "0"):
            continue
        address = _address(writer, pointer, number, kind)
        if bit.text not in ("true", "-1", "1"):
            address = writer.emit(address.type, f"select {bit}, {address}, {spare}")
        writer.lines.append(f"  store {element}, {address}, align {kind.bytes}")
    return True


def _memory(made: Instruction, first: int = 0) -> tuple[IrValue, IrValue, IrValue]:
    """The pointer, the mask and the value of other lanes; an alignment stands between, unless it is an attribute."""
    pointer, *others = made.operands[first:]
    if others[0].type.lanes == 0:
        others = others[1:]
    return pointer, others[0], others[-1]


def _address(writer: PartWriter, pointer: IrValue, number: int, kind: Type) -> IrValue:
    if pointer.type.lanes:
        return writer.scalars(pointer)[number]
    return writer.emit(pointer.type, f"getelementptr i8, {pointer}, i64 {number * kind.bytes}") if number else pointer


def _spare(writer: PartWriter, pointer: Type) -> IrValue:
    """The address of a variable of the function, in the address space of `pointer`."""
    if not writer.entry:
        writer.entry += [
            "  %narrow.variable = alloca i64, align 8", "  store i64 0, ptr %narrow.variable, align 8",
        ]
    kind = pointer.of(1)
    if kind.element == "ptr":
        return IrValue(kind, "%narrow.variable")
    name = "%narrow.spare"
    line = f"  {name} = addrspacecast ptr %narrow.variable to {kind}"
    if line not in writer.entry:
        writer.entry.append(line)
    return IrValue(kind, name)


# -- reductions of a vector ------------------------------------------------------------------------------


def _reduction(combine: _Combine) -> Expansion:
    def expand(writer: PartWriter, made: Instruction) -> bool:
        writer.same(made.result, _tree(writer, writer.parts(made.operands[-1]), combine, made.flags))
        return True

    return expand


def _ordered(opcode: str) -> Expansion:
    """A sum or product of floats begins with a value and goes on in order, unless it may be reassociated."""

    def expand(writer: PartWriter, made: Instruction) -> bool:
        start, vector = made.operands
        combine = _instruction(opcode)
        if "fast" in made.flags or "reassoc" in made.flags:
            found = _tree(writer, writer.parts(vector), combine, made.flags)
            writer.same(made.result, combine(writer, start, found, made.flags))
            return True
        found = start
        for element in writer.scalars(vector):
            found = combine(writer, found, element, made.flags)
        writer.same(made.result, found)
        return True

    return expand


def _tree(
    writer: PartWriter, parts: Sequence[IrValue], combine: _Combine, flags: Sequence[str]
) -> IrValue:
    """Combine parts of equal widths, then halves, the widest first."""
    waiting = list(parts)
    while len(waiting) > 1 or waiting[0].type.lanes:
        waiting.sort(key=lambda part: -part.type.lanes)
        if len(waiting) > 1 and waiting[0].type == waiting[1].type:
            waiting[:2] = [combine(writer, waiting[0], waiting[1], flags)]
            continue
        part = waiting.pop(0)
        half = part.type.lanes // 2
        waiting += [
            writer.gather(part.type.of(half), [(part, lane) for lane in range(start, start + half)])
            for start in (0, half)
        ]
    return waiting[0]


def _instruction(opcode: str) -> _Combine:
    return lambda writer, a, b, flags: writer.emit(a.type, f"{' '.join([opcode, *flags])} {a}, {b.text}")


def _intrinsic(name: str) -> _Combine:
    return lambda writer, a, b, flags: writer.call(f"llvm.{name}.{a.type.suffix}", a.type, [a, b])


def _exact(opposite: str, merge: str) -> _Combine:
    return lambda writer, a, b, flags: extreme_of(writer, a, b, opposite, merge)


_LEAST, _GREATEST = ("gt", "or"), ("lt", "and")
EXPANSIONS: dict[str, Expansion] = {
    "llvm.minimum": _extreme(*_LEAST), "llvm.maximum": _extreme(*_GREATEST),
    "llvm.masked.load": _masked_load, "llvm.masked.store": _masked_store,
    "llvm.masked.gather": _masked_load, "llvm.masked.scatter": _masked_store,
    "llvm.vector.reduce.fadd": _ordered("fadd"), "llvm.vector.reduce.fmul": _ordered("fmul"),
    **{f"llvm.vector.reduce.{name}": _reduction(_instruction(name)) for name in ("add", "mul", "and", "or", "xor")},
    **{f"llvm.vector.reduce.{name}": _reduction(_intrinsic(name)) for name in ("smin", "smax", "umin", "umax")},
    "llvm.vector.reduce.fmin": _reduction(_intrinsic("minnum")),
    "llvm.vector.reduce.fmax": _reduction(_intrinsic("maxnum")),
    "llvm.vector.reduce.fminimum": _reduction(_exact(*_LEAST)),
    "llvm.vector.reduce.fmaximum": _reduction(_exact(*_GREATEST)),
}
