"""How much there is to do: counts of tasks and lines as expressions over symbols, bytes where extents are guessed."""

from __future__ import annotations

from motet.artifact.schema import Expr
from motet.compiler.codegen.kernel import Kernel, item_bytes

GUESS = 256  # a dynamic extent, where work is divided


def ceildiv(value: Expr, by: int) -> Expr:
    if by == 1:
        return value
    return -(-value // by) if isinstance(value, int) else ["ceildiv", value, by]


def multiply(a: Expr, b: Expr) -> Expr:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 1 or b == 1:
        return b if a == 1 else a
    return ["*", a, b]


def bytes_of(kernel: Kernel, index: int) -> int:
    """Bytes of a value of a kernel; a dynamic extent counts as `GUESS`."""
    value = kernel.values[index]
    count = item_bytes(value.dtype)
    for size in value.shape:
        count *= size if isinstance(size, int) else GUESS
    return count
