"""The class `windows`: convolutions with few products per point, sibling convolutions together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.codegen.gpu.launches import LaunchClass, LaunchPart
from motet.compiler.codegen.gpu.rows import stored_rows
from motet.compiler.codegen.triton.conv import windows
from motet.compiler.codegen.triton.conv.windows import RowWindows
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.targets.gpu import GpuTarget


@dataclass(frozen=True)
class WindowsLaunch:
    windows: RowWindows
    launch: LaunchPart


class WindowLaunches(LaunchClass[WindowsLaunch, tuple[WindowsLaunch, GpuTarget], Form]):
    name = "windows"
    rank = 3

    def count(self, kernel: Kernel, stages: Sequence[Stage]) -> int:
        counts = range(len(stages), 0, -1)
        return next((count for count in counts if windows.match(kernel, stages[:count]) is not None), 0)

    def match(self, launch: LaunchPart, target: GpuTarget) -> WindowsLaunch | None:
        found = windows.match(launch.kernel, launch.stages)
        return None if found is None else WindowsLaunch(found, launch)

    def plan(self, found: WindowsLaunch, target: GpuTarget) -> tuple[WindowsLaunch, GpuTarget]:
        return found, target

    def forms(self, plan: tuple[WindowsLaunch, GpuTarget]) -> tuple[Form, ...]:
        found, target = plan
        launch = found.launch
        stored = stored_rows(found.windows.rows, launch)
        return windows.emit(found.windows, stored, launch.buffers, launch.symbol, launch.about, target)
