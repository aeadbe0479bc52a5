"""The code generator `triton` for GPUs: kernels are compiled by Triton, launches that are kept as written by NVVM,
for Intel's GPUs as SPIR-V for OpenCL devices."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

from motet.compiler.targets.family import Target
from motet.compiler.targets.gpu import GpuTarget
from motet.compiler.tuning.kernels import Choice
from motet.errors import OptionError

if TYPE_CHECKING:
    from motet.compiler.codegen.backend import Backend
    from motet.compiler.codegen.gpu.written_launches import LaunchCompiler

api = 1  # the version of the back-end protocol that this module implements

BINARIES = ("cubin", "ptx", "hsaco", "zebin", "spv")  # the outputs of Triton's compiler that devices load


def open(target: Target, choice: Choice) -> Backend:
    """See `motet.compiler.codegen.backend.CodeGenerator`."""
    from motet.compiler.codegen.nvvm.backend import NvvmLaunches
    from motet.compiler.codegen.triton.backend import TritonBackend
    from motet.compiler.codegen.triton.compile.objects import require_triton

    where = f"target {target.family}:{target.name}"
    if not isinstance(target, GpuTarget):
        raise OptionError(f"{where}: a {type(target).__name__}; the code generator triton expects a GpuTarget")
    if target.binary not in BINARIES:
        raise OptionError(f"{where}: Triton makes no {target.binary} files; expected {', '.join(BINARIES)}")
    require_triton(target)
    launches = _spirv_launches(choice) if target.xpu is not None else NvvmLaunches(target)
    return TritonBackend(target, launches, choice)


def _spirv_launches(choice: Choice) -> LaunchCompiler:
    from motet.compiler.codegen.cpu import backend
    from motet.compiler.codegen.spirv_launches import SpirvLaunches
    from motet.compiler.targets.opencl import OPENCL

    return SpirvLaunches(backend.open(OPENCL.targets["spirv64"], choice))


def prepare(targets: Sequence[Target]) -> None:
    """Start the processes that compile programs for the families of `targets`."""
    from motet.compiler.codegen.triton.compile.installation import has_intel
    from motet.compiler.codegen.triton.compile.process import start

    for target in targets:
        if isinstance(target, GpuTarget):
            there = has_intel() if target.xpu is not None else importlib.util.find_spec("triton") is not None
            if there:
                start(target)
