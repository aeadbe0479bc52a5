"""Divides a kernel into launches, and assigns each to the first class of `CLASSES` that supports it (`classes/`).

Attention is a separate kernel. Values written by one launch and read by a later one are stored in workspaces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from motet.compiler.codegen.gpu.accesses import UnsupportedOnGpu, is_wide
from motet.compiler.codegen.gpu.conv import depthwise
from motet.compiler.codegen.gpu.gemm import contraction
from motet.compiler.codegen.gpu.gemm import multi_matching as joining
from motet.compiler.codegen.gpu.launches import LaunchClass, LaunchPart, about, divide, read_after, workspaces
from motet.compiler.codegen.gpu.rows import holds, leaves_idle, lies_along
from motet.compiler.codegen.triton.classes import attention
from motet.compiler.codegen.triton.classes.contraction import TritonContractions
from motet.compiler.codegen.triton.classes.depthwise import TritonDepthwise
from motet.compiler.codegen.triton.classes.loops import TritonLoops
from motet.compiler.codegen.triton.classes.products import TritonProducts
from motet.compiler.codegen.triton.classes.rows import TritonRows
from motet.compiler.codegen.triton.classes.windows import TritonWindows
from motet.compiler.codegen.triton.rows import horizontal_fusion as beside
from motet.compiler.codegen.triton.text.program import Form, TritonCode, TritonProgram
from motet.compiler.codegen.triton.text.scalars import pointer_type
from motet.compiler.codegen.triton.text.writer import STATUS
from motet.compiler.kernels.attention.description import Attention
from motet.compiler.kernels.cost import flops, traffic
from motet.compiler.kernels.kernel import Kernel, Stage, structure
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.loop_names import loop_names
from motet.compiler.kernels.rows import match_rows
from motet.compiler.kernels.split_moments import split_moments
from motet.compiler.kernels.split_reductions import split_reductions
from motet.compiler.kernels.verify import checked
from motet.compiler.kernels.windows import is_windowed
from motet.compiler.targets.gpu import GpuTarget

Class = LaunchClass[Any, Any, Form]
# Fastest first; the last one supports every launch.
CLASSES: tuple[Class, ...] = (
    TritonWindows(), TritonRows(), TritonProducts(), TritonContractions(), TritonDepthwise(), TritonLoops(),
)
_FUSED = (TritonLoops, TritonRows, TritonDepthwise)  # classes of launches of which independent ones become one

_ANY = 1 << 62
_LEAST_PIECES = 4  # for which splitting a product pays
_MANY = 16  # rows
_PROGRAMS_PER_SM = 4  # programs per SM, into which a long reduction is split
_MORE_PROGRAMS_PER_SM = 16  # the same, for parts above _PIECE elements: those that fit in registers are fastest
_PIECE = 16384
_SHORT_PIECE = 256  # elements of a row that a program reads at least
_ACROSS = 32  # rows of one program, across memory
_LEAST_ACROSS = 64  # pieces of rows across memory
_LANE = 16  # rows of one program, of few across memory


def generate(kernel: Kernel, target: GpuTarget) -> TritonCode:
    """Code for `kernel`. Raises `UnsupportedOnGpu` if no class supports it."""
    if (found := attention.match(kernel)) is not None:
        return _attention(found, target)
    kernel = contraction.laid_out(_divided(beside.by_component(kernel), target), target)
    kernel = _divided_product(kernel, target, windowed=True)
    kernel, packings = contraction.packed(kernel, target)
    kernel, filters = depthwise.packed(kernel)
    packings |= filters
    kernel = checked(joining.ordered(kernel), "the choice of layouts for a GPU")
    launches = beside.by_level(divide(kernel, CLASSES))
    spaces = workspaces(kernel, launches)
    names = loop_names(kernel)
    buffers = (*kernel.externals, *spaces)
    if kernel.checks:  # the status is the last buffer
        kernel = replace(kernel, values=(*kernel.values, STATUS))
        buffers = (*buffers, len(kernel.values) - 1)
    programs: list[TritonProgram] = []
    taken: list[Class] = []
    begin = 0
    while begin < len(launches):
        position = len(programs)
        symbol = kernel.name if position == 0 else f"{kernel.name}_{position}"
        launch = LaunchPart(kernel, launches[begin], read_after(launches, begin), buffers, symbol)
        kind, plan, forms = _formed(launch, target)
        stages, count = launch.stages, 1
        if isinstance(kind, _FUSED) and (more := _beside(launch, launches[begin:], target)) is not None:
            count, forms = more
            stages = tuple(stage for each in launches[begin : begin + count] for stage in each)
        begin += count
        program = _program(kernel, buffers, symbol, forms, _key(kernel, position, target), about(kernel, stages))
        programs.append(replace(program, library=kind.library(plan), dims=names.dims[kernel.stages.index(stages[0])]))
        taken.append(kind)
    return TritonCode(
        min(taken or CLASSES[-1:], key=lambda kind: kind.rank).name, "",
        tuple(Phase(p.symbol, p.forms[0].tasks) for p in programs), workspaces=tuple(spaces.values()),
        packings=packings, flops=flops(kernel), bytes=traffic(kernel), programs=tuple(programs), checks=kernel.checks,
    )


def _formed(launch: LaunchPart, target: GpuTarget) -> tuple[Class, Any, tuple[Form, ...]]:
    """The class that supports a launch, its plan, and the program's forms."""
    for each in CLASSES:
        if (found := each.match(launch, target)) is not None:
            plan = each.plan(found, target)
            if forms := each.forms(plan):
                return each, plan, forms
    raise UnsupportedOnGpu(f"no class takes {launch.about}")


def _beside(
    first: LaunchPart, launches: Sequence[tuple[Stage, ...]], target: GpuTarget
) -> tuple[int, tuple[Form, ...]] | None:
    """How many of `launches`, beginning with `first`, are independent and of classes that are fused, and their fused
    forms: of their first forms, else of their last ones. None if only the first is."""
    found: list[tuple[Form, ...]] = []
    for number, stages in enumerate(launches[: beside.MOST]):
        before = [stage for each in launches[:number] for stage in each]
        if not all(beside.are_apart(before, stage) for stage in stages):
            break
        launch = replace(first, stages=stages, read=read_after(launches, number))
        kind, _, forms = _formed(launch, target)
        if not isinstance(kind, _FUSED):
            break
        found.append(forms)
    if len(found) < 2:
        return None
    made = [beside.together([forms[which] for forms in found], first.symbol) for which in (0, -1)]
    own = {form.source: form for form in made if form is not None}
    return (len(found), tuple(own.values())) if own else None


def _attention(found: Attention, target: GpuTarget) -> TritonCode:
    kernel = found.kernel
    made = attention.forms(attention.plan(found, target), about(kernel, kernel.stages))
    programs = tuple(
        _program(one.kernel, one.buffers, one.symbol, one.forms, _key(kernel, position, target), one.about)
        for position, one in enumerate(made.launches)
    )
    return TritonCode(
        "attention", "", tuple(Phase(p.symbol, p.forms[0].tasks) for p in programs), workspaces=made.workspaces,
        flops=flops(kernel), bytes=traffic(kernel), programs=programs,
    )


def _divided(kernel: Kernel, target: GpuTarget) -> Kernel:
    """`kernel` with long reductions split in two steps, if there are too few results to keep all SMs busy; for rows
    across memory, with many rows per program, if it does not hold them. Reductions of enough rows by several stages are
    not split."""
    if any(contraction.takes(kernel, stage) for stage in kernel.stages):
        return _divided_product(kernel, target, windowed=False)
    found = match_rows(kernel, kernel.stages)
    if found is None:
        return split_reductions(kernel)
    single = sum(map(bool, found.reduces)) == 1
    if single and not lies_along(found):
        if holds(found):
            return kernel
        pieces = _PROGRAMS_PER_SM * _LANE * target.processors // (found.count.known or _ANY)
        pieces = max(_LEAST_ACROSS, min(pieces, (found.length.known or 0) // _SHORT_PIECE))
        return split_reductions(kernel, _ACROSS * target.processors, pieces)
    enough = target.processors if single else _MANY
    count = found.count.known or enough
    if not single and leaves_idle(found, target):
        pieces = min(_PROGRAMS_PER_SM * target.processors // count, (found.length.known or 0) // _SHORT_PIECE)
        kernel = split_moments(kernel, count, max(_LEAST_PIECES, pieces))
    if count >= enough or (single and (found.length.known or _ANY) <= _PIECE // 2):
        return kernel
    few, many = _PROGRAMS_PER_SM * target.processors // count, _MORE_PROGRAMS_PER_SM * target.processors // count
    return split_reductions(kernel, enough, max(few, min(many, (found.length.known or 0) // _PIECE)))


def _divided_product(kernel: Kernel, target: GpuTarget, *, windowed: bool) -> Kernel:
    """`kernel` with the sums of its only product, of matrices or of windows, in pieces, if its tiles are few."""
    products = [stage for stage in kernel.stages if contraction.takes(kernel, stage)]
    if len(products) != 1 or any(map(is_windowed, products[0].inputs)) != windowed:
        return kernel
    pieces = contraction.pieces(kernel, products[0], target)
    if pieces < _LEAST_PIECES:
        return kernel
    return split_reductions(contraction.sums_channels_last(kernel, products[0]) if windowed else kernel, _ANY, pieces)


def _program(
    kernel: Kernel, buffers: tuple[int, ...], symbol: str, forms: tuple[Form, ...], key: str, source: str
) -> TritonProgram:
    dtypes = tuple(pointer_type(kernel.values[value].dtype) for value in buffers)
    size = "i64" if is_wide(kernel) else "i32"
    return TritonProgram(symbol, dtypes, (size,) * len(kernel.symbols), forms, key, source, kernel.symbols)


def _key(kernel: Kernel, position: int, target: GpuTarget) -> str:
    """A name for the computation of a kernel's `position`-th launch, equal in all programs that contain it."""
    content = (structure(kernel), position, target.precision)
    return hashlib.sha256(repr(content).encode()).hexdigest()[:32]
