"""contraction: sums of products, convolutions too, by tensor cores."""

from __future__ import annotations

from motet.artifact.library import LibraryCall
from motet.compiler.codegen.gpu.launches import LaunchPart
from motet.compiler.codegen.triton.classes.tasks import TritonLaunches, task_of
from motet.compiler.codegen.triton.gemm import contraction
from motet.compiler.codegen.triton.gemm.library import library_call
from motet.compiler.codegen.triton.rows.loops import LoopTask
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.targets.gpu import GpuTarget


class ContractionLaunches(TritonLaunches[LoopTask]):
    name = "contraction"
    rank = 2

    def match(self, launch: LaunchPart, target: GpuTarget) -> LoopTask | None:
        return task_of(launch) if contraction.takes(launch.kernel, launch.stages[0]) else None

    def forms(self, plan: tuple[LoopTask, GpuTarget]) -> tuple[Form, ...]:
        return contraction.emit(*plan)

    def library(self, plan: tuple[LoopTask, GpuTarget]) -> LibraryCall | None:
        return library_call(*plan)
