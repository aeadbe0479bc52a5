"""The class `depthwise`: reductions over windows (convolutions of single channels, poolings)."""

from __future__ import annotations

from motet.compiler.codegen.gpu.launches import LaunchClass, LaunchPart
from motet.compiler.codegen.gpu.tasks import LoopTask, task_of
from motet.compiler.codegen.triton.conv import depthwise
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.targets.gpu import GpuTarget


class DepthwiseLaunches(LaunchClass[LoopTask, tuple[LoopTask, GpuTarget], Form]):
    name = "depthwise"
    rank = 4

    def match(self, launch: LaunchPart, target: GpuTarget) -> LoopTask:
        return task_of(launch)

    def plan(self, found: LoopTask, target: GpuTarget) -> tuple[LoopTask, GpuTarget]:
        return found, target

    def forms(self, plan: tuple[LoopTask, GpuTarget]) -> tuple[Form, ...]:
        return depthwise.emit(*plan)
