"""OpenCL C for LLVM's arithmetic, comparisons and conversions of one part of a value."""

from __future__ import annotations

from motet.compiler.codegen.llvm.ir import F32, Inexpressible, Type
from motet.compiler.codegen.llvm.opencl_c.support import Support
from motet.compiler.codegen.llvm.opencl_c.types import LanePart, constant, convert, reinterpret, sized

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "shl": "<<", "lshr": ">>", "udiv": "/",
    "urem": "%", "fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/", "sdiv": "/", "srem": "%", "ashr": ">>",
}
_OF_BITS = {"add": "^", "sub": "^", "mul": "&", "and": "&", "or": "|", "xor": "^"}
_COMPARISONS = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_REVERSED = {"gt": "<=", "ge": "<", "lt": ">=", "le": ">"}


def binary(opcode: str, part: LanePart, a: str, b: str, support: Support) -> str:
    """A binary operation."""
    if part.floating:
        return _of_floats(opcode, part, a, b, support)
    if part.boolean:
        if opcode not in _OF_BITS:
            raise Inexpressible(f"{opcode} of i1")
        return f"({part.name})({a} {_OF_BITS[opcode]} {b})" if not part.mask else f"{a} {_OF_BITS[opcode]} {b}"
    operator = _OPERATORS[opcode]
    if opcode in ("sdiv", "srem", "ashr"):
        text = f"{sign_extended(part, a)} {operator} {sign_extended(part, b) if opcode != 'ashr' else b}"
        return trimmed(part, convert(part.name, text) if part.width == 1 else reinterpret(part.name, text))
    if part.width == 1 and part.container < 32:
        a = f"(uint){a}"  # C would calculate in int
    return trimmed(part, f"{a} {operator} {b}")


def trimmed(part: LanePart, text: str) -> str:
    """An integer of C as one of `part`, without what C's wider types add."""
    if not part.exact:
        text = f"({text}) & {constant(part, [(1 << part.element.bits) - 1] * part.width)}"
    return f"({part.name})({text})" if part.width == 1 and part.container < 32 else text


def sign_extended(part: LanePart, text: str) -> str:
    """A signed integer of C equal to the signed value of `part`."""
    signed = reinterpret(part.signed, text)
    if part.exact:
        return signed
    shift = part.container - part.element.bits
    if part.width > 1:
        return f"({reinterpret(part.signed, f'{text} << ({part.name})({shift})')} >> ({part.signed})({shift}))"
    return f"(({part.signed})({text} << {shift}) >> {shift})"


def widened(part: LanePart, text: str, support: Support) -> str:
    """A float of 16 bits as f32; others as they are."""
    if not part.short_float:
        return text
    return f"{support.of_lanes(f'from_{part.element}', part.width)}({text})"


def narrowed(part: LanePart, text: str, support: Support) -> str:
    """A float of f32 as one of `part`."""
    if not part.short_float:
        return text
    return f"{support.of_lanes(f'to_{part.element}', part.width)}({text})"


def computed(part: LanePart) -> LanePart:
    """The type that calculations on floats of `part` have in C."""
    return part.of(F32) if part.short_float else part


def negated(part: LanePart, text: str) -> str:
    """A float with the other sign."""
    sign = constant(part.of(Type(f"i{part.element.bits}")), [1 << (part.element.bits - 1)] * part.width)
    if part.short_float:
        return f"({part.name})({text} ^ {sign})" if part.width == 1 else f"{text} ^ {sign}"
    return reinterpret(part.name, f"{reinterpret(part.unsigned, text)} ^ {sign}")


def _of_floats(opcode: str, part: LanePart, a: str, b: str, support: Support) -> str:
    a, b = widened(part, a, support), widened(part, b, support)
    return narrowed(part, f"fmod({a}, {b})" if opcode == "frem" else f"{a} {_OPERATORS[opcode]} {b}", support)


# -- comparisons ---------------------------------------------------------------------------------------


def comparison(predicate: str, part: LanePart, a: str, b: str, support: Support) -> str:
    """A comparison of integers or floats, as a `bool` or as lanes of a mask."""
    if part.floating:
        a, b = widened(part, a, support), widened(part, b, support)
        return as_mask(part, _compared_floats(predicate, part, a, b))
    if part.boolean:
        return _compared_bits(predicate, part, a, b)
    if predicate[0] == "s":
        a, b = sign_extended(part, a), sign_extended(part, b)
    return as_mask(part, f"{a} {_COMPARISONS[predicate[-2:]]} {b}")


def as_mask(part: LanePart, text: str) -> str:
    """What C's comparison of `part` gives as a `bool` or as lanes of a mask."""
    if not part.lane:
        return f"({text})"
    return convert(sized("char", part.width), text) if part.width > 1 else f"(char)-({text})"


def _compared_bits(predicate: str, part: LanePart, a: str, b: str) -> str:
    if part.mask and predicate in ("eq", "ne"):
        return f"{'~' if predicate == 'eq' else ''}({a} ^ {b})" if part.width > 1 else (
            f"(char)({'~' if predicate == 'eq' else ''}({a} ^ {b}))"
        )
    if predicate[0] == "s" and not part.mask:  # a set bit is -1
        a, b = b, a
    elif predicate[0] == "u" and part.mask:
        a, b = reinterpret(part.unsigned, a), reinterpret(part.unsigned, b)
    return as_mask(part, f"{a} {_COMPARISONS[predicate[-2:]]} {b}")


def _compared_floats(predicate: str, part: LanePart, a: str, b: str) -> str:
    if predicate in ("false", "true"):
        truth = int(predicate == "true")
        return f"{a} != {a} && 0" if not truth and part.width == 1 else (
            str(truth) if part.width == 1 else f"({part.signed})({-truth})"
        )
    if predicate == "oeq":
        return f"{a} == {b}"
    if predicate == "une":
        return f"{a} != {b}"
    if predicate == "one":
        return f"({a} < {b}) | ({a} > {b})"
    if predicate == "ueq":
        return _inverted(part, f"({a} < {b}) | ({a} > {b})")
    if predicate in ("ord", "uno"):
        text = f"({a} != {a}) | ({b} != {b})"
        return text if predicate == "uno" else _inverted(part, text)
    if predicate[0] == "o":
        return f"{a} {_COMPARISONS[predicate[1:]]} {b}"
    return _inverted(part, f"{a} {_REVERSED[predicate[1:]]} {b}")


def _inverted(part: LanePart, text: str) -> str:
    return f"~({text})" if part.width > 1 else f"!({text})"


def selected(part: LanePart, mask: str, a: str, b: str) -> str:
    """Lanes of `a` where `mask` is set, of `b` elsewhere."""
    if part.mask:
        return f"({part.name})(({mask} & {a}) | (~{mask} & {b}))"
    return f"{widened_mask(part, mask)} ? {a} : {b}"


def widened_mask(part: LanePart, mask: str) -> str:
    """A mask as lanes as wide as those of `part`."""
    return convert(part.signed, mask) if part.width > 1 else mask


# -- conversions ---------------------------------------------------------------------------------------


def cast(opcode: str, source: LanePart, target: LanePart, text: str, support: Support) -> str:
    """A conversion of numbers; `bitcast` and those of pointers are elsewhere."""
    if opcode in ("zext", "sext"):
        return _extended(source, target, text, signed=opcode == "sext")
    if opcode == "trunc":
        return _truncated(source, target, text)
    if opcode in ("fpext", "fptrunc"):
        return resized(source, target, text, support)
    if opcode in ("uitofp", "sitofp"):
        if source.boolean:
            wide = source.of(Type("i32"))
            text, source = _extended(source, wide, text, signed=opcode == "sitofp"), wide
        text = sign_extended(source, text) if opcode == "sitofp" else text
        return narrowed(target, convert(computed(target).name, text), support)
    return float_to_integer(source, target, text, opcode == "fptosi", support)


def float_to_integer(source: LanePart, target: LanePart, text: str, signed: bool, support: Support) -> str:
    """A float rounded to zero; only values that `target` has."""
    wide = target.of(Type(f"i{max(32, target.container)}"))
    text = widened(source, text, support)
    if not signed:
        return _truncated(wide, target, convert(wide.unsigned, text))
    return _truncated(wide, target, reinterpret(wide.unsigned, convert(wide.signed, text)))


def _extended(source: LanePart, target: LanePart, text: str, signed: bool) -> str:
    if source.mask:
        wide = convert(target.signed, text)
        wide = reinterpret(target.unsigned, wide)
        return trimmed(target, wide if signed else f"{wide} & {constant(target, [1] * target.width)}")
    if source.boolean:
        return trimmed(target, f"({target.name})-({target.signed})({text})" if signed else f"({target.name})({text})")
    if not signed:
        return convert(target.name, text)
    return trimmed(target, reinterpret(target.unsigned, convert(target.signed, sign_extended(source, text))))


def _truncated(source: LanePart, target: LanePart, text: str) -> str:
    if target.mask:
        bit = f"{text} & {constant(source, [1] * source.width)}"
        return f"-{convert(target.name, bit)}" if target.width > 1 else f"(char)-(char)({bit})"
    if target.boolean:
        return f"(bool)({text} & 1)"
    return trimmed(target, convert(target.name, text))


def resized(source: LanePart, target: LanePart, text: str, support: Support) -> str:
    """A float as one of another width."""
    if source.element == target.element:
        return text
    if target.short_float and source.element.bits == 64:
        return narrowed(target, f"{support.of_lanes('to_odd', source.width)}({text})", support)
    text = widened(source, text, support)
    if target.short_float:
        return narrowed(target, text, support)
    return convert(target.name, text) if computed(source).element != target.element else text
