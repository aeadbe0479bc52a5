"""Launches kept as written for Intel's GPUs: the loops that they are on processors, in SPIR-V, as for OpenCL devices.

A block is a task, its threads are loops. The code generator for OpenCL devices makes it (`targets/opencl.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from motet.compiler.codegen.backend import Backend
from motet.compiler.ir._mlir import ir
from motet.compiler.scheduling.schedule import Compiled


@dataclass(frozen=True)
class SpirvLaunches:
    """A `LaunchCompiler` (`codegen/gpu/written_launches.py`); `backend` makes SPIR-V of kernels for processors."""

    backend: Backend

    def emit(self, function: ir.Operation, name: str) -> Compiled:
        return self.backend.generic(function, name, "")

    def compile(self, compiled: Mapping[str, Compiled], jobs: int, members: dict[str, bytes]) -> list[str]:
        own = _own(compiled)
        return self.backend.assemble(own, jobs, members, {})[1] if own else []

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        own = _own(compiled)
        return self.backend.text(own, stage) if own else ""


def _own(compiled: Mapping[str, Compiled]) -> dict[str, Compiled]:
    """The kernels with LLVM IR, which tile programs have none of."""
    return {name: each for name, each in compiled.items() if each.code.llvm}
