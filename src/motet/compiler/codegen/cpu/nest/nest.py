"""The class `nest`: any kernel of stages with affine accesses, by loop nests that a schedule describes.

`plan.py` reads the loops of a stage, `legality.py` checks them, `writer.py` writes the loops around register tiles and
`tile.py` the tiles; `partial_sums.py` divides reductions into tasks; `copies.py` and `buffers.py` keep operands and
results in scratch memory, and `fusion.py` computes other stages in a nest. Each nest is a phase. Temporaries between
phases are stored in workspaces. The heuristics never choose this class.
"""

from __future__ import annotations

from llvmlite import ir

from motet.artifact.expressions import product
from motet.compiler.codegen.cpu.emit.addressing import nest_of as strided_nest
from motet.compiler.codegen.cpu.emit.body import evaluate
from motet.compiler.codegen.cpu.emit.builder import I64
from motet.compiler.codegen.cpu.emit.compute_types import Unsupported, constant
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.codegen.cpu.nest.buffers import with_buffers
from motet.compiler.codegen.cpu.nest.copies import copies_of
from motet.compiler.codegen.cpu.nest.frames import NestFrame, NestMemory
from motet.compiler.codegen.cpu.nest.fusion import hosts_of, scratch_of, with_epilogues, with_producers
from motet.compiler.codegen.cpu.nest.legality import check
from motet.compiler.codegen.cpu.nest.microkernels import code_module
from motet.compiler.codegen.cpu.nest.partial_sums import Blocks, with_partial_sums
from motet.compiler.codegen.cpu.nest.plan import FlatNest, flatten, plan_of
from motet.compiler.codegen.cpu.nest.writer import LoopNestWriter
from motet.compiler.kernels.cost import flops, traffic
from motet.compiler.kernels.kernel import Kernel, Packing, item_bytes
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.loop_names import loop_names
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.schedule import NestSchedule
from motet.compiler.targets.cpu import CpuTarget


def match(kernel: Kernel, target: CpuTarget) -> Kernel | None:
    """`kernel`, if there is code for all of its accesses and operations."""
    try:
        for number, stage in enumerate(kernel.stages):
            strided_nest(kernel, stage)
            f = NestFrame(ir.Module(), f"stage{number}", kernel, NestMemory({}, {}, {}))
            operands = [constant(kernel.values[each.value].dtype, 0) for each in (*stage.inputs, *stage.outputs)]
            evaluate(f, stage.body, len(operands), dict(enumerate(operands)), lambda _: ir.Constant(I64, 0))
    except Unsupported:
        return None
    return kernel


def choose(kernel: Kernel, target: CpuTarget) -> None:
    """The class is used for given schedules alone."""


def emit(kernel: Kernel, schedule: NestSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for `kernel` by `schedule`."""
    hosts, work = hosts_of(kernel, schedule), (flops(kernel), traffic(kernel))
    kernel, partial = with_partial_sums(kernel, schedule, loop_names(kernel))
    names = loop_names(kernel)
    temporaries = [i for i, value in enumerate(kernel.values) if value.role == "temporary"]
    workspaces = {value: number for number, value in enumerate(temporaries)}
    module = ir.Module(kernel.name)
    nests: list[tuple[int, FlatNest, bool]] = []
    for each in sorted(schedule.nests, key=lambda each: each.stage):
        nests += [(each.stage, flat, not each.nest.regions) for flat in flatten(each.nest)]
        if each.stage in partial:
            nests.append((partial[each.stage].combining, partial[each.stage].nest(), False))
    phases: list[Phase] = []
    packings: dict[int, Packing] = {}
    scratch = 0
    used: dict[str, Microkernel] = {}
    for number, (stage, flat, whole) in enumerate(nests):
        symbol = f"{kernel.name}_{number}" if len(nests) > 1 else kernel.name
        fused = hosts.get(stage, [])
        plan = plan_of(kernel, stage, flat, names, target, schedule.microkernels)
        used |= {plan.micro.kernel.name: plan.micro.kernel} if plan.micro is not None else {}
        plan = with_epilogues(kernel, plan, fused)
        plan, producers = with_producers(kernel, plan, fused, target)
        copies = copies_of(kernel, plan, target, whole)
        plan, buffers = with_buffers(kernel, copies.plan, target)
        split = partial.get(stage)
        plan = plan if split is None else split.plan(plan)
        local = [*producers, *copies.locals, *buffers]
        offsets, taken = scratch_of(local)
        blocks: Blocks = {**copies.blocks, **(split.blocks() if split is not None else {})}
        f = NestFrame(module, symbol, kernel, NestMemory(workspaces, offsets, blocks))
        f.scales = target.scales
        writer = LoopNestWriter(f, plan, local)
        writer.run()
        f.finish()
        phases.append(Phase(symbol, writer.tasks()))
        packings |= copies.packings
        scratch = max(scratch, taken)
    sizes = tuple(
        product([*kernel.values[value].shape, item_bytes(kernel.values[value].dtype)]) for value in temporaries
    )
    return KernelCode(
        "nest", str(module), tuple(phases), scratch, sizes, packings, *work,
        parts=tuple(code_module(kernel.name, each) for each in used.values()),
    )


CLASS = KernelClass(NestSchedule, match, choose, check, emit)
