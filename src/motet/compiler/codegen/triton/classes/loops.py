"""loops: any stage and what follows its result, point by point."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.gpu.launches import LaunchPart
from motet.compiler.codegen.triton.classes.tasks import TritonLaunches, task_of, with_epilogue
from motet.compiler.codegen.triton.rows import loops
from motet.compiler.codegen.triton.rows.loops import LoopTask
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.targets.gpu import GpuTarget


class LoopLaunches(TritonLaunches[LoopTask]):
    name = "loops"
    rank = 6

    def count(self, kernel: Kernel, stages: Sequence[Stage]) -> int:
        return with_epilogue(kernel, stages)

    def match(self, launch: LaunchPart, target: GpuTarget) -> LoopTask:
        return task_of(launch)

    def forms(self, plan: tuple[LoopTask, GpuTarget]) -> tuple[Form, ...]:
        return loops.emit(*plan)
