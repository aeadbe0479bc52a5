"""Inlines the functions of a `gpu.module` that its kernels call.

Upstream's inliner skips `gpu.func`. Branches of the functions are first converted to `scf`.
"""

from __future__ import annotations

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.remap import remap
from motet.errors import CompileError


def inline_functions(module: ir.Module) -> None:
    """Rewrites the kernels of `module`. Raises CompileError, at the call, for functions that do not exist, have no
    body, or are recursive."""
    containers = [e.operation for e in module.body.operations if e.operation.name == "gpu.module"]
    if not any(find_operations(container, "func.call") for container in containers):
        return
    run_pipeline(module, "gpu.module(lift-cf-to-scf)")
    for container in [e.operation for e in module.body.operations if e.operation.name == "gpu.module"]:
        functions = {
            symbol_name(entry.operation): entry.operation
            for entry in container.regions[0].blocks[0].operations if entry.operation.name == "func.func"
        }
        for entry in container.regions[0].blocks[0].operations:
            if entry.operation.name == "gpu.func":
                _inline_into(entry.operation, functions, ())


def _inline_into(caller: ir.Operation, functions: dict[str, ir.Operation], around: tuple[str, ...]) -> None:
    for call in find_operations(caller, "func.call"):
        name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        callee = functions.get(name)
        blocks = list(callee.regions[0].blocks) if callee is not None else []
        if callee is None or len(blocks) != 1:
            raise CompileError(
                f"func.call @{name}: a kernel calls what has no body in its module; expected a func.func with one",
                locate(call.location),
            )
        if name in around:
            raise CompileError(
                f"func.call @{name}: the function calls itself; expected calls that end", locate(call.location)
            )
        _inline_into(callee, functions, (*around, name))
        values = dict(zip(blocks[0].arguments, call.operands, strict=True))
        *operations, last = [entry.operation for entry in blocks[0].operations]
        for operation in operations:
            with ir.InsertionPoint(call):
                copy = operation.clone()
            remap(copy, values)
            values.update(zip(operation.results, copy.results, strict=True))
        for result, value in zip(call.results, last.operands, strict=True):
            result.replace_all_uses_with(values.get(value, value))
        call.erase()
