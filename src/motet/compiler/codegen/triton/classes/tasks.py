"""Builds the `LoopTask` of one stage and its epilogue, for several classes."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.gpu.launches import LaunchPart, seen_by
from motet.compiler.codegen.triton.rows.loops import LoopTask
from motet.compiler.codegen.triton.text.writer import gathered, source_of
from motet.compiler.kernels.epilogue import match_epilogue
from motet.compiler.kernels.kernel import Kernel, Stage


def task_of(launch: LaunchPart) -> LoopTask:
    kernel, main, epilogue = launch.kernel, launch.stages[0], launch.epilogue
    stored = {
        access.value: source_of(kernel, access, main.sizes) for access in main.outputs if launch.is_stored(access.value)
    }
    if epilogue is not None:
        stored |= {output: place for step in epilogue.steps for output, place in step.writes if place is not None}
    return LoopTask(kernel, main, epilogue, stored, launch.buffers, launch.symbol, launch.about)


def with_epilogue(kernel: Kernel, stages: Sequence[Stage]) -> int:
    """How many stages, including the first, can run while the first stage's result is in registers. Temporaries of
    earlier stages count as arguments."""
    count = 1
    while count < len(stages) and not gathered(stages[count]) and _fits(kernel, stages[: count + 1]):
        count += 1
    return count


def _fits(kernel: Kernel, stages: Sequence[Stage]) -> bool:
    main, *rest = stages
    return len(main.outputs) == 1 and match_epilogue(seen_by(kernel, stages, set()), main, rest) is not None
