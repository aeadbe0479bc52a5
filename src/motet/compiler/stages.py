"""The stages of a compilation as text, for `--emit` and `motet opt`."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Generator, Sequence

import msgspec

from motet.artifact.device_flags import DeviceFlag
from motet.artifact.schema import Variant
from motet.compiler.build.partitioning import partition_for
from motet.compiler.build.variant import Output, VariantOptions, build_variant, kernel_text
from motet.compiler.frontends.locations import compile_error
from motet.compiler.frontends.mlir import parse_module
from motet.compiler.ir._mlir import PassManager, ir, new_context, register_stablehlo
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.passes import registry
from motet.compiler.passes.pipelines import READ_DEVICES, Step, Upstream
from motet.compiler.passes.running import run_steps
from motet.compiler.passes.text import split_commas
from motet.compiler.pipeline import normalise
from motet.compiler.scheduling.schedule import ParameterStore
from motet.compiler.targets.family import Target
from motet.compiler.tuning.kernels import DEFAULT, Choice
from motet.errors import CompileError, Location, OptionError

_ASSIGNING = ("assign-devices", "place")  # passes that flags of devices are for
_ANCHORS = ("func.func", "gpu.module")
_OTHERS = re.compile(r"\b(?:stablehlo|chlo|tm_tensor)\.")  # dialects that are loaded on demand


def emit(program: Program, stage: str, targets: list[Target], jobs: int, choice: Choice = DEFAULT) -> str:
    """`program` at `stage`, one of `job.STAGES`, with the forms and schedules of kernels that `choice` selects."""
    if stage == "program":
        return str(program.module)
    normalise(program)
    if stage == "normalised":
        return str(program.module)
    partitioned = partition_for(program, targets if stage == "scheduled" else targets[:1])
    if stage == "kernels":
        return str(program.module)
    if stage == "scheduled":
        output = Output(ParameterStore(partitioned.gpu_program.parameters))
        variants: list[Variant] = []
        options = VariantOptions(choice=choice)
        for target in targets:
            own, kernels = partitioned.of(target)
            variants.append(build_variant(public_functions(own.module), kernels, target, jobs, output, options))
        text = msgspec.json.encode({variant.target: variant.schedules for variant in variants})
        return msgspec.json.format(text, indent=2).decode() + "\n"
    return kernel_text(program, partitioned.kernels, targets[0], stage, choice)


def optimise(text: str, file: str, passes: str, devices: Sequence[DeviceFlag] = ()) -> str:
    """MLIR `text`, possibly in older syntax, after a pipeline of upstream's and Motet's passes. `devices` are for those
    that assign devices and have no options; what the program says of devices is read before these. Raises OptionError
    if there is none."""
    steps = _reading_devices(steps_of(passes))
    options = {name: {"flags": tuple(devices)} for name in _ASSIGNING if name in steps} if devices else {}
    if devices and not options:
        raise OptionError(f"--device {devices[0].uri or devices[0]}: no pass of the pipeline reads it; expected one of "
                          f"{', '.join(_ASSIGNING)}, without options")
    with opened(text, file) as program:
        for step in steps:
            try:
                run_steps((step,), program, options)
            except ir.MLIRError as error:
                raise compile_error(error, file) from None
            except ValueError as error:
                raise CompileError(f"pipeline {passes!r}: {_reason(str(error))}", Location(file)) from None
        return str(program.module)


@contextlib.contextmanager
def opened(text: str, file: str) -> Generator[Program]:
    """MLIR `text` as written, for passes to run on, in whose context all further work is done."""
    context = new_context()
    if _OTHERS.search(text):
        register_stablehlo(context)
    module, resources = parse_module(text, file, context)
    context.allow_unregistered_dialects = True  # the attributes named motet.…
    with context, ir.Location.unknown():
        yield Program(module, file=file, resources=resources)


def steps_of(pipeline: str) -> list[Step]:
    """The steps of a pipeline given as text; adjacent upstream passes form one step."""
    if whole := re.fullmatch(r"\s*builtin\.module\((.*)\)\s*", pipeline):
        pipeline = whole[1]  # the operation on which passes run anyway
    found: list[Step] = []
    empty = functools.cache(lambda: ir.Module.parse("module {}", context=ir.Context()))
    for part in split_commas(pipeline):
        steps = registry.expand(part)
        if steps is not None:
            found += steps
            continue
        part = _anchored(part, empty())
        if found and isinstance(found[-1], Upstream):
            found[-1] = Upstream(f"{found[-1].pipeline},{part}")
        else:
            found.append(Upstream(part))
    return found


def _anchored(part: str, empty: ir.Module) -> str:
    """A pass of upstream's, within the operations that it runs on if these are not modules. Unknown ones are left."""
    for anchored in (part, *(f"{kind}({part})" for kind in _ANCHORS)):
        with contextlib.suppress(ValueError, ir.MLIRError):
            # Some passes say what they run on only when scheduled: here for modules in a module that has none.
            PassManager.parse(f"builtin.module(builtin.module({anchored}))", context=empty.context).run(empty.operation)
            return anchored
    return part


def _reading_devices(steps: list[Step]) -> list[Step]:
    """`steps`, with `READ_DEVICES` before the first that takes flags of devices, unless one of these is there."""
    first = next((index for index, step in enumerate(steps) if step in _ASSIGNING), None)
    if first is None or any(step in READ_DEVICES for step in steps[:first]):
        return steps
    return [*steps[:first], *READ_DEVICES, *steps[first:]]


def _reason(text: str) -> str:
    """The line of a diagnostic that contains the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in lines if "error: " in line), lines[-1] if lines else "refused")
    return found.rpartition("error: ")[2]
