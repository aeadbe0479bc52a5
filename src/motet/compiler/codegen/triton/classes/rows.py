"""rows: all stages over the same rows, a row or a few in one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.codegen.gpu.launches import LaunchPart
from motet.compiler.codegen.triton.classes.tasks import TritonLaunches, longest
from motet.compiler.codegen.triton.gemm import contraction
from motet.compiler.codegen.triton.rows import rows
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.writer import gathered
from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.kernels.rows import Rows
from motet.compiler.kernels.rows import match_rows as match_stages
from motet.compiler.kernels.strides import StridedAccess
from motet.compiler.targets.gpu import GpuTarget


@dataclass(frozen=True)
class RowsLaunch:
    """`rows`, and where the values are stored that others read."""

    rows: Rows
    stored: dict[int, StridedAccess]
    launch: LaunchPart


class RowLaunches(TritonLaunches[RowsLaunch]):
    name = "rows"
    rank = 5

    def count(self, kernel: Kernel, stages: Sequence[Stage]) -> int:
        return longest(stages, lambda some: match_rows(kernel, some) is not None)

    def match(self, launch: LaunchPart, target: GpuTarget) -> RowsLaunch | None:
        found = match_rows(launch.kernel, launch.stages)
        return None if found is None else RowsLaunch(found, stored_rows(found, launch), launch)

    def forms(self, plan: tuple[RowsLaunch, GpuTarget]) -> tuple[Form, ...]:
        found, target = plan
        launch = found.launch
        return rows.emit(found.rows, found.stored, launch.buffers, launch.symbol, launch.about, target)


def match_rows(kernel: Kernel, stages: Sequence[Stage]) -> Rows | None:
    if any(contraction.takes(kernel, stage) or gathered(stage) for stage in stages):
        return None
    found = match_stages(kernel, stages)
    return found if found is not None and rows.suits(found) else None


def stored_rows(found: Rows, launch: LaunchPart) -> dict[int, StridedAccess]:
    """Where the values of a launch are stored that others read."""
    return {
        access.value: found.place(access, s) for s, stage in enumerate(launch.stages) for access in stage.outputs
        if launch.is_stored(access.value)
    }
