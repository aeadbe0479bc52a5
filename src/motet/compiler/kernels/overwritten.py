"""Removes stages whose results later stages overwrite before any stage reads them.

    v1[i, j] = 0                       (fill)
    v1[i, j] = v0[i, j]         →      v1[i, j] = v0[i, j]
    v1[i, j + 3] = v0[i, j]            v1[i, j + 3] = v0[i, j]

The later stages write disjoint boxes that together are the whole value.
"""

from __future__ import annotations

import math
from dataclasses import replace

from motet.compiler.kernels.kernel import Access, Kernel, Stage

Box = tuple[tuple[int, int], ...]  # the first and the last element along each axis


def without_overwritten(kernel: Kernel) -> Kernel:
    kept = [stage for number, stage in enumerate(kernel.stages) if not _is_overwritten(kernel, number)]
    return kernel if len(kept) == len(kernel.stages) else replace(kernel, stages=tuple(kept))


def _is_overwritten(kernel: Kernel, number: int) -> bool:
    stage = kernel.stages[number]
    if len(stage.outputs) != 1 or any(scalar.check for scalar in stage.body):
        return False
    value = stage.outputs[0].value
    shape = kernel.values[value].shape
    if not all(isinstance(size, int) for size in shape):
        return False
    missing, boxes = math.prod(size for size in shape if isinstance(size, int)), list[Box]()
    for later in kernel.stages[number + 1 :]:
        if _reads(later, value):
            return False
        for output in later.outputs:
            if output.value != value:
                continue
            box = _box(later, output)
            if box is None or any(_meet(box, other) for other in boxes):
                return False
            boxes.append(box)
            missing -= math.prod(last - first + 1 for first, last in box)
        if not missing:
            return True
    return False


def _reads(stage: Stage, value: int) -> bool:
    read = [*stage.inputs, *(init for init in stage.inits if isinstance(init, Access))]
    return any(access.value == value for access in read)


def _box(stage: Stage, output: Access) -> Box | None:
    """The elements that `output` writes, if they are a box of neighbouring ones."""
    found: list[tuple[int, int]] = []
    seen: set[int] = set()
    for entry in output.map:
        if entry.is_constant:
            found.append((entry.constant, entry.constant))
            continue
        (dim, coefficient), *more = entry.terms
        size = stage.sizes[dim]
        if more or coefficient != 1 or dim in seen or not isinstance(size, int):
            return None
        seen.add(dim)
        found.append((entry.constant, entry.constant + size - 1))
    return tuple(found)


def _meet(a: Box, b: Box) -> bool:
    """Whether two boxes have an element in common."""
    return all(x[0] <= y[1] and y[0] <= x[1] for x, y in zip(a, b, strict=True))
