"""The class `loops`: any kernel of stages with affine accesses.

Stages that share rows run together (see `rows.py`); each other stage is a separate phase. Vectors run along the
contiguous dimension of its output, reductions run inside, with one accumulator per point. Inputs that are contiguous
along another parallel dimension are transposed in registers; a reduction of several elements per result runs its
vectors along that dimension instead, and stores results one by one. Temporaries between phases are stored in
workspaces. A reduction of many elements to few results first computes partial results in parallel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from motet.artifact.expressions import product
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.addressing import Frame
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.emit.compute_types import Unsupported
from motet.compiler.codegen.cpu.imports import is_source, is_spirv
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.codegen.cpu.rows import rows
from motet.compiler.codegen.cpu.rows.across import columns_in_scratch, emit_across
from motet.compiler.codegen.cpu.rows.bands import BandWriter
from motet.compiler.codegen.cpu.rows.columns import ColumnWriter
from motet.compiler.codegen.cpu.rows.interleaved_results import write_interleaved
from motet.compiler.codegen.cpu.rows.nest_writer import NestWriter
from motet.compiler.codegen.cpu.rows.phase_memory import PhaseMemory
from motet.compiler.codegen.cpu.rows.plan import check, choose, loop_of, row_extents
from motet.compiler.codegen.cpu.rows.shared_phases import emit_call, shared_stage
from motet.compiler.codegen.cpu.task_split import Division
from motet.compiler.kernels.cost import flops, traffic
from motet.compiler.kernels.kernel import Kernel, Stage, item_bytes
from motet.compiler.kernels.kernel import Value as KernelValue
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.schedule import LoopPhase, LoopsSchedule
from motet.compiler.kernels.split_reductions import split_reductions
from motet.compiler.kernels.strides import product_of
from motet.compiler.kernels.tiled_producers import tile_producers
from motet.compiler.targets.cpu import CpuTarget

_ENOUGH = 4  # rows that are not worth splitting: phases wait for each other, and more memory is read


def match(kernel: Kernel, target: CpuTarget) -> Kernel:
    """Any kernel, with long reductions split, except those whose rows are enough tasks and stay in the cache from one
    stage to the next."""
    try:
        found = rows.group(kernel, range(len(kernel.stages)), target) if len(kernel.stages) > 1 else None
    except Unsupported:
        return kernel
    whole = found is not None and found.reduces
    if whole and found is not None and product_of([(size, 0) for size in row_extents(found)[0]]).factor >= _ENOUGH:
        return kernel
    return tile_producers(split_reductions(kernel))


def emit(kernel: Kernel, schedule: LoopsSchedule, target: CpuTarget) -> KernelCode | None:
    """Code for `kernel`; None if it has no code for a stage."""
    try:
        return _emit(kernel, schedule, target)
    except Unsupported:
        return None


CLASS = KernelClass(LoopsSchedule, match, choose, check, emit)


def _emit(kernel: Kernel, schedule: LoopsSchedule, target: CpuTarget) -> KernelCode:
    groups = _groups(kernel, schedule, target)
    inside = {value for group in groups if isinstance(group, rows.RowGroup) for value in group.private}
    temporaries = [
        i for i, value in enumerate(kernel.values) if value.role == "temporary" and i not in inside
    ]
    module = ir.Module(kernel.name)
    phases: list[Phase] = []
    scratch = first = 0
    shared = _SharedFunctions(module, kernel, target)
    shared.find(list(zip(groups, schedule.phases, strict=True)))
    memory = PhaseMemory(kernel, temporaries)
    for number, (phase, group) in enumerate(zip(schedule.phases, groups, strict=True)):
        symbol = f"{kernel.name}_{number}" if len(groups) > 1 else kernel.name
        stages = kernel.stages[first : first + phase.stages]
        first += phase.stages
        own, workspaces, taken = memory.of(stages if len(groups) > 1 else None)
        if isinstance(group, rows.RowGroup) and group.across:
            tasks = emit_across(module, symbol, own, group, workspaces, phase, target.scales)
            scratch = max(scratch, columns_in_scratch(group, phase.lanes)[1])
        elif isinstance(group, rows.RowGroup):
            tasks = rows.emit_group(module, symbol, own, target, group, workspaces, phase)
            scratch = max(scratch, group.scratch)
        else:
            tasks = shared.emit(symbol, group, phase, own, workspaces)
            if tasks is None:
                tasks = _emit_stage(module, symbol, own, target, group, workspaces, phase)
        phases.append(Phase(symbol, tasks, taken))
    return KernelCode(
        "loops" if any(isinstance(group, Stage) for group in groups) else "rows",
        str(module),
        tuple(phases),
        scratch,
        tuple(_bytes(kernel.values[value]) for value in temporaries),
        flops=flops(kernel),
        bytes=traffic(kernel),
    )


def _groups(kernel: Kernel, schedule: LoopsSchedule, target: CpuTarget) -> list[rows.RowGroup | Stage]:
    """The stages of each phase: a row group or one stage."""
    result: list[rows.RowGroup | Stage] = []
    first = 0
    for phase in schedule.phases:
        stages = range(first, first + phase.stages)
        found = rows.group(kernel, stages, target) if phase.by_rows else None
        result.append(kernel.stages[first] if found is None else found)
        first = stages.stop
    return result


def _bytes(value: KernelValue) -> Expr:
    return product([*value.shape, item_bytes(value.dtype)])


@dataclass
class _SharedFunctions:
    """The functions that phases of a kernel share, by their stages and schedules, with their numbers of tasks."""

    module: ir.Module
    kernel: Kernel
    target: CpuTarget
    counts: Counter[object] = field(default_factory=Counter[object])
    made: dict[object, tuple[str, Expr]] = field(default_factory=dict[object, "tuple[str, Expr]"])

    def find(self, phases: Sequence[tuple[rows.RowGroup | Stage, LoopPhase]]) -> None:
        """Counts the stages that are equal. Platforms of OpenCL compile phases without calls."""
        if len(phases) > 1 and not is_source(self.target) and not is_spirv(self.target):
            for stage, phase in phases:
                found = shared_stage(self.kernel, stage) if isinstance(stage, Stage) else None
                if found is not None:
                    self.counts[found.key, phase] += 1

    def emit(
        self, symbol: str, stage: Stage, phase: LoopPhase, kernel: Kernel, workspaces: dict[int, int]
    ) -> Expr | None:
        """Define `symbol` by a shared function; returns its number of tasks, None if no other phase is equal. `kernel`
        and `workspaces` are the memory of the phase (`PhaseMemory`)."""
        found = shared_stage(self.kernel, stage) if self.counts else None
        if found is None or self.counts[found.key, phase] < 2:
            return None
        key = found.key, phase
        if key not in self.made:
            name = f"{self.kernel.name}_shared{len(self.made)}"
            tasks = _emit_stage(self.module, name, found.kernel, self.target, found.kernel.stages[0], {}, phase)
            self.module.get_global(name).linkage = "internal"
            self.made[key] = name, tasks
        name, tasks = self.made[key]
        emit_call(self.module, symbol, kernel, workspaces, found, name)
        return tasks


# -- one stage -----------------------------------------------------------------------------------------


def _emit_stage(
    module: ir.Module,
    symbol: str,
    kernel: Kernel,
    target: CpuTarget,
    stage: Stage,
    workspaces: dict[int, int],
    phase: LoopPhase,
) -> Expr:
    """Define `symbol`, the phase that runs `stage`; returns its number of tasks. If an input is transposed, rows are
    bands of the dimension along which it is contiguous, a few tiles wide, so that whole cache lines are used."""
    loop = loop_of(kernel, stage, target)
    nest, along, other, outer = loop.nest, loop.along, loop.other(phase.lanes), loop.outer(phase.lanes)
    f = Frame(module, symbol, kernel, workspaces, {})
    f.scales = target.scales
    reduced = None if phase.lanes < loop.lanes else loop.columns
    if along is None or reduced is None:
        writer = NestWriter(f, nest, along, phase.lanes, loop.vectors)
    else:
        writer = ColumnWriter(f, nest, along, phase.lanes, reduced)
    cut = along if other is None else other
    last = None if cut is None else nest.sizes[cut]
    division = Division(tuple(nest.sizes[d] for d in outer), last, phase.strip, phase.grain)

    def row(indices: list[Index], first: Index, end: Index) -> None:
        at: list[Index] = [0] * len(nest.sizes)
        for d, i in zip(outer, indices, strict=True):
            at[d] = i

        def write() -> None:
            if other is None:
                writer.row(at, first, end)
            elif loop.interleaved(phase.lanes) is not None:
                write_interleaved(writer, at, other, first, end)
            else:
                BandWriter(writer, other).write(at, first, end)

        writer.streamed(write)

    division.loop(f, row)
    writer.finish()
    f.finish()
    return division.tasks
