"""OpenCL C for calls: LLVM's intrinsic functions and those of <math.h>."""

from __future__ import annotations

import re
from collections.abc import Callable

from motet.compiler.codegen.llvm.ir import F32, F64, Inexpressible, Instruction, Type, bits_of
from motet.compiler.codegen.llvm.opencl_c import expressions
from motet.compiler.codegen.llvm.opencl_c.memory import print_masked_load, print_masked_store, print_range
from motet.compiler.codegen.llvm.opencl_c.overflows import print_overflow
from motet.compiler.codegen.llvm.opencl_c.printer import Printer
from motet.compiler.codegen.llvm.opencl_c.reductions import print_reduction
from motet.compiler.codegen.llvm.opencl_c.types import (
    LanePart,
    component,
    constant,
    convert,
    reinterpret,
)

_SUFFIX = re.compile(r"(\.(nx)?(v\d+)?(i\d+|f\d+|bf16|p\d+))+$")
_IGNORED_NAMES = (
    "lifetime.start lifetime.end assume prefetch experimental.noalias.scope.decl dbg.value dbg.declare sideeffect "
    "invariant.start invariant.end donothing"
)
# Functions of floats that OpenCL C has, by LLVM's names.
_FLOATS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "nearbyint": "rint",
    "roundeven": "rint", "round": "round", "exp": "exp", "exp2": "exp2", "exp10": "exp10", "log": "log",
    "log2": "log2", "log10": "log10", "sin": "sin", "cos": "cos", "tan": "tan", "pow": "pow", "fma": "fma",
    "asin": "asin", "acos": "acos", "atan": "atan", "atan2": "atan2", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "fmuladd": "fma",
}
_EXTREMES = {
    "maximum": "maximum", "minimum": "minimum", "maxnum": "maxnum", "minnum": "minnum", "maximumnum": "maximumnum",
    "minimumnum": "minimumnum",
}
_FUNCTION_NAMES = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs floor fma "
    "fmax fmin fmod hypot log log10 log1p log2 pow remainder rint round sin sinh sqrt tan tanh tgamma lgamma trunc"
)
_IGNORED, MATHEMATICS = frozenset(_IGNORED_NAMES.split()), frozenset(_FUNCTION_NAMES.split())
_SAME = {"roundeven": "rint", "nearbyint": "rint"}
_ITEMS = ("get_global_id", "get_global_size")


def print_call(printer: Printer, each: Instruction) -> None:
    """A call."""
    if not each.detail.startswith("llvm."):
        _print_function(printer, each)
        return
    base = _SUFFIX.sub("", each.detail.removeprefix("llvm."))
    if base in _IGNORED:
        return
    if base.startswith(("masked.load", "masked.gather")):
        print_masked_load(printer, each)
    elif base.startswith(("masked.store", "masked.scatter")):
        print_masked_store(printer, each)
    elif base.startswith(("memcpy", "memmove", "memset")):
        print_range(printer, each)
    elif base.startswith("vector.reduce."):
        print_reduction(printer, each, base.removeprefix("vector.reduce."))
    elif base.endswith(".with.overflow"):
        print_overflow(printer, each, base)
    else:
        _print_lanes(printer, each, base)


def _print_function(printer: Printer, each: Instruction) -> None:
    name = each.detail
    if name in _ITEMS:
        printer.assign(each, [f"{name}(0)"])
        return
    arguments = [printer.scalar(value) for value in each.operands]
    kind = each.type
    own = name.removesuffix("f") if kind == F32 else name
    own = _SAME.get(own, own)
    if kind not in (F32, F64) or own not in MATHEMATICS:
        raise Inexpressible(f"a call of {name}")
    printer.assign(each, [f"{own}({', '.join(arguments)})"])


def _print_lanes(printer: Printer, each: Instruction, base: str) -> None:
    """A function that is applied lane by lane."""
    if each.type.is_struct:
        raise Inexpressible(f"a call of {each.detail}")
    made = _lanewise(base, each)
    operands = [value for value in each.operands if not (base in _FLAGGED and value is each.operands[-1])]
    columns = [printer.parts(value) for value in operands]
    texts: list[str] = []
    for number, part in enumerate(printer.split(each.type)):
        arguments: list[str] = []
        for column in columns:
            own, text = column[number if len(column) > 1 or number == 0 else 0]
            arguments.append(printer.held(own, text))
        texts.append(made(printer, part, columns[0][number][0], arguments))
    printer.assign(each, texts)


_FLAGGED = ("ctlz", "cttz", "abs", "is.fpclass", "powi")  # their last operand is one number for all lanes
_Lanes = Callable[[Printer, LanePart, LanePart, list[str]], str]


def _lanewise(base: str, each: Instruction) -> _Lanes:
    if base in _FLOATS:
        return lambda printer, part, source, texts: _float_call(printer, part, _FLOATS[base], texts)
    if base in _EXTREMES:
        return lambda printer, part, source, texts: _float_call(printer, part, "", texts, _EXTREMES[base])
    if base in _INTEGERS:
        return _INTEGERS[base]
    if base == "is.fpclass":
        bits = bits_of(each.operands[-1]) or 0
        return lambda printer, part, source, texts: _of_class(source, texts[0], bits)
    if base == "powi":
        return lambda printer, part, source, texts: _power(printer, part, texts[0], printer.scalar(each.operands[-1]))
    raise Inexpressible(f"a call of {each.detail}")


def _float_call(printer: Printer, part: LanePart, name: str, texts: list[str], own: str = "") -> str:
    """A function of floats, of 16-bit ones in f32."""
    support, kind = printer.support, expressions.computed(part)
    if name == "fma" and part.short_float:
        # In f64 the product is exact, and so is the sum, unless the operands are too far from each other to matter.
        wide = part.of(F64)
        texts = [expressions.resized(part, wide, text, support) for text in texts]
        return expressions.resized(wide, part, f"fma({', '.join(texts)})", support)
    texts = [expressions.widened(part, text, support) for text in texts]
    own = "fma" if name == "fma" else own
    called = support.of_floats(own, kind.name) if own else name
    return expressions.narrowed(part, f"{called}({', '.join(texts)})", support)


def _power(printer: Printer, part: LanePart, text: str, exponent: str) -> str:
    kind = expressions.computed(part)
    wide = f"(int{part.width})(as_int({exponent}))" if part.width > 1 else f"as_int({exponent})"
    text = expressions.widened(part, text, printer.support)
    return expressions.narrowed(part, f"pown({text}, {wide})", printer.support) if kind.floating else text


def _without_sign(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
    sizes = part.of(Type(f"i{part.element.bits}"))
    mask = constant(sizes, [(1 << (part.element.bits - 1)) - 1] * part.width)
    if part.short_float:
        return expressions.trimmed(sizes, f"{texts[0]} & {mask}")
    return reinterpret(part.name, f"{reinterpret(part.unsigned, texts[0])} & {mask}")


def _with_sign(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
    sizes = part.of(Type(f"i{part.element.bits}"))
    sign = 1 << (part.element.bits - 1)
    first, second = (text if part.short_float else reinterpret(part.unsigned, text) for text in texts)
    size, own = constant(sizes, [sign - 1] * part.width), constant(sizes, [sign] * part.width)
    text = f"({first} & {size}) | ({second} & {own})"
    return expressions.trimmed(sizes, text) if part.short_float else reinterpret(part.name, text)


def _extreme(name: str, signed: bool) -> _Lanes:
    def text(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
        if part.boolean:
            either = (name == "max") != signed  # a set bit is -1
            return f"({part.name})({texts[0]} {'|' if either else '&'} {texts[1]})"
        a, b = (expressions.sign_extended(part, each) for each in texts) if signed else texts
        return f"({a} {'>' if name == 'max' else '<'} {b}) ? {texts[0]} : {texts[1]}"

    return text


def _saturated(name: str, signed: bool) -> _Lanes:
    def text(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
        if not part.exact:
            raise Inexpressible(f"{name} of i{part.element.bits}")
        if not signed:
            return f"{name}({', '.join(texts)})"
        a, b = (reinterpret(part.signed, each) for each in texts)
        return reinterpret(part.name, f"{name}({a}, {b})")

    return text


def _size(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
    other = expressions.trimmed(part, f"-{texts[0]}")
    return f"({expressions.sign_extended(part, texts[0])} < ({part.signed})(0)) ? {other} : {texts[0]}"


def _leading(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
    spare = part.container - part.element.bits
    return f"clz({texts[0]})" + (f" - {constant(part, [spare] * part.width)}" if spare else "")


def _trailing(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
    one = constant(part, [1] * part.width)
    below = expressions.trimmed(part, f"~{texts[0]} & ({texts[0]} - {one})")
    return f"popcount({below})"


def _funnel(left: bool) -> _Lanes:
    def text(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
        if not part.exact:
            raise Inexpressible(f"a funnel shift of i{part.element.bits}")
        high, low, amount = texts
        bits = part.element.bits
        wrapped = f"({amount} & {constant(part, [bits - 1] * part.width)})"
        one, rest = constant(part, [1] * part.width), f"({constant(part, [bits - 1] * part.width)} - {wrapped})"
        if left:
            return expressions.trimmed(part, f"({high} << {wrapped}) | (({low} >> {one}) >> {rest})")
        shifted = expressions.trimmed(part, f"{high} << {one}")
        return expressions.trimmed(part, f"({low} >> {wrapped}) | ({shifted} << {rest})")

    return text


def _bits_reversed(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
    scalar = LanePart(part.element)
    name = printer.support.of_integers("reverse", scalar.name, part.element.bits)
    lanes = [f"{name}({component(texts[0], part, lane)})" for lane in range(part.width)]
    return f"({part.name})({', '.join(lanes)})" if part.width > 1 else lanes[0]


def _bytes_reversed(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
    terms: list[str] = []
    for number in range(part.element.bits // 8):
        down = constant(part, [8 * number] * part.width)
        up = constant(part, [part.element.bits - 8 - 8 * number] * part.width)
        terms.append(f"((({texts[0]} >> {down}) & {constant(part, [255] * part.width)}) << {up})")
    return expressions.trimmed(part, " | ".join(terms))


def _ordered(signed: bool) -> _Lanes:
    def text(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
        a, b = (expressions.sign_extended(source, each) for each in texts) if signed else texts
        if part.width == 1:
            return expressions.trimmed(part, f"({part.name})(({a} > {b}) - ({a} < {b}))")
        more = expressions.as_mask(source, f"{a} > {b}")
        less = expressions.as_mask(source, f"{a} < {b}")
        return reinterpret(part.unsigned, convert(part.signed, f"{less} - {more}"))

    return text


def _clamped(signed: bool) -> _Lanes:
    """Conversions to integers that clamp, and take NaN to 0."""

    def text(printer: Printer, part: LanePart, source: LanePart, texts: list[str]) -> str:
        bits, wide = part.element.bits, expressions.computed(source)
        own = printer.held(wide, expressions.widened(source, texts[0], printer.support))
        low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)
        limits = [f"({wide.name})({float(number)!r}{'f' if wide.element.bits == 32 else ''})" for number in (low, high)]
        inside = f"({own} > {limits[0]}) & ({own} < {limits[1]})"
        safe = printer.temporary(wide.name)
        wide_mask = inside if part.width > 1 else f"({inside})"
        printer.line(f"{safe} = ({wide_mask}) ? {own} : ({wide.name})(0);")
        converted = expressions.float_to_integer(wide, part, safe, signed, printer.support)
        least = constant(part, [low & ((1 << bits) - 1)] * part.width)
        most = constant(part, [high - 1] * part.width)
        at_most = expressions.selected(part, expressions.as_mask(wide, f"{own} >= {limits[1]}"), most, converted)
        below = expressions.as_mask(wide, f"{own} <= {limits[0]}")
        return expressions.selected(part, below, least, f"({at_most})")

    return text


def _of_class(source: LanePart, text: str, mask: int) -> str:
    """Whether a float is of one of LLVM's classes."""
    if source.short_float:
        raise Inexpressible("is.fpclass of 16-bit floats")
    bits = source.element.bits
    fraction = {32: 23, 64: 52}[bits]
    own = source.of(Type(f"i{bits}"))
    raw = reinterpret(own.name, text)
    infinity, sign = ((1 << (bits - 1 - fraction)) - 1) << fraction, 1 << (bits - 1)
    quiet, smallest = 1 << (fraction - 1), 1 << fraction
    ranges: list[str] = []

    def between(flag: int, low: int, high: int) -> None:
        if mask >> flag & 1:
            first, last = constant(own, [low] * own.width), constant(own, [high] * own.width)
            ranges.append(f"(({raw} >= {first}) & ({raw} <= {last}))")

    for negative in (False, True):
        add = sign if negative else 0
        between(0, add + infinity + 1, add + infinity + quiet - 1)
        between(1, add + infinity + quiet, add + sign - 1)
        for flag, low, high in (
            (9, infinity, infinity), (8, smallest, infinity - 1), (7, 1, smallest - 1), (6, 0, 0)
        ):
            between(11 - flag if negative else flag, add + low, add + high)
    return expressions.as_mask(source, " | ".join(ranges) or f"{raw} != {raw}")


_INTEGERS: dict[str, _Lanes] = {
    "fabs": _without_sign, "copysign": _with_sign, "smax": _extreme("max", True), "smin": _extreme("min", True),
    "umax": _extreme("max", False), "umin": _extreme("min", False), "sadd.sat": _saturated("add_sat", True),
    "uadd.sat": _saturated("add_sat", False), "ssub.sat": _saturated("sub_sat", True),
    "usub.sat": _saturated("sub_sat", False), "abs": _size, "ctlz": _leading, "cttz": _trailing,
    "ctpop": lambda printer, part, source, texts: f"popcount({texts[0]})", "fshl": _funnel(True),
    "fshr": _funnel(False), "bitreverse": _bits_reversed, "bswap": _bytes_reversed, "scmp": _ordered(True),
    "ucmp": _ordered(False), "fptosi.sat": _clamped(True), "fptoui.sat": _clamped(False),
    "canonicalize": lambda printer, part, source, texts: texts[0],
    "arithmetic.fence": lambda printer, part, source, texts: texts[0],
    "expect": lambda printer, part, source, texts: texts[0],
}
