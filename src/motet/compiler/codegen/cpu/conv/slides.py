"""Windows along axes of which some have dynamic extents: those of known extents have numbers as expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from motet.artifact.expressions import apply
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.kernels.windows import Window


@dataclass(frozen=True)
class Slide:
    """A window: `size` results read `image` elements, `step` apart in memory. In `window` itself dynamic extents are
    guesses."""

    window: Window
    size: Expr
    image: Expr
    step: Expr

    @staticmethod
    def of(window: Window) -> Slide:
        """A window of known extents."""
        return Slide(window, window.size, window.image, window.step)

    @property
    def reach(self) -> Expr:
        """The number of image positions that all results read."""
        last = apply("*", apply("-", self.size, 1), self.window.stride)
        return apply("max", apply("+", last, self.window.span(1)), 0)


def number(f: TileFrame, expression: Expr) -> Index:
    """The value of an expression over the symbols of the kernel of `f`."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return f.symbol(expression)
    operations: dict[str, Callable[[Index, Index], Index]] = {
        "+": f.iadd, "-": f.isub, "*": f.imul, "max": f.imax, "min": f.imin, "//": f.idiv,
        "ceildiv": lambda a, b: f.idiv(f.iadd(a, f.isub(b, 1)), b),
    }
    operator, left, right = expression
    return operations[str(operator)](number(f, left), number(f, right))


def known_part(sizes: Iterable[Expr]) -> int:
    """The product of those of `sizes` that are numbers."""
    return math.prod(size for size in sizes if isinstance(size, int))
