"""OpenCL C for reductions of a vector to a scalar."""

from __future__ import annotations

from motet.compiler.codegen.llvm.ir import Inexpressible, Instruction
from motet.compiler.codegen.llvm.opencl_c import expressions
from motet.compiler.codegen.llvm.opencl_c.printer import Printer
from motet.compiler.codegen.llvm.opencl_c.types import LanePart, component

_OPERATIONS = {"add": "add", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "fadd": "fadd", "fmul": "fmul"}
_FLOATS = {"fmax": "maxnum", "fmin": "minnum", "fmaximum": "maximum", "fminimum": "minimum"}
_INTEGERS = {"smax": ("max", True), "smin": ("min", True), "umax": ("max", False), "umin": ("min", False)}


def print_reduction(printer: Printer, each: Instruction, name: str) -> None:
    """A reduction: of floats in order, unless it may be reassociated; others by halves."""
    vector, start = each.operands[-1], each.operands[0] if len(each.operands) == 2 else None
    element = vector.type.of(1)
    terms = [
        component(text, part, lane)
        for part, whole in printer.parts(vector)
        for text in [printer.held(part, whole)]
        for lane in range(part.width)
    ]
    mask = element.bits == 1
    own = LanePart(element, 1, mask)
    ordered = start is not None and not {"reassoc", "fast"}.intersection(each.flags)
    if start is not None:
        terms.insert(0, printer.scalar(start))
    while len(terms) > 1:
        if ordered:
            terms[:2] = [printer.held(own, _combined(printer, own, name, terms[0], terms[1]))]
            continue
        half = (len(terms) + 1) // 2
        terms = [
            printer.held(own, _combined(printer, own, name, a, b)) for a, b in zip(terms, terms[half:], strict=False)
        ] + terms[len(terms) - half : half]
    printer.assign(each, [f"(bool)({terms[0]} != 0)" if mask else terms[0]])


def _combined(printer: Printer, part: LanePart, name: str, a: str, b: str) -> str:
    if name in _OPERATIONS:
        return expressions.binary(_OPERATIONS[name], part, a, b, printer.support)
    if name in _FLOATS:
        a, b = (expressions.widened(part, each, printer.support) for each in (a, b))
        called = printer.support.of_floats(_FLOATS[name], expressions.computed(part).name)
        return expressions.narrowed(part, f"{called}({a}, {b})", printer.support)
    if name not in _INTEGERS:
        raise Inexpressible(f"a call of llvm.vector.reduce.{name}")
    called, signed = _INTEGERS[name]
    if part.boolean:
        return f"(char)({a} {'|' if (called == 'max') != signed else '&'} {b})"
    x, y = (expressions.sign_extended(part, each) for each in (a, b)) if signed else (a, b)
    return f"({x} {'>' if called == 'max' else '<'} {y}) ? {a} : {b}"
