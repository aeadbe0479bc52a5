"""Which code generator makes code for a target."""

from __future__ import annotations

from motet.compiler.codegen.backend import Backend
from motet.compiler.codegen.cpu.backend import CpuBackend
from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.family import Target
from motet.compiler.tuning.kernels import DEFAULT, Choice


def backend_of(target: Target, choice: Choice = DEFAULT) -> Backend:
    """The code generator for `target`; `choice` says which forms of kernels are kept. Raises OptionError where what it
    is built on is not installed."""
    if isinstance(target, CpuTarget):
        return CpuBackend(target, choice)
    from motet.compiler.codegen.nvvm.backend import NvvmLaunches
    from motet.compiler.codegen.triton.backend import TritonBackend
    from motet.compiler.codegen.triton.compile.objects import require_triton

    require_triton(target)
    return TritonBackend(target, NvvmLaunches(target), choice)
