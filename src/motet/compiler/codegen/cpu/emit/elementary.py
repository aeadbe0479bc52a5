"""Elementary functions in code made from loops: calls in MLIR, definitions in LLVM IR.

    %y = math.exp %x : f32   →   %y = func.call @motet.exp.f32(%x) : (f32) -> f32

The definitions (`vector_math`) are inlined before LLVM vectorises, which a call of the C library would prevent. For f16
and bf16, the function is computed in f32 and rounded once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from llvmlite import ir as llvm

from motet.compiler.codegen.cpu.emit import vector_math
from motet.compiler.codegen.cpu.emit.builder import F32, F64, Builder
from motet.compiler.ir._mlir import arith, func, ir

_EVERY = ("f32", "f64")
_FUNCTIONS: dict[str, tuple[Callable[[Builder, Any], Any], tuple[str, ...]]] = {
    "exp": (vector_math.exp, _EVERY),
    "exp2": (vector_math.exp2, _EVERY),
    "expm1": (vector_math.expm1, _EVERY),
    "log": (vector_math.log, _EVERY),
    "log2": (vector_math.log2, _EVERY),
    "log10": (vector_math.log10, _EVERY),
    "log1p": (vector_math.log1p, _EVERY),
    "tanh": (vector_math.tanh, _EVERY),
    "sinh": (vector_math.sinh, _EVERY),
    "cosh": (vector_math.cosh, _EVERY),
    "erf": (vector_math.erf, ("f32",)),
}
_NARROW = ("f16", "bf16")
_DECLARED = re.compile(r"^declare [^@]*(@\"?[\w.$]+\"?)\(.*$", re.MULTILINE)


def call_elementary(module: ir.Module) -> set[tuple[str, str]]:
    """Replace operations that have a definition by calls, in place; returns the (function, type) pairs called.

    Every operation of `math` on f16 and bf16 is computed in f32, with or without a definition.
    """
    called: set[tuple[str, str]] = set()
    for operation in _math_operations(module):
        operation = _widen(operation)
        name, kind = operation.name.removeprefix("math."), str(operation.results[0].type)
        if name in _FUNCTIONS and kind in _FUNCTIONS[name][1]:
            with ir.InsertionPoint(operation), operation.location:
                call = func.CallOp([operation.results[0].type], _symbol(name, kind), list(operation.operands))
            operation.results[0].replace_all_uses_with(call.results[0])
            operation.erase()
            called.add((name, kind))
    with ir.InsertionPoint.at_block_begin(module.body), ir.Location.unknown(module.context):
        for name, kind in sorted(called):
            number = ir.Type.parse(kind)
            func.FuncOp(_symbol(name, kind), ([number], [number]), visibility="private")
    return called


def _math_operations(module: ir.Module) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def look(operation: ir.Operation) -> ir.WalkResult:
        if operation.name.startswith("math."):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


def _widen(operation: ir.Operation) -> ir.Operation:
    """`operation`, or the f32 operation that replaces it."""
    if not any(str(operand.type) in _NARROW for operand in operation.operands):
        return operation
    wide = ir.F32Type.get(operation.context)
    with ir.InsertionPoint(operation), operation.location:
        operands = [
            arith.ExtFOp(wide, operand).result if str(operand.type) in _NARROW else operand
            for operand in operation.operands
        ]
        narrow = operation.results[0].type
        rounds = str(narrow) in _NARROW
        attributes = {name: operation.attributes[name] for name in operation.attributes}
        twin = ir.Operation.create(
            operation.name, results=[wide if rounds else narrow], operands=operands, attributes=attributes
        )
        result = arith.TruncFOp(narrow, twin.results[0]).result if rounds else twin.results[0]
    operation.results[0].replace_all_uses_with(result)
    operation.erase()
    return twin


def define_elementary(text: str, called: set[tuple[str, str]]) -> str:
    """Replace the declarations of `called` in the LLVM IR `text` by definitions."""
    if not called:
        return text
    module = llvm.Module()
    for name, kind in sorted(called):
        _define(module, name, kind)
    defined = {_symbol(name, kind) for name, kind in called}
    text = _DECLARED.sub(lambda match: "" if match[1].strip('@"') in defined else match[0], text)
    present = {match[1].strip('@"') for match in _DECLARED.finditer(text)}
    functions = [function for function in module.functions if function.name not in present]
    return "\n".join([text, *(str(function) for function in functions)])


def _define(module: llvm.Module, name: str, kind: str) -> None:
    number = {"f32": F32, "f64": F64}[kind]
    function = llvm.Function(module, llvm.FunctionType(number, [number]), _symbol(name, kind))
    function.linkage = "internal"
    function.attributes.add("alwaysinline")
    builder = Builder(function.append_basic_block("entry"))
    builder.ret(_FUNCTIONS[name][0](builder, function.args[0]))


def _symbol(name: str, kind: str) -> str:
    return f"motet.{name}.{kind}"
