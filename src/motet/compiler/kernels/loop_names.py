"""The names of a kernel's dimensions and values, in schedules that users write.

    a product of 512x512x512        i, j (parallel), k (reduction);  operands A, B, result C
    softmax over 64x1000            i (rows) and j in each of its stages

    a convolution, NHWC with RSCF   b, h, w, f (parallel), r, s, c (reduction), whatever the layouts are

The stage with the most work has the names `i`, `j`, `k`, …, parallel dimensions first. A dimension of another stage
has the name of the one through which both access a value, else the next free name. Arguments, then results, are `A`,
`B`, `C`, …; temporaries `T0`, `T1`, …; stages `stage0`, `stage1`, ….

Names depend on the structure of a kernel alone, so that a schedule is valid for equal kernels of all programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, product
from math import prod
from string import ascii_lowercase, ascii_uppercase

from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.windows import is_windowed

_DIMENSIONS = ascii_lowercase[8:] + ascii_lowercase[:8]  # from i on


@dataclass(frozen=True)
class LoopNames:
    """`dims[s][d]` is the name of dimension `d` of stage `s`; `values[v]` is the name of value `v`."""

    dims: tuple[tuple[str, ...], ...]
    values: tuple[str, ...]


def loop_names(kernel: Kernel) -> LoopNames:
    """The names of `kernel`'s dimensions and values."""
    taken: set[str] = set()
    free = (name for name in _letters(_DIMENSIONS) if name not in taken)
    dims: dict[int, dict[int, str]] = {}
    main = main_stage(kernel)
    if main is not None:
        dims[main] = _names_of_main(kernel.stages[main], free)
        taken.update(dims[main].values())
    for s in sorted(range(len(kernel.stages)), key=lambda s: (abs(s - (main or 0)), s)):
        if s not in dims:
            shared = _shared(kernel, s, dims)
            dims[s] = {d: shared[d] if d in shared else next(free) for d in range(len(kernel.stages[s].sizes))}
    named = tuple(tuple(dims[s][d] for d in range(len(stage.sizes))) for s, stage in enumerate(kernel.stages))
    return LoopNames(named, _value_names(kernel))


def main_stage(kernel: Kernel) -> int | None:
    """The number of the stage with the most work; None for a kernel without stages."""
    return max(range(len(kernel.stages)), key=lambda s: _work(kernel.stages[s]), default=None)


def stage_name(stage: int) -> str:
    """The name of stage number `stage`."""
    return f"stage{stage}"


def _names_of_main(stage: Stage, free: Iterator[str]) -> dict[int, str]:
    if (found := _convolution_names(stage)) is not None:
        return found
    parallel_first = sorted(range(len(stage.sizes)), key=lambda d: stage.iterators[d] == "reduction")
    return {d: next(free) for d in parallel_first}


def _convolution_names(stage: Stage) -> dict[int, str] | None:
    """The names of a convolution's dimensions, by their roles; None for another stage, or for several dimensions of one
    role (several batches or channels)."""
    images = [access for access in stage.inputs if is_windowed(access)]
    if len(images) != 1 or len(stage.inputs) != 2 or len(stage.outputs) != 1:
        return None
    image, filters = images[0], next(access for access in stage.inputs if access is not images[0])
    windows = [entry.dims for entry in image.map if len(entry.dims) > 1]
    pairs = [sorted(stage.iterators[d] for d in dims) == ["parallel", "reduction"] for dims in windows]
    if len(windows) > 3 or not all(pairs):
        return None
    names: dict[int, str] = {}
    for dims, out, tap in zip(windows, "dhw"[-len(windows):], "trs"[-len(windows):], strict=True):
        names |= {d: out if stage.iterators[d] == "parallel" else tap for d in dims}
    for d in range(len(stage.sizes)):
        if d not in names:
            names[d] = _ROLES.get((d in image.dims, d in filters.dims, stage.iterators[d]), "")
    if "c" not in names.values():
        names = {d: "c" if name == "g" else name for d, name in names.items()}
    distinct = len(set(names.values())) == len(names) and "" not in names.values()
    return names if distinct else None


# By whether the image and the filters depend on a dimension, and its kind.
_ROLES = {
    (True, False, "parallel"): "b", (False, True, "parallel"): "f", (True, True, "parallel"): "g",
    (True, True, "reduction"): "c",
}


def _work(stage: Stage) -> float:
    """The iterations of `stage`, an unknown extent counted as 64."""
    return prod(size if isinstance(size, int) else 64 for size in stage.sizes) * (2 if stage.reductions else 1)


def _shared(kernel: Kernel, s: int, dims: dict[int, dict[int, str]]) -> dict[int, str]:
    """The names that dimensions of stage `s` share with stages that have names."""
    stage = kernel.stages[s]
    found: dict[int, str] = {}
    for other, names in dims.items():
        there = kernel.stages[other]
        for mine, theirs in product(_accesses(stage), _accesses(there)):
            if mine.value != theirs.value:
                continue
            for a, b in zip(mine.map, theirs.map, strict=True):
                here, away = stage.along(a), there.along(b)
                if here is None or away is None or stage.sizes[here] != there.sizes[away]:
                    continue
                if here not in found and names[away] not in found.values():
                    found[here] = names[away]
    return found


def _accesses(stage: Stage) -> Iterator[Access]:
    return chain(stage.inputs, stage.outputs)


def _value_names(kernel: Kernel) -> tuple[str, ...]:
    letters = _letters(ascii_uppercase)
    temporaries = (f"T{number}" for number in range(len(kernel.values)))
    return tuple(next(temporaries if value.role == "temporary" else letters) for value in kernel.values)


def _letters(alphabet: str) -> Iterator[str]:
    """The letters, then letters with numbers."""
    yield from alphabet
    number = 1
    while True:
        yield from (f"{letter}{number}" for letter in alphabet)
        number += 1
