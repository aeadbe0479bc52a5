"""Fuses independent launches, such as the copies of a concatenation, into one: a grid of the programs of all, each of
which runs the text of its launch.

    copy a to the first half of y; copy b to the second half  →  if number < …: copy a; else: copy b
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.artifact.schema import Expr
from motet.compiler.codegen.gpu.accesses import gathered
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.kernels.kernel import Access, Kernel, Size, Stage
from motet.compiler.kernels.strides import span_of

_MARK = "@triton.jit\n"
_NUMBER = "tl.program_id(0)"
MOST = 32  # launches in one


def by_component(kernel: Kernel) -> Kernel:
    """`kernel`, with stages that need nothing of the others one after the other, with all that depends on them."""
    stages = kernel.stages
    component = list(range(len(stages)))
    for number, stage in enumerate(stages):
        for other in range(number):
            if component[other] != component[number] and not are_apart([stages[other]], stage):
                old, new = sorted((component[other], component[number]), reverse=True)
                component = [new if each == old else each for each in component]
    order = sorted(range(len(stages)), key=component.__getitem__)
    return replace(kernel, stages=tuple(stages[number] for number in order))


def by_level(launches: Sequence[tuple[Stage, ...]]) -> list[tuple[Stage, ...]]:
    """`launches`, each as early as those that it waits for allow, so that independent ones are neighbours."""
    levels: list[int] = []
    for launch in launches:
        waited = [level for level, other in zip(levels, launches, strict=False)
                  if not all(are_apart(other, stage) for stage in launch)]
        levels.append(1 + max(waited, default=-1))
    return [launches[number] for number in sorted(range(len(launches)), key=levels.__getitem__)]


def are_apart(earlier: Sequence[Stage], later: Stage) -> bool:
    """Whether `later` neither reads nor writes what a stage of `earlier` writes, nor writes what one reads."""
    written, read = later.outputs, _read(later)
    tables = {*gathered(later).values()}
    for stage in earlier:
        if tables & {access.value for access in stage.outputs}:
            return False
        if {access.value for access in written} & {*gathered(stage).values()}:
            return False
        pairs = [(one, other) for one in stage.outputs for other in (*written, *read)]
        pairs += [(one, other) for one in _read(stage) for other in written]
        if any(_meet(one, stage.sizes, other, later.sizes) for one, other in pairs):
            return False
    return True


def _read(stage: Stage) -> list[Access]:
    return [*stage.inputs, *(init for init in stage.inits if isinstance(init, Access))]


def _meet(one: Access, sizes: Sequence[Size], other: Access, others: Sequence[Size]) -> bool:
    """Whether two accesses may touch the same element."""
    if one.value != other.value:
        return False
    for own, its in zip(one.map, other.map, strict=True):
        mine, theirs = span_of(own, sizes), span_of(its, others)
        if mine is not None and theirs is not None and (mine[1] < theirs[0] or theirs[1] < mine[0]):
            return False
    return True


def together(forms: Sequence[Form], symbol: str) -> Form | None:
    """A single form for the `forms` of programs named `symbol`; None if the number of their programs is known only at
    run time."""
    counts = [form.tasks for form in forms if isinstance(form.tasks, int)]
    if len(counts) != len(forms):
        return None
    helpers: dict[str, None] = {}
    parts: list[str] = []
    for number, form in enumerate(forms):
        *own, main = form.source.split(_MARK)[1:]
        helpers |= dict.fromkeys(text.rstrip() for text in own)
        part = main.rstrip().replace(f"def {symbol}(", f"def part_{number}(number, ", 1)
        parts.append(part.replace(_NUMBER, "number"))
    head = forms[0].source.split(_MARK)[0].rstrip()
    imports = [line for form in forms for line in form.source.split(_MARK)[0].splitlines() if line.startswith("from ")]
    missing = [line for line in dict.fromkeys(imports) if line not in head.splitlines()]
    arguments = parts[0].split("(number, ", 1)[1].split(")", 1)[0]
    functions = [*helpers, *parts, _main(symbol, arguments, counts)]
    text = "\n".join([head, *missing]) + "\n\n\n" + "\n\n\n".join(_MARK + each for each in functions) + "\n"
    tasks: Expr = sum(counts)
    label = next((form.label for form in forms if form.label), "")
    return Form(text, tasks, max(form.warps for form in forms), max(form.stages for form in forms), label)


def _main(symbol: str, arguments: str, counts: Sequence[int]) -> str:
    lines = [f"def {symbol}({arguments}):", f"    number = {_NUMBER}"]
    begin = 0
    for number, count in enumerate(counts):
        last = number == len(counts) - 1
        word = "else:" if last else f"{'elif' if number else 'if'} number < {begin + count}:"
        lines += [f"    {word}", f"        part_{number}(number - {begin}, {arguments})"]
        begin += count
    return "\n".join(lines)
