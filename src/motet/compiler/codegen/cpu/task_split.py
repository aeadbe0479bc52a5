"""Divides the rows of a phase among tasks: up to 64 blocks of rows, each long enough to be worth its dispatch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.artifact.expressions import apply, ceildiv
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.addressing import Frame, StridedNest, delinearise
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.strides import Extent

_TASKS = 64
_GRAIN = 20_000.0  # nanoseconds that a task should last at least
_STRIP = 4096  # elements of a long innermost dimension that are treated as a separate row


def nanoseconds(nest: StridedNest, lanes: int) -> float:
    """The estimated time of one point of `nest` in nanoseconds."""
    heavy = sum(8 for scalar in nest.body if scalar.op.startswith("math."))
    return (1 + len(nest.body) + heavy + len(nest.operands)) * 0.6 / lanes


@dataclass(frozen=True)
class Division:
    """The tasks of a phase. Rows are the points of `sizes` times the strips of `length` elements into which `last` is
    divided."""

    sizes: tuple[Extent, ...]
    last: Extent | None
    strip: int | None
    grain: int

    @staticmethod
    def of(
        sizes: Sequence[Extent], last: Extent | None, cost: float, cut: bool, multiple: int = 1
    ) -> Division:
        """`cost` is the time of one element of a row (or of one row, without `last`) in nanoseconds. `cut` allows
        splitting rows, into multiples of `multiple` elements."""
        strip = None
        length = max(4 * multiple, min(_STRIP, int(4 * _GRAIN / max(cost, 1e-3))) // multiple * multiple)
        if cut and last is not None and (last.known is None or last.known > 2 * length):
            strip = length
        row = cost * (strip or (guess(last) if last is not None else 1))
        return Division(tuple(sizes), last, strip, max(1, int(_GRAIN / max(row, 1.0))))

    @property
    def tasks(self) -> Expr:
        return apply("min", _TASKS, ceildiv(self._rows(), self.grain))

    def _rows(self) -> Expr:
        total = Extent(1)
        for size in self.sizes:
            total = total * size
        if self.strip is None or self.last is None:
            return total.expression
        return apply("*", total.expression, ceildiv(self.last.expression, self.strip))

    def loop(self, f: Frame, row: Callable[[list[Index], Index, Index], None]) -> None:
        """Emit the rows of tasks `[begin, end)`: `row(indices of sizes, first, end)`, where `[first, end)` is the range
        of the innermost dimension."""
        whole: Index = 0 if self.last is None else f.extent(self.last)
        strips: Index = 1 if self.strip is None else f.idiv(f.iadd(whole, self.strip - 1), self.strip)
        rows: Index = strips
        for size in self.sizes:
            rows = f.imul(rows, f.extent(size))
        tasks = f.imin(_TASKS, f.idiv(f.iadd(rows, self.grain - 1), self.grain))
        if not isinstance(tasks, int):
            tasks = f.select(f.icmp_signed("<", tasks, f.index(1)), f.index(1), tasks)
        block = f.idiv(f.iadd(rows, f.isub(tasks, 1)), tasks) if tasks != 0 else 0
        begin = f.imul(f.arguments[2], block)
        end = f.imin(f.imul(f.arguments[3], block), rows)

        def body(i: Index, _: object) -> None:
            if self.strip is None:
                row(delinearise(f, i, self.sizes), 0, whole)
                return
            strip = f.irem(i, strips)
            first = f.imul(strip, self.strip)
            row(
                delinearise(f, f.idiv(i, strips), self.sizes), first, f.imin(f.iadd(first, self.strip), whole)
            )

        f.loop(begin, end, 1, body)
