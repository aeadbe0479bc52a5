"""Divides a kernel into launches, and gives each to the class that is fastest for it.

    attention      two products with a softmax between them
    windows        convolutions of few products for each point, siblings together
    rows           all stages over the same rows, a row or a few in one program
    products       several sums of products whose results meet
    contraction    sums of products, convolutions too, by tensor cores
    depthwise      reductions over windows: convolutions of single channels, poolings
    gathering      reductions over tiles
    loops          everything else, point by point

What one launch makes and a later one reads lies in a workspace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from motet.artifact.expressions import product
from motet.artifact.schema import Expr
from motet.compiler.codegen.triton.attention import attention
from motet.compiler.codegen.triton.attention import decode as attention_decode
from motet.compiler.codegen.triton.attention import hopper as attention_hopper
from motet.compiler.codegen.triton.conv import depthwise, windows
from motet.compiler.codegen.triton.gemm import contraction
from motet.compiler.codegen.triton.gemm import multi_gemm as joined
from motet.compiler.codegen.triton.gemm import multi_matching as joining
from motet.compiler.codegen.triton.gemm.library import library_call
from motet.compiler.codegen.triton.rows import horizontal_fusion as beside
from motet.compiler.codegen.triton.rows import loops, rows
from motet.compiler.codegen.triton.rows.loops import Task
from motet.compiler.codegen.triton.text.program import Form, Program, TritonCode
from motet.compiler.codegen.triton.text.scalars import pointer_type
from motet.compiler.codegen.triton.text.writer import STATUS, gathered, is_wide, source_of
from motet.compiler.kernels.attention.description import Attention
from motet.compiler.kernels.attention.matching import match as match_attention
from motet.compiler.kernels.cost import flops, traffic
from motet.compiler.kernels.epilogue import Epilogue, match_epilogue
from motet.compiler.kernels.kernel import Access, Kernel, Phase, Stage, Value, item_bytes, structure
from motet.compiler.kernels.rows import Rows, match_rows
from motet.compiler.kernels.split_reductions import split_reductions
from motet.compiler.kernels.verify import checked
from motet.compiler.targets.gpu import GpuTarget

_ANY = 1 << 62
_LEAST_PIECES = 4  # that a product is worth parting in
_MANY = 16  # rows
_TURNS = 4  # programs for each processor, that a long reduction is parted into
_MORE_TURNS = 16  # of one that then has more than _PIECE elements in each: what registers hold at once is read fastest
_PIECE = 16384
_ACROSS = 32  # rows that lie across, of one program
# What a kernel of several launches is called, the first of them.
KINDS = ("products", "contraction", "windows", "depthwise", "rows", "loops")


def generate(kernel: Kernel, target: GpuTarget) -> TritonCode:
    """Code for `kernel`. Raises `Unsupported` for what no class has code for."""
    if (found := match_attention(kernel)) is not None:
        return _attention(found, target)
    kernel, packings = contraction.packed(contraction.laid_out(_divided(kernel, target), target), target)
    kernel, filters = depthwise.packed(kernel)
    packings |= filters
    kernel = checked(joining.ordered(kernel), "the choice of layouts for a GPU")
    launches = _launches(kernel)
    spaces = _workspaces(kernel, launches)
    buffers = (*kernel.externals, *spaces)
    if kernel.checks:  # whose status is the last buffer
        kernel = replace(kernel, values=(*kernel.values, STATUS))
        buffers = (*buffers, len(kernel.values) - 1)
    programs: list[Program] = []
    kinds: list[str] = []
    begin = 0
    while begin < len(launches):
        position, launch = len(programs), launches[begin]
        symbol = kernel.name if position == 0 else f"{kernel.name}_{position}"
        read = _reads([stage for other in launches[begin + 1 :] for stage in other])
        kind, forms = _forms(kernel, launch, read, buffers, symbol, target)
        begin += 1
        if kind == "loops" and (more := _beside(kernel, launches[begin - 1 :], buffers, symbol, target)) is not None:
            count, forms = more
            launch = tuple(stage for each in launches[begin - 1 : begin - 1 + count] for stage in each)
            begin += count - 1
        key = _key(kernel, position, target)
        program = _program(kernel, buffers, symbol, forms, key, _about(kernel, launch))
        if kind == "contraction":
            task = _task(kernel, launch, read, buffers, symbol, program.about)
            program = replace(program, library=library_call(task, target))
        programs.append(program)
        kinds.append(kind)
    return TritonCode(
        min(kinds, key=KINDS.index, default=KINDS[-1]), "", tuple(Phase(p.symbol, p.forms[0].tasks) for p in programs),
        workspaces=tuple(spaces.values()), packings=packings, flops=flops(kernel), bytes=traffic(kernel),
        programs=tuple(programs), checks=kernel.checks,
    )


def _beside(
    kernel: Kernel, launches: Sequence[Launch], buffers: tuple[int, ...], symbol: str, target: GpuTarget
) -> tuple[int, tuple[Form, ...]] | None:
    """How many of `launches`, from the first on, are of the class `loops` and need nothing of one another, and all of
    them as one, of their first forms, else of their last; None where it is the first alone."""
    found: list[tuple[Form, ...]] = []
    for number, launch in enumerate(launches[: beside.MOST]):
        before = [stage for each in launches[:number] for stage in each]
        if not all(beside.are_apart(before, stage) for stage in launch):
            break
        read = _reads([stage for other in launches[number + 1 :] for stage in other])
        kind, forms = _forms(kernel, launch, read, buffers, symbol, target)
        if kind != "loops":
            break
        found.append(forms)
    if len(found) < 2:
        return None
    made = [beside.together([forms[which] for forms in found], symbol) for which in (0, -1)]
    own = {form.source: form for form in made if form is not None}
    return (len(found), tuple(own.values())) if own else None


def _attention(found: Attention, target: GpuTarget) -> TritonCode:
    kernel = found.kernel
    about = _about(kernel, kernel.stages)
    space = attention.space_of(found)
    parts = attention_decode.parts_of(space, target)
    if parts is not None:
        made = attention_decode.emit(found, parts, kernel.name, about, target)
    else:
        first = attention_hopper.forms_of(space, kernel.externals, kernel.name, about, target)
        made = attention.emit(found, kernel.name, about, target, first)
    programs = tuple(
        _program(one.kernel, one.buffers, one.symbol, one.forms, _key(kernel, position, target), one.about)
        for position, one in enumerate(made.launches)
    )
    return TritonCode(
        "attention", "", tuple(Phase(p.symbol, p.forms[0].tasks) for p in programs), workspaces=made.workspaces,
        flops=flops(kernel), bytes=traffic(kernel), programs=programs,
    )


def _divided(kernel: Kernel, target: GpuTarget) -> Kernel:
    """`kernel` with long reductions in two steps, where there are too few results to keep all processors busy: rows
    that lie across are taken many at a time. What goes over enough rows in several stages is not parted."""
    products = [stage for stage in kernel.stages if contraction.takes(kernel, stage)]
    if products:
        pieces = contraction.pieces(kernel, products[0], target) if len(products) == 1 else 1
        return split_reductions(kernel, _ANY, pieces) if pieces >= _LEAST_PIECES else kernel
    found = match_rows(kernel, kernel.stages)
    if found is None:
        return split_reductions(kernel)
    single = sum(map(bool, found.reduces)) == 1
    if single and not rows.lies_along(found):
        return split_reductions(kernel, _ACROSS * target.processors)
    enough = target.processors if single else _MANY
    count = found.count.known or enough
    if count >= enough:
        return kernel
    few, many = _TURNS * target.processors // count, _MORE_TURNS * target.processors // count
    return split_reductions(kernel, enough, max(few, min(many, (found.length.known or 0) // _PIECE)))


def _program(
    kernel: Kernel, buffers: tuple[int, ...], symbol: str, forms: tuple[Form, ...], key: str, about: str
) -> Program:
    dtypes = tuple(pointer_type(kernel.values[value].dtype) for value in buffers)
    size = "i64" if is_wide(kernel) else "i32"
    return Program(symbol, dtypes, (size,) * len(kernel.symbols), forms, key, about, kernel.symbols)


def _key(kernel: Kernel, position: int, target: GpuTarget) -> str:
    """What the `position`-th launch of a kernel computes, as a name: the same in every program that it is of."""
    content = (structure(kernel), position, target.precision)
    return hashlib.sha256(repr(content).encode()).hexdigest()[:32]


def _about(kernel: Kernel, launch: Launch) -> str:
    """The operations of a launch, as the source has them."""
    about = "; ".join(dict.fromkeys(stage.source for stage in launch if stage.source)) or kernel.name
    return about.replace('"""', "").replace("\\", "/")


def _forms(
    kernel: Kernel, launch: Launch, read: set[int], buffers: tuple[int, ...], symbol: str, target: GpuTarget
) -> tuple[str, tuple[Form, ...]]:
    """The class that takes a launch, and the program's forms; `read` are the values that later ones read."""
    about = _about(kernel, launch)
    taken = windows.match(kernel, launch)
    found = taken.rows if taken is not None else _rows(kernel, launch)
    if found is not None:
        stored = {
            access.value: found.place(access, s) for s, stage in enumerate(launch) for access in stage.outputs
            if kernel.values[access.value].role == "result" or access.value in read
        }
        if taken is not None:
            return "windows", windows.emit(taken, stored, buffers, symbol, about, target)
        return "rows", rows.emit(found, stored, buffers, symbol, about, target)
    several = joining.match(kernel, launch, _seen(kernel, launch, read), read, buffers, symbol, about, target)
    if several is not None:
        return "products", joined.emit(several, target)
    task = _task(kernel, launch, read, buffers, symbol, about)
    if forms := contraction.emit(task, target):
        return "contraction", forms
    if forms := depthwise.emit(task, target):
        return "depthwise", forms
    return "loops", loops.emit(task, target)


# -- launches --------------------------------------------------------------------------------------

Launch = tuple[Stage, ...]  # stages that one program runs, one after the other


def _launches(kernel: Kernel) -> list[Launch]:
    found: list[Launch] = []
    stages = list(kernel.stages)
    while stages:
        count = max(_together(kernel, stages), _row_stages(kernel, stages), _window_stages(kernel, stages))
        count = max(count, _joined_stages(kernel, stages))
        found.append(tuple(stages[:count]))
        del stages[:count]
    return found


def _together(kernel: Kernel, stages: Sequence[Stage]) -> int:
    """How many stages the first one can be followed by while its result is in registers, itself counted."""
    count = 1
    while count < len(stages) and not gathered(stages[count]) and _epilogue(kernel, stages[: count + 1]) is not None:
        count += 1
    return count


def _row_stages(kernel: Kernel, stages: Sequence[Stage]) -> int:
    """How many stages, from the first on, go over the same rows."""
    for count in range(len(stages), 0, -1):
        if _rows(kernel, stages[:count]) is not None:
            return count
    return 0


def _window_stages(kernel: Kernel, stages: Sequence[Stage]) -> int:
    """How many stages, from the first on, are convolutions of the same points and what follows them."""
    counts = range(len(stages), 0, -1)
    return next((count for count in counts if windows.match(kernel, stages[:count]) is not None), 0)


def _joined_stages(kernel: Kernel, stages: Sequence[Stage]) -> int:
    """How many stages, from the first on, are products and what is done where their results meet."""
    counts = range(len(stages), 1, -1)
    seen = (_seen(kernel, stages[:count], set()) for count in counts)
    found = (joining.matched(kernel, stages[:count], each) for count, each in zip(counts, seen, strict=True))
    return next((count for count, each in zip(counts, found, strict=True) if each is not None), 0)


def _rows(kernel: Kernel, stages: Sequence[Stage]) -> Rows | None:
    if any(contraction.takes(kernel, stage) or gathered(stage) for stage in stages):
        return None
    found = match_rows(kernel, stages)
    return found if found is not None and rows.suits(found) else None


def _epilogue(kernel: Kernel, stages: Sequence[Stage]) -> Epilogue | None:
    """What the stages after the first do on its one result; temporaries made before count as arguments."""
    main, *rest = stages
    if len(main.outputs) != 1:
        return None
    return match_epilogue(_seen(kernel, stages, set()), main, rest)


def _seen(kernel: Kernel, stages: Sequence[Stage], read: set[int]) -> Kernel:
    """`kernel` as `stages` see it: temporaries of others are arguments, their own ones in `read` are results."""
    own = {access.value for stage in stages for access in stage.outputs}

    def role(i: int, value: Value) -> Value:
        if value.role != "temporary" or (i in own and i not in read):
            return value
        return replace(value, role="result" if i in own else "argument")

    return replace(kernel, values=tuple(role(i, value) for i, value in enumerate(kernel.values)))


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
                    found[access.value] = product((item_bytes(value.dtype), *value.shape))
    return found


def _task(
    kernel: Kernel, launch: Launch, read: set[int], buffers: tuple[int, ...], symbol: str, about: str
) -> Task:
    main, *rest = launch
    epilogue = match_epilogue(_seen(kernel, launch, read), main, rest) if len(main.outputs) == 1 else None
    stored = {
        access.value: source_of(kernel, access, main.sizes) for access in main.outputs
        if kernel.values[access.value].role == "result" or access.value in read
    }
    if epilogue is not None:
        stored |= {output: place for step in epilogue.steps for output, place in step.writes if place is not None}
    return Task(kernel, main, epilogue, stored, buffers, symbol, about)
