"""depthwise: reductions over windows: convolutions of single channels, poolings."""

from __future__ import annotations

from motet.compiler.codegen.gpu.launches import LaunchPart
from motet.compiler.codegen.triton.classes.tasks import TritonLaunches, task_of
from motet.compiler.codegen.triton.conv import depthwise
from motet.compiler.codegen.triton.rows.loops import LoopTask
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.targets.gpu import GpuTarget


class DepthwiseLaunches(TritonLaunches[LoopTask]):
    name = "depthwise"
    rank = 4

    def match(self, launch: LaunchPart, target: GpuTarget) -> LoopTask:
        return task_of(launch)

    def forms(self, plan: tuple[LoopTask, GpuTarget]) -> tuple[Form, ...]:
        return depthwise.emit(*plan)
