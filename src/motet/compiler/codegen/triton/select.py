"""Divides a kernel into launches, and gives each to the class that is fastest for it.

    rows           all stages over the same rows, a row or a few in one program
    contraction    sums of products, convolutions too, by tensor cores
    gathering      reductions over tiles
    loops          everything else, point by point

What one launch makes and a later one reads lies in a workspace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.epilogue import Epilogue, match_epilogue
from motet.compiler.codegen.cpu.extents import Place, place_of
from motet.compiler.codegen.kernel import Access, Kernel, Phase, Stage, item_bytes, multiply
from motet.compiler.codegen.triton import loops
from motet.compiler.codegen.triton.loops import Task
from motet.compiler.codegen.triton.program import Program, TritonCode
from motet.compiler.codegen.triton.scalars import Unsupported, pointer_type
from motet.compiler.codegen.triton.writer import is_wide
from motet.compiler.targets.gpu import GpuTarget

CLASSES = (("loops", loops),)


def generate(kernel: Kernel, target: GpuTarget) -> TritonCode:
    """Code for `kernel`. Raises `Unsupported` for what no class has code for."""
    launches = _launches(kernel)
    spaces = _workspaces(kernel, launches)
    buffers = (*kernel.externals, *spaces)
    programs: list[Program] = []
    kinds: list[str] = []
    for position, launch in enumerate(launches):
        symbol = kernel.name if position == 0 else f"{kernel.name}_{position}"
        task = _task(kernel, launch, launches[position + 1 :], buffers, symbol)
        kind, program = _program(task, target)
        programs.append(program)
        kinds.append(kind)
    best = min(kinds, key=lambda kind: [name for name, _ in CLASSES].index(kind))
    return TritonCode(
        best, "", tuple(Phase(p.symbol, p.forms[0].tasks) for p in programs), workspaces=tuple(spaces.values()),
        programs=tuple(programs),
    )


def _program(task: Task, target: GpuTarget) -> tuple[str, Program]:
    for name, generator in CLASSES:
        forms = generator.emit(task, target)
        if forms:
            kernel = task.kernel
            dtypes = tuple(pointer_type(kernel.values[value].dtype) for value in task.buffers)
            size = "i64" if is_wide(kernel) else "i32"
            return name, Program(task.symbol, dtypes, (size,) * len(kernel.symbols), forms)
    raise Unsupported("this loop nest")


# -- launches --------------------------------------------------------------------------------------

Launch = tuple[Stage, ...]  # a stage, and those that run on its result while it is in registers


def _launches(kernel: Kernel) -> list[Launch]:
    found: list[Launch] = []
    stages = list(kernel.stages)
    while stages:
        count = 1
        while count < len(stages) and _follows(kernel, stages[: count + 1]):
            count += 1
        found.append(tuple(stages[:count]))
        del stages[:count]
    return found


def _follows(kernel: Kernel, stages: Sequence[Stage]) -> bool:
    return _epilogue(kernel, stages) is not None


def _epilogue(kernel: Kernel, stages: Sequence[Stage]) -> Epilogue | None:
    """What the stages after the first do on its one result; temporaries made before count as arguments."""
    main, *rest = stages
    if len(main.outputs) != 1:
        return None
    own = {access.value for stage in stages for access in stage.outputs}
    values = tuple(
        replace(value, role="argument") if value.role == "temporary" and i not in own else value
        for i, value in enumerate(kernel.values)
    )
    return match_epilogue(replace(kernel, values=values), main, rest)


def _reads(stages: Sequence[Stage]) -> set[int]:
    found = {access.value for stage in stages for access in stage.inputs}
    return found | {init.value for stage in stages for init in stage.inits if isinstance(init, Access)}


def _workspaces(kernel: Kernel, launches: Sequence[Launch]) -> dict[int, Expr]:
    """The temporaries that one launch makes and another reads, with their bytes."""
    found: dict[int, Expr] = {}
    for position, launch in enumerate(launches):
        later = _reads([stage for other in launches[position + 1 :] for stage in other])
        for stage in launch:
            for access in stage.outputs:
                value = kernel.values[access.value]
                if value.role == "temporary" and access.value in later:
                    found[access.value] = multiply((item_bytes(value.dtype), *value.shape))
    return found


def _task(
    kernel: Kernel, launch: Launch, later: Sequence[Launch], buffers: tuple[int, ...], symbol: str
) -> Task:
    main = launch[0]
    epilogue = _epilogue(kernel, launch)
    read = _reads([stage for other in later for stage in other])
    stored: dict[int, Place] = {}
    for access in main.outputs:
        if kernel.values[access.value].role == "result" or access.value in read:
            place = place_of(kernel, access, len(main.sizes))
            if place is None:
                raise Unsupported("a diagonal of dynamic extents")
            stored[access.value] = place
    if epilogue is not None:
        stored |= _stored_by_steps(kernel, main, launch[1:], read)
    about = "; ".join(dict.fromkeys(stage.source for stage in launch if stage.source)) or kernel.name
    return Task(kernel, main, epilogue, stored, buffers, symbol, about.replace('"""', "").replace("\\", "/"))


def _stored_by_steps(kernel: Kernel, main: Stage, rest: Sequence[Stage], read: set[int]) -> dict[int, Place]:
    """Where what the later stages of a launch make is stored, seen from the first one's loops."""
    values = tuple(
        replace(value, role="result" if i in read or value.role == "result" else value.role)
        if any(access.value == i for stage in (main, *rest) for access in stage.outputs)
        else replace(value, role="argument" if value.role == "temporary" else value.role)
        for i, value in enumerate(kernel.values)
    )
    seen = match_epilogue(replace(kernel, values=values), main, rest)
    if seen is None:
        return {}
    return {output: place for step in seen.steps for output, place in step.writes if place is not None}
