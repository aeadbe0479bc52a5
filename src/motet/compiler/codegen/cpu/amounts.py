"""How much there is to do: bytes, where extents are guessed."""

from __future__ import annotations

from motet.compiler.codegen.kernel import Kernel, item_bytes

GUESS = 256  # a dynamic extent, where work is divided


def bytes_of(kernel: Kernel, index: int) -> int:
    """Bytes of a value of a kernel; a dynamic extent counts as `GUESS`."""
    value = kernel.values[index]
    count = item_bytes(value.dtype)
    for size in value.shape:
        count *= size if isinstance(size, int) else GUESS
    return count
