"""Memory accesses of launches: strides, tensors read at computed indices, and the width of offsets."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.kernels.kernel import Access, Kernel, Size, Stage, known_product
from motet.compiler.kernels.strides import StridedAccess, bounded_place_of

_WIDE = 1 << 31  # elements from which on offsets take 64 bits


class UnsupportedOnGpu(Exception):
    """A kernel, operation or dtype without code; the text names it."""


def source_of(kernel: Kernel, access: Access, sizes: Sequence[Size]) -> StridedAccess:
    """`access` as a strided access in a nest of `sizes`. Raises `UnsupportedOnGpu` for a diagonal of dynamic
    extents."""
    place = bounded_place_of(kernel, access, sizes)
    if place is None:
        raise UnsupportedOnGpu("a diagonal of dynamic extents")
    return place


def gathered(stage: Stage) -> dict[int, int]:
    """The inputs of `stage` that are whole tensors, read at computed indices, with their values."""
    tables = {scalar.operands[0] for scalar in stage.body if scalar.op == "tensor.extract"}
    return {position: stage.inputs[position].value for position in tables}


def is_wide(kernel: Kernel) -> bool:
    """Whether offsets may need 64 bits: some tensor is too large for 32, or of unknown size."""
    counts = [known_product(value.shape) for value in kernel.values]
    return any(count is None or count >= _WIDE for count in counts)
