"""Facts about kernels that records keep, and by which near kernels are found."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from motet.compiler.kernels.kernel import Access, Kernel
from motet.compiler.kernels.loop_names import main_stage


def extents_of(kernel: Kernel) -> list[int]:
    """The extents of the largest stage, unknown ones as 0."""
    sizes: Sequence[int | str] = max((stage.sizes for stage in kernel.stages), key=len, default=())
    return [size if isinstance(size, int) else 0 for size in sizes]


def dtype_of(kernel: Kernel) -> str:
    """The dtype of the first argument."""
    return kernel.values[0].dtype if kernel.values else ""


def form_of(kernel: Kernel) -> str:
    """A name that kernels share if they differ in their extents only."""
    stages = [
        (stage.iterators, [(each.value, len(each.map)) for each in (*stage.inputs, *stage.outputs)],
         [(each.op, each.operands, each.dtype, each.predicate) for each in stage.body], stage.yields)
        for stage in kernel.stages
    ]
    values = [(len(value.shape), value.dtype, value.role, value.order) for value in kernel.values]
    return hashlib.sha256(repr((stages, values)).encode()).hexdigest()[:16]


def core_of(kernel: Kernel) -> tuple[Kernel, tuple[int, ...]] | None:
    """The main stage of `kernel` as the kernel of a program that has nothing else, of arguments and results, with the
    value of `kernel` that each of its values is. None for a kernel without stages."""
    if (main := main_stage(kernel)) is None:
        return None
    stage = kernel.stages[main]
    inits = [init for init in stage.inits if isinstance(init, Access)]
    read = dict.fromkeys(access.value for access in (*stage.inputs, *inits))
    written = dict.fromkeys(access.value for access in stage.outputs)
    taken = tuple(dict.fromkeys([*read, *written]))

    def moved(access: Access) -> Access:
        return replace(access, value=taken.index(access.value))

    core = replace(
        stage, inputs=tuple(map(moved, stage.inputs)), outputs=tuple(map(moved, stage.outputs)),
        inits=tuple(moved(init) if isinstance(init, Access) else init for init in stage.inits), source="", written="",
    )
    values = tuple(replace(kernel.values[v], role="result" if v in written else "argument") for v in taken)
    return Kernel(kernel.name, values, (core,), kernel.symbols), taken
