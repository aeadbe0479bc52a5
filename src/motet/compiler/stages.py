"""The stages of a compilation as text: what `--emit` prints and `motet opt` makes."""

from __future__ import annotations

import re

import msgspec

from motet.artifact.schema import Variant
from motet.compiler import pipeline
from motet.compiler.codegen.backend import Objects
from motet.compiler.codegen.backends import backend_of
from motet.compiler.frontends.locations import compile_error
from motet.compiler.frontends.mlir import parse_module
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.placement.foreign_passes import FOREIGN_PASSES
from motet.compiler.placement.passes import PASSES
from motet.compiler.scheduling.schedule import ParameterStore
from motet.compiler.targets.family import Target
from motet.errors import CompileError, Location

_PASSES = {**PASSES, **FOREIGN_PASSES}


def emit(program: Program, stage: str, targets: list[Target], jobs: int) -> str:
    """`program` at `stage`, one of `job.STAGES`."""
    if stage == "program":
        return str(program.module)
    pipeline.normalise(program)
    if stage == "normalised":
        return str(program.module)
    apart = pipeline.attending(program, targets if stage == "scheduled" else targets[:1])
    kernels = pipeline.partition(program)
    if stage == "kernels":
        return str(program.module)
    if stage == "scheduled":
        other = (program, kernels) if apart is None else (apart, pipeline.partition_beside(apart, program))
        members: dict[str, bytes] = {}
        made: Objects = {}
        store = ParameterStore(other[0].parameters)
        variants: list[Variant] = []
        for target in targets:
            own, own_kernels = other if backend_of(target).attends else (program, kernels)
            functions = public_functions(own.module)
            variants.append(pipeline.build_variant(functions, own_kernels, target, store, jobs, members, made))
        text = msgspec.json.encode({variant.target: variant.schedules for variant in variants})
        return msgspec.json.format(text, indent=2).decode() + "\n"
    return pipeline.kernel_text(program, kernels, targets[0], stage)


def optimise(text: str, file: str, passes: str) -> str:
    """MLIR `text`, older spellings included, after a pipeline of passes: upstream's and those of placement."""
    context = ir.Context()
    module, _ = parse_module(text, file, context)
    with context, ir.Location.unknown():
        for name, written, options in _parts(passes):
            try:
                if name in _PASSES:
                    _PASSES[name](options).run(module)
                else:
                    run_pipeline(module, written)
            except ir.MLIRError as error:
                raise compile_error(error, file) from None
            except ValueError as error:
                raise CompileError(f"pipeline {passes!r}: {_reason(str(error))}", Location(file)) from None
        return str(module)


def _parts(pipeline: str) -> list[tuple[str, str, str]]:
    """Name, text and options of every pass that Motet runs, and of what stands between them: that has no name."""
    parts: list[str] = [""]
    depth = 0
    if whole := re.fullmatch(r"\s*builtin\.module\((.*)\)\s*", pipeline):
        pipeline = whole[1]  # where passes run anyway
    for character in pipeline:
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    found: list[tuple[str, str, str]] = []
    for part in parts:
        name, _, options = part.strip().partition("{")
        if name.strip() in _PASSES:
            found.append((name.strip(), part, options.rpartition("}")[0]))
        elif found and not found[-1][0]:
            found[-1] = ("", f"{found[-1][1]},{part}", "")
        else:
            found.append(("", part, ""))
    return found


def _reason(text: str) -> str:
    """The line of a diagnostic that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in lines if "error: " in line), lines[-1] if lines else "refused")
    return found.rpartition("error: ")[2]
