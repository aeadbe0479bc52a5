"""The compiler of launches kept as written, by NVVM; other kernels have another back end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from motet.compiler.codegen.nvvm.emit import emit_launch
from motet.compiler.codegen.nvvm.objects import compile_launches, launch_text
from motet.compiler.ir._mlir import ir
from motet.compiler.scheduling.schedule import Compiled
from motet.compiler.targets.gpu import GpuTarget


@dataclass(frozen=True)
class NvvmLaunches:
    """A `LaunchCompiler` (`codegen/gpu/written_launches.py`)."""

    target: GpuTarget

    def emit(self, function: ir.Operation, name: str) -> Compiled:
        return emit_launch(function, name, self.target)

    def compile(self, compiled: Mapping[str, Compiled], jobs: int, members: dict[str, bytes]) -> list[str]:
        return compile_launches(compiled, self.target, jobs, members)

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        return launch_text(compiled, self.target, stage)
