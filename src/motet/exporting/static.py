"""Specialises a function to one target and given extents, with a fixed list of commands and a fixed memory plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from motet.artifact.agreement import Agreement
from motet.artifact.plans import has_loops
from motet.artifact.reader import Artifact
from motet.artifact.schema import Schedule, Signature, Variant
from motet.errors import CallError, OptionError
from motet.runtime.drivers.common.heap import HeapBuffer
from motet.runtime.instantiate import Concrete, make_concrete
from motet.runtime.merge import merge_plan

BufferT = TypeVar("BufferT", bound=HeapBuffer)


@dataclass(frozen=True)
class StaticFunction:
    """`concrete` is the work; `parameters` are the constants that it refers to, in its order; `objects` and `names` are
    the code of `variant`."""

    signature: Signature
    variant: Variant
    concrete: Concrete
    parameters: list[np.ndarray[Any, Any]]
    objects: list[bytes]
    names: list[str]

    @property
    def kernels(self) -> list[str]:
        """The launched kernels, each once."""
        return list(dict.fromkeys(work.kernel for work in self.concrete.work if work.op == "launch"))


def make_static(
    artifact: Artifact, signature: Signature, variant: Variant, extents: Mapping[str, int]
) -> StaticFunction:
    """Specialise `signature`, a function of `artifact`, to one target with `extents` for its symbols.

    Raises OptionError for missing or unknown extents and for a function without code for this target; CallError for
    unsuitable extents.
    """
    where = f"{artifact.name}: {signature.name}"
    _refuse_values(signature, where)
    _refuse_strides(signature, where)
    _check_extents(signature, extents, where)
    schedule = _schedule(artifact, signature, variant, where)
    concrete = make_concrete(
        signature, schedule, extents, lambda index: artifact.parameter(index).nbytes, where,
        Agreement(variant, artifact.contracts),
    )
    objects = [bytes(artifact.member(name)) for name in variant.objects]
    parameters = [artifact.parameter(index) for index in concrete.parameters]
    return StaticFunction(signature, variant, concrete, parameters, objects, list(variant.objects))


def find_variant(artifact: Artifact, target: str) -> Variant:
    """The variant for a target: `rv64gc` or `riscv:rv64gc`; for a family, its first. Raises OptionError."""
    for variant in artifact.manifest.variants:
        if target in (variant.target, f"{variant.family}:{variant.target}", variant.family):
            return variant
    known = ", ".join(f"{variant.family}:{variant.target}" for variant in artifact.manifest.variants) or "none"
    raise OptionError(f"{artifact.name}: no code for {target}; there is for: {known}")


def _refuse_strides(signature: Signature, where: str) -> None:
    for spec in signature.inputs:
        if spec.strided:
            raise OptionError(
                f"{where}: {spec.name} has a strided layout, which needs Motet's runtime; expected a row-major memref"
            )


def _refuse_values(signature: Signature, where: str) -> None:
    for spec in signature.inputs:
        if spec.value is not None:
            raise OptionError(
                f"{where}: {spec.value.operator}: extents follow from values that a call gives, which needs Motet's "
                "runtime; expected constants"
            )


def _check_extents(signature: Signature, extents: Mapping[str, int], where: str) -> None:
    for symbol in signature.symbols:
        if symbol.name not in extents:
            name = signature.inputs[symbol.input].name
            raise OptionError(
                f"{where}: axis {symbol.axis} of {name} is known only at run time; expected --extent {symbol.name}=N"
            )
    unknown = extents.keys() - {symbol.name for symbol in signature.symbols}
    if unknown:
        known = ", ".join(symbol.name for symbol in signature.symbols) or "none"
        raise OptionError(f"{where}: no extent {min(unknown)} to give; there are: {known}")
    for name, extent in extents.items():
        if extent < 0:
            raise OptionError(f"{where}: extent {name}={extent}; expected 0 or more")


def _schedule(artifact: Artifact, signature: Signature, variant: Variant, where: str) -> Schedule:
    """The only schedule of a function, or that of its plan if all of it is this variant's."""
    manifest = artifact.manifest
    if signature.name in variant.schedules:
        return variant.schedules[signature.name]
    plan = manifest.plans.get(signature.name)
    if plan is not None and has_loops(plan):
        raise OptionError(
            f"{where}: a loop of it is executed over several devices, step by step; expected a program on one device"
        )
    if plan is not None:
        missing = [step.region for step in plan.steps if step.op == "run" and step.region not in variant.schedules]
        if not missing:
            return merge_plan(signature, plan, manifest.regions, variant.schedules).schedule
    raise OptionError(
        f"{where}: not all of it is compiled for {variant.family}:{variant.target}; expected a program on that device "
        "alone"
    )


def place_externals(function: StaticFunction, allocate: Callable[[int], BufferT]) -> list[BufferT]:
    """Memory for inputs, results (one written in place is its input), the arena, and constants."""
    concrete = function.concrete
    buffers = [allocate(shape.bytes) for shape in concrete.inputs]
    for spec, shape in zip(function.signature.results, concrete.results, strict=True):
        buffers.append(allocate(shape.bytes) if spec.destination is None else buffers[spec.destination])
    return [*buffers, allocate(concrete.arena), *(allocate(array.nbytes) for array in function.parameters)]


def exported_symbols(
    function: StaticFunction, externals: Sequence[HeapBuffer], kernels: Mapping[str, int]
) -> dict[str, int]:
    """The addresses of inputs, results, the word of checks, and those of `kernels` that are launched."""
    names = [f"input_{spec.name}" for spec in function.signature.inputs]
    names += [f"result_{spec.name}" for spec in function.signature.results]
    symbols = {name: address for name, address in kernels.items() if name in function.kernels}
    for name, buffer in zip(names, externals, strict=False):
        symbols[f"motet_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"] = buffer.address
    statuses = function.concrete.statuses
    if statuses is not None:  # not zero after a failed check: see `runtime/checks.py`
        symbols["motet_checks"] = externals[len(names)].address + statuses.offset
    return symbols


def shape_text(extents: Sequence[int], dtype: str) -> str:
    """`3x5xf32`."""
    return "x".join([*map(str, extents), dtype])


def check_inputs(function: StaticFunction, inputs: Sequence[np.ndarray[Any, Any]]) -> None:
    """Refuses inputs of other shapes or dtypes than those of `function`; there may be none. Raises CallError."""
    name, shapes = function.signature.name, function.concrete.inputs
    if inputs and len(inputs) != len(shapes):
        raise CallError(f"{name}: {len(inputs)} inputs given, {len(shapes)} or none expected")
    for spec, shape, array in zip(function.signature.inputs, shapes, inputs, strict=False):
        if array.shape != shape.extents or array.dtype != shape.dtype:
            raise CallError(
                f"{name}: {spec.name}: {shape_text(array.shape, str(array.dtype))} given; "
                f"{shape_text(shape.extents, str(shape.dtype))} expected"
            )
