"""The class `nest`: any kernel of stages with affine accesses, by loop nests that a schedule describes.

`plan.py` reads the loops of a stage, `legality.py` checks them, `writer.py` writes the loops around register tiles and
`tile.py` the tiles. Each nest is a phase. Temporaries between phases are stored in workspaces. The heuristics never
choose this class.
"""

from __future__ import annotations

from llvmlite import ir

from motet.artifact.expressions import product
from motet.compiler.codegen.cpu.emit.addressing import nest_of as strided_nest
from motet.compiler.codegen.cpu.emit.body import evaluate
from motet.compiler.codegen.cpu.emit.builder import I64
from motet.compiler.codegen.cpu.emit.compute_types import Unsupported, constant
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.codegen.cpu.nest.frames import NestFrame
from motet.compiler.codegen.cpu.nest.legality import check
from motet.compiler.codegen.cpu.nest.plan import flatten, plan_of
from motet.compiler.codegen.cpu.nest.writer import LoopNestWriter
from motet.compiler.codegen.kernel_code import KernelCode, Phase
from motet.compiler.kernels.cost import flops, traffic
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.loop_names import loop_names
from motet.compiler.kernels.schedule import NestSchedule
from motet.compiler.targets.cpu import CpuTarget


def match(kernel: Kernel, target: CpuTarget) -> Kernel | None:
    """`kernel`, if there is code for all of its accesses and operations."""
    try:
        for number, stage in enumerate(kernel.stages):
            strided_nest(kernel, stage)
            f = NestFrame(ir.Module(), f"stage{number}", kernel, {})
            operands = [constant(kernel.values[each.value].dtype, 0) for each in (*stage.inputs, *stage.outputs)]
            evaluate(f, stage.body, len(operands), dict(enumerate(operands)), lambda _: ir.Constant(I64, 0))
    except Unsupported:
        return None
    return kernel


def choose(kernel: Kernel, target: CpuTarget) -> None:
    """The class is used for given schedules alone."""


def emit(kernel: Kernel, schedule: NestSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for `kernel` by `schedule`."""
    names = loop_names(kernel)
    temporaries = [i for i, value in enumerate(kernel.values) if value.role == "temporary"]
    workspaces = {value: number for number, value in enumerate(temporaries)}
    module = ir.Module(kernel.name)
    plans = [
        plan_of(kernel, each.stage, flat, names, target)
        for each in sorted(schedule.nests, key=lambda each: each.stage) for flat in flatten(each.nest)
    ]
    phases: list[Phase] = []
    for number, plan in enumerate(plans):
        symbol = f"{kernel.name}_{number}" if len(plans) > 1 else kernel.name
        f = NestFrame(module, symbol, kernel, workspaces)
        f.scales = target.scales
        writer = LoopNestWriter(f, plan)
        writer.run()
        f.finish()
        phases.append(Phase(symbol, writer.tasks()))
    sizes = tuple(
        product([*kernel.values[value].shape, item_bytes(kernel.values[value].dtype)]) for value in temporaries
    )
    return KernelCode(
        "nest", str(module), tuple(phases), 0, sizes, flops=flops(kernel), bytes=traffic(kernel)
    )


CLASS = KernelClass(NestSchedule, match, choose, check, emit)
