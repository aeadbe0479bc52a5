"""The stages of a compilation as text: what `--emit` prints and `motet opt` makes."""

from __future__ import annotations

import msgspec

from motet.compiler import pipeline
from motet.compiler.codegen.cpu.objects import Unit, assembly
from motet.compiler.frontends.mlir import parse_module
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.program import Program
from motet.compiler.scheduling.schedule import ParameterStore
from motet.compiler.targets.cpu import CpuTarget
from motet.errors import CompileError, Location


def emit(program: Program, stage: str, targets: list[CpuTarget], jobs: int) -> str:
    """`program` at `stage`, one of `job.STAGES`."""
    if stage == "program":
        return str(program.module)
    pipeline.normalise(program)
    if stage == "normalised":
        return str(program.module)
    kernels = pipeline.partition(program)
    if stage == "kernels":
        return str(program.module)
    if stage == "scheduled":
        members: dict[str, bytes] = {}
        made: dict[tuple[str, Unit], str] = {}
        store = ParameterStore(program.parameters)
        functions = pipeline.public_functions(program.module)
        variants = [pipeline.build_variant(functions, kernels, target, store, jobs, members, made) for target in targets]
        text = msgspec.json.encode({variant.target: variant.schedules for variant in variants})
        return msgspec.json.format(text, indent=2).decode() + "\n"
    units = pipeline.kernel_units(program, kernels, targets[0])
    if stage == "llvm":
        return "\n".join(unit.llvm for unit in units)
    return "\n".join(assembly(unit, targets[0]) for unit in units)


def optimise(text: str, file: str, passes: str) -> str:
    """MLIR `text`, older spellings included, after a pipeline of upstream passes."""
    context = ir.Context()
    module, _ = parse_module(text, file, context)
    with context, ir.Location.unknown():
        try:
            run_pipeline(module, passes)
        except ValueError as error:
            raise CompileError(f"pipeline {passes!r}: {_reason(str(error))}", Location(file)) from None
        return str(module)


def _reason(text: str) -> str:
    """The line of a diagnostic that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in lines if "error: " in line), lines[-1] if lines else "refused")
    return found.rpartition("error: ")[2]
