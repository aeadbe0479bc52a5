"""Joins the kernels of an OpenCL target into one program.

A platform takes a fixed time for each program: a process that builds it, and its compiler's start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet.compiler.codegen.backend import UnloadableCode
from motet.compiler.codegen.cpu.imports import ELSEWHERE, check_imports, is_source, is_spirv
from motet.compiler.codegen.cpu.objects import (
    ObjectUnit,
    UnitDied,
    assembly,
    compile_apart,
    compile_units,
    worker_crash,
)
from motet.compiler.codegen.llvm.spirv import spirv_imports
from motet.compiler.targets.cpu import CpuTarget


def is_joined(target: CpuTarget) -> bool:
    """Whether the kernels of `target` are joined: `compile_units` then makes parts of a program."""
    return is_source(target) or is_spirv(target)


def join(parts: Mapping[str, bytes], target: CpuTarget) -> tuple[str, bytes]:
    """The file name and the code of the program of `parts`, at least one, by kernel. Raises UnloadableCode, which names
    all kernels that LLVM has no SPIR-V for, or that call functions that OpenCL lacks."""
    first = next(iter(parts))
    if is_source(target):
        return f"{first}.cl", b"\n".join(parts.values())
    modules = {name: part.decode() for name, part in parts.items()}
    program = _program(list(modules.values()))
    code, end = None, ""
    try:
        code = compile_apart(program, target)
    except UnitDied as died:
        end = died.how
    if code is None or spirv_imports(code):
        _refuse({name: why for name, module in modules.items() if (why := _obstacle(name, module, target))}, target)
    if code is None:
        raise worker_crash(program, target, end)
    return f"{first}.spv", code


def joined_assembly(units: Sequence[ObjectUnit], target: CpuTarget) -> str:
    """The text of the program of `units`; of one program in a process, for SPIR-V."""
    if is_source(target):
        return "\n".join(assembly(unit, target) for unit in units)
    parts = [code.decode() for code in compile_units(units, target, 1)]
    for unit, part in zip(units, parts, strict=True):
        check_imports(unit.name, part.encode(), target)
    return assembly(_program(parts), target) if parts else ""


def _program(modules: Sequence[str]) -> ObjectUnit:
    return ObjectUnit("program", modules[0], False, tuple(modules[1:]))


def _obstacle(name: str, module: str, target: CpuTarget) -> str:
    """What is wrong with a kernel by itself; empty if it can be loaded."""
    try:
        missing = spirv_imports(compile_apart(ObjectUnit(name, module, False), target))
    except UnitDied as died:
        return f"cannot be made: LLVM ends with {died.how}"
    return f"calls {', '.join(missing)}, which OpenCL lacks" if missing else ""


def _refuse(reasons: dict[str, str], target: CpuTarget) -> None:
    """Raise UnloadableCode for the kernels in `reasons`, if there are any."""
    if reasons:
        symbol, reason = next(iter(reasons.items()))
        raise UnloadableCode(
            f"kernel {symbol}: its code for {target.family}:{target.name} {reason}; {ELSEWHERE}", *reasons,
        )
