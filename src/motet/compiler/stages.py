"""The stages of a compilation as text: what `--emit` prints and `motet opt` makes."""

from __future__ import annotations

import msgspec

from motet.compiler import pipeline
from motet.compiler.codegen.cpu.objects import assembly
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
        store = ParameterStore(program.parameters)
        variants = [pipeline.build_variant(program, kernels, target, store, jobs, members) for target in targets]
        text = msgspec.json.encode({variant.target: variant.schedules for variant in variants})
        return msgspec.json.format(text, indent=2).decode() + "\n"
    units = pipeline.kernel_units(program, kernels, targets[0])
    if stage == "llvm":
        return "\n".join(unit.llvm for unit in units)
    return "\n".join(assembly(unit, targets[0]) for unit in units)


def optimise(text: str, file: str, passes: str) -> str:
    """MLIR `text` after a pipeline of upstream passes."""
    context = ir.Context()
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown():
        return _optimised(text, file, passes)


def _optimised(text: str, file: str, passes: str) -> str:
    try:
        module = ir.Module.parse(text)
    except ir.MLIRError as error:
        first = error.error_diagnostics[0] if error.error_diagnostics else None
        place = Location(file)
        if first is not None and isinstance(first.location, ir.Location):
            place = _place(first.location, file)
        raise CompileError(first.message if first else "not MLIR", place) from None
    try:
        run_pipeline(module, passes)
    except ValueError as error:
        raise CompileError(f"pipeline {passes!r}: {str(error).splitlines()[-1]}") from None
    return str(module)


def _place(location: ir.Location, file: str) -> Location:
    name, _, rest = str(location).removeprefix('loc("').removesuffix(")").partition('":')
    del name
    numbers = [int(part) for part in rest.split(":") if part.isdigit()]
    return Location(file, *numbers[:2])
