"""OpenCL C for integer arithmetic that says whether it overflowed."""

from __future__ import annotations

from motet.compiler.codegen.llvm.ir import Inexpressible, Instruction
from motet.compiler.codegen.llvm.opencl_c import expressions
from motet.compiler.codegen.llvm.opencl_c.printer import Printer
from motet.compiler.codegen.llvm.opencl_c.types import LanePart, constant, reinterpret


def print_overflow(printer: Printer, each: Instruction, base: str) -> None:
    """The result of an operation and its flag: `{iN, i1}`."""
    opcode = base.removesuffix(".with.overflow")
    results: list[str] = []
    flags: list[str] = []
    for (part, a), (_, b) in zip(printer.parts(each.operands[0]), printer.parts(each.operands[1]), strict=True):
        if not part.exact:
            raise Inexpressible(f"{base} of i{part.element.bits}")
        a, b = printer.held(part, a), printer.held(part, b)
        result = printer.held(part, f"({part.name})({expressions.binary(opcode[1:], part, a, b, printer.support)})")
        results.append(result)
        flags.append(expressions.as_mask(part, _flag(printer, opcode, part, a, b, result)))
    printer.assign(each, [*results, *flags])


def _flag(printer: Printer, opcode: str, part: LanePart, a: str, b: str, result: str) -> str:
    zero = constant(part, [0] * part.width)
    if opcode == "uadd":
        return f"{result} < {a}"
    if opcode == "usub":
        return f"{a} < {b}"
    if opcode == "umul":
        return f"mul_hi({a}, {b}) != {zero}"
    if opcode == "smul":
        high = reinterpret(part.name, f"mul_hi({reinterpret(part.signed, a)}, {reinterpret(part.signed, b)})")
        sign = expressions.binary(
            "ashr", part, result, constant(part, [part.element.bits - 1] * part.width), printer.support
        )
        return f"{high} != {sign}"
    other = f"({a} ^ {result}) & ({b} ^ {result})" if opcode == "sadd" else f"({a} ^ {b}) & ({a} ^ {result})"
    top = constant(part, [1 << (part.element.bits - 1)] * part.width)
    return f"({other} & {top}) != {zero}"
