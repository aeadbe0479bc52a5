"""Lists the kernels of a program for one target, with their schedules, for tools that choose schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from motet.compiler.build.partitioning import partition_for
from motet.compiler.build.variant import generate_all, names_of_kernels
from motet.compiler.codegen.backend import Backend
from motet.compiler.codegen.backends import backend_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.launch_choices import LaunchChoice
from motet.compiler.kernels.schedule import KernelSchedule, LaunchForm
from motet.compiler.passes.fuse.outline_kernels import KIND
from motet.compiler.pipeline import normalise
from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.family import Target
from motet.compiler.targets.gpu import GpuTarget
from motet.compiler.tuning.given import target_name
from motet.errors import CompileError


@dataclass(frozen=True)
class ListedKernel:
    """A kernel of a program: `kernel` with its layouts, and the `schedule` that the compiler chooses for `target`, the
    name in files of schedules. Both are None for a kernel without a schedule, with the reason. `forms` are the choices
    for each launch on a GPU, `choices` the same with the tiles of their loops. `names` are those in the source of what
    each call of the kernel computes; `launches` is the number of its programs, or of its phases on a CPU, where generic
    kernels have 0."""

    name: str
    target: str
    about: str
    key: str = ""
    kernel: Kernel | None = None
    schedule: KernelSchedule | None = None
    kind: str = ""
    flops: int = 0
    bytes: int = 0
    forms: tuple[tuple[LaunchForm, ...], ...] = ()
    choices: tuple[tuple[LaunchChoice, ...], ...] = ()
    reason: str = ""
    names: tuple[str, ...] = ()
    launches: int = 0


def list_kernels(program: Program, target: Target) -> list[ListedKernel]:
    """The kernels of `program`, as the front end built it, in the order of their functions."""
    normalise(program)
    own, kernels = partition_for(program, [target]).of(target)
    functions = public_functions(own.module)
    names = names_of_kernels(functions)
    backend = backend_of(target)
    laid_out, codes = generate_all(functions, kernels, backend)
    found: list[ListedKernel] = []
    for name, function in kernels.functions.items():
        about = kernels.reasons.get(name, "") or ir.StringAttr(function.attributes[KIND]).value
        code, said = codes.get(name), tuple(names.get(name, ()))
        made = code if code is not None or backend.complete else _generic(function, name, backend)
        launches = 0 if made is None else len(made.phases)
        if code is None or code.schedule is None:
            reason = _reason(name, kernels.reasons, code)
            moved = 0 if made is None else made.bytes
            found.append(ListedKernel(
                name, target_name(target), about, bytes=moved, reason=reason, names=said, launches=launches))
            continue
        kernel = laid_out[name]
        found.append(ListedKernel(
            name, _own_name(kernel, target), about, code.key, kernel, code.schedule, code.kind, code.flops, code.bytes,
            _forms(code, target), _choices(code, target), names=said, launches=launches,
        ))
    return found


def _generic(function: ir.Operation, name: str, backend: Backend) -> KernelCode | None:
    try:
        return backend.generic(function, name, "").code
    except CompileError:
        return None


def _reason(name: str, reasons: Mapping[str, str], code: KernelCode | None) -> str:
    if name in reasons:
        return f"generic path: {reasons[name]}"
    return "generic path" if code is None else "kernels of this class have no schedules"


def _own_name(kernel: Kernel, target: Target) -> str:
    """The name of the target whose code the kernel gets."""
    if not isinstance(target, CpuTarget):
        return target_name(target)
    from motet.compiler.codegen.cpu.select import own_target

    return target_name(own_target(kernel, target))


def _forms(code: KernelCode, target: Target) -> tuple[tuple[LaunchForm, ...], ...]:
    if not isinstance(target, GpuTarget):
        return ()
    from motet.compiler.codegen.triton.schedules import forms_of

    return forms_of(code)


def _choices(code: KernelCode, target: Target) -> tuple[tuple[LaunchChoice, ...], ...]:
    if not isinstance(target, GpuTarget):
        return ()
    from motet.compiler.codegen.triton.schedules import choices_of

    return choices_of(code)
