"""What classes of launches share: their plan, and for those of one stage and its epilogue, the `LoopTask`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from motet.compiler.codegen.gpu.launches import LaunchClass, LaunchPart, seen_by
from motet.compiler.codegen.triton.rows.loops import LoopTask
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.writer import gathered, source_of
from motet.compiler.kernels.epilogue import match_epilogue
from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.targets.gpu import GpuTarget

FoundT = TypeVar("FoundT")


class TritonLaunches(LaunchClass[FoundT, tuple[FoundT, GpuTarget], Form]):
    """Launches whose tiles are chosen while their text is written: the plan is what was found, and the target."""

    def plan(self, found: FoundT, target: GpuTarget) -> tuple[FoundT, GpuTarget]:
        return found, target


def longest(stages: Sequence[Stage], takes: Callable[[Sequence[Stage]], bool]) -> int:
    """How many of `stages`, from the first on, `takes` accepts at most; 0 where it accepts none."""
    return next((count for count in range(len(stages), 0, -1) if takes(stages[:count])), 0)


def task_of(launch: LaunchPart) -> LoopTask:
    kernel, main, epilogue = launch.kernel, launch.stages[0], launch.epilogue
    stored = {
        access.value: source_of(kernel, access, main.sizes) for access in main.outputs if launch.is_stored(access.value)
    }
    if epilogue is not None:
        stored |= {output: place for step in epilogue.steps for output, place in step.writes if place is not None}
    return LoopTask(kernel, main, epilogue, stored, launch.buffers, launch.symbol, launch.about)


def with_epilogue(kernel: Kernel, stages: Sequence[Stage]) -> int:
    """How many stages the first one can be followed by while its result is in registers, itself counted. Temporaries
    that were made before count as arguments."""
    count = 1
    while count < len(stages) and not gathered(stages[count]) and _fits(kernel, stages[: count + 1]):
        count += 1
    return count


def _fits(kernel: Kernel, stages: Sequence[Stage]) -> bool:
    main, *rest = stages
    return len(main.outputs) == 1 and match_epilogue(seen_by(kernel, stages, set()), main, rest) is not None
