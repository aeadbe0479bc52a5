"""What launches on GPUs read: places of accesses, tables that are read at computed indices, the width of offsets."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.kernels.kernel import Access, Kernel, Size, Stage, Value
from motet.compiler.kernels.strides import StridedAccess, bounded_place_of

_WIDE = 1 << 31  # elements from which on offsets take 64 bits


class UnsupportedOnGpu(Exception):
    """There is no code for this; the text names what."""


def source_of(kernel: Kernel, access: Access, sizes: Sequence[Size]) -> StridedAccess:
    """`access` in a nest of loops of `sizes`. Raises `UnsupportedOnGpu` for a diagonal of dynamic extents."""
    place = bounded_place_of(kernel, access, sizes)
    if place is None:
        raise UnsupportedOnGpu("a diagonal of dynamic extents")
    return place


def gathered(stage: Stage) -> dict[int, int]:
    """The inputs of `stage` that stand for all of a tensor, with its value."""
    tables = {scalar.operands[0] for scalar in stage.body if scalar.op == "tensor.extract"}
    return {position: stage.inputs[position].value for position in tables}


def is_wide(kernel: Kernel) -> bool:
    """Whether offsets may need 64 bits: some tensor is that large, or of unknown size."""
    return any(_elements(value) is None or (_elements(value) or 0) >= _WIDE for value in kernel.values)


def _elements(value: Value) -> int | None:
    count = 1
    for size in value.shape:
        if not isinstance(size, int):
            return None
        count *= size
    return count
