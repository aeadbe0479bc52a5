"""Facts about kernels that records keep, and by which near kernels are found."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.compiler.kernels.kernel import Kernel


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
