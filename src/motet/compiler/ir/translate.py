"""Translates a module in upstream's LLVM dialect to LLVM IR text.

The translation crashes on unknown operations, so that all operations are checked first; the first unknown one is
reported as an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from motet.compiler.ir._mlir import ir, to_llvm_ir
from motet.errors import CompileError, Location

_FILE_LOCATION = re.compile(r'"(?P<file>[^"]+)":(?P<line>\d+):(?P<column>\d+)')


def translate_to_llvm(module: ir.Module) -> str:
    """The text of `module` in the wheel's LLVM version (see `codegen.llvm.text` for llvmlite's).

    Raises `CompileError` if an operation of another dialect remains.
    """
    for operation in foreign_operations(module):
        raise CompileError(
            f"{operation.name}: there is no lowering of this operation to LLVM for these operand types",
            source_location(operation),
        )
    return to_llvm_ir(module)


def foreign_operations(module: ir.Module) -> Iterator[ir.Operation]:
    """The operations in `module` outside the LLVM dialect, in order."""
    found: list[ir.Operation] = []

    def look(operation: ir.Operation) -> ir.WalkResult:
        if not operation.name.startswith(("llvm.", "builtin.module")):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    yield from found


def source_location(operation: ir.Operation) -> Location | None:
    """The place of `operation` in the user's file; None if unknown."""
    match = _FILE_LOCATION.search(str(operation.location))
    if match is None:
        return None
    return Location(match["file"], int(match["line"]), int(match["column"]))
