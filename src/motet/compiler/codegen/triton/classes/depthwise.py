"""depthwise: reductions over windows: convolutions of single channels, poolings."""

from __future__ import annotations

from motet.compiler.codegen.gpu.launches import Launch, LaunchClass
from motet.compiler.codegen.triton.classes.tasks import task_of
from motet.compiler.codegen.triton.conv import depthwise
from motet.compiler.codegen.triton.rows.loops import Task
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.targets.gpu import GpuTarget


class DepthwiseLaunches(LaunchClass[Task, tuple[Task, GpuTarget], Form]):
    name = "depthwise"
    rank = 4

    def match(self, launch: Launch, target: GpuTarget) -> Task:
        return task_of(launch)

    def plan(self, found: Task, target: GpuTarget) -> tuple[Task, GpuTarget]:
        return found, target

    def forms(self, plan: tuple[Task, GpuTarget]) -> tuple[Form, ...]:
        return depthwise.emit(*plan)
