"""Windows as Triton programs: a program reads all that the windows of its points hold once, into registers, and goes
over the filters, each of which is a few numbers that all points share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from motet.artifact.expressions import apply
from motet.compiler.codegen.gpu.accesses import source_of
from motet.compiler.codegen.gpu.conv.windows import UNROLLED, WARPS, RowWindows, WindowsLaunch, WindowsPlan, WindowTile
from motet.compiler.codegen.gpu.tasks import ceiling, total
from motet.compiler.codegen.triton.rows.reductions import combine, narrowed
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.scalars import constant
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.kernel import Access
from motet.compiler.kernels.strides import StridedAccess


def emit(plan: WindowsPlan) -> tuple[Form, ...]:
    """Raises `UnsupportedOnGpu` for operations without code."""
    return tuple(_form(plan.found, tile) for tile in plan.tiles)


def _form(launch: WindowsLaunch, tile: WindowTile) -> Form:
    found, part, block, share = launch.windows, launch.launch, tile.points, tile.share
    points, filters = total(found.points), total(found.filters)
    w = Writer(found.rows.kernel, part.buffers, (block,))
    p = w.program()
    shares = f"tl.cdiv({w.extent(filters)}, {share})" if filters.known is None else str(ceiling(filters, share))
    point = w.define("o", f"({p} // {shares}) * {block} + {w.range(0)}")
    first = w.define("f", f"({p} % {shares}) * {share}")
    if points.known is None or points.factor % block:
        w.masks[0] = w.define("m", f"{point} < {w.extent(points)}")
    at = w.decompose(Coordinate(point, frozenset({0})), found.points)
    emitter = _WindowsEmitter(found, launch.stored, w, at)
    emitter.read_images()
    last = f"tl.minimum({first} + {share}, {w.extent(filters)})"
    w.line(f"for f in tl.range({first}, {last}, loop_unroll_factor={UNROLLED}):")
    w.level += 1
    at |= w.decompose(Coordinate("f"), found.filters)
    emitter.filter()
    return Form(w.module(part.symbol, part.about), apply("*", ceiling(points, block), ceiling(filters, share)), WARPS)


@dataclass
class _WindowsEmitter:
    found: RowWindows
    stored: dict[int, StridedAccess]
    w: Writer
    at: dict[int, Coordinate]  # by loop of the rows

    def _points(self, s: int, tap: Sequence[int] = ()) -> dict[int, Coordinate]:
        """The coordinates of a stage's dimensions, at one point of the window."""
        rows_of = self.found.rows
        first = len(rows_of.outer)
        result: dict[int, Coordinate] = {}
        for d, number in enumerate(rows_of.dims[s]):
            if number is not None and number >= first and tap:
                result[d] = Coordinate(str(tap[number - first]))
            elif number is not None and number in self.at:
                result[d] = self.at[number]
        return result

    def _taps(self) -> list[tuple[int, ...]]:
        return list(product(*(range(size.factor) for size in self.found.rows.inner)))

    def read_images(self) -> None:
        """Load all that the windows contain, for use by every filter."""
        for s, image in self.found.images.items():
            source = source_of(self.found.rows.kernel, image, self.found.rows.stages[s].sizes)
            for tap in self._taps():
                self.w.read(source, self._points(s, tap))

    def filter(self) -> None:
        """Compute the results of one filter."""
        made: dict[int, str] = {}
        before = dict(self.w.remembered)
        for s, stage in enumerate(self.found.rows.stages):
            values = [self._sum(s)] if stage.reductions else self._evaluate(s, made)
            for access, value in zip(stage.outputs, values, strict=True):
                made[access.value] = value
                if access.value in self.stored:
                    self.w.write(self.found.rows.place(access, s), self._points(s), value)
        self.w.remembered = before

    def _dtypes(self, s: int) -> list[str]:
        stage = self.found.rows.stages[s]
        return [self.found.rows.kernel.values[access.value].dtype for access in (*stage.inputs, *stage.outputs)]

    def _initial(self, s: int) -> list[str | None]:
        kernel, stage = self.found.rows.kernel, self.found.rows.stages[s]
        result: list[str | None] = []
        for access, init in zip(stage.outputs, stage.inits, strict=True):
            if isinstance(init, Access):
                result.append(self.w.read(source_of(kernel, init, stage.sizes), self._points(s)))
            else:
                result.append(None if init is None else constant(init, kernel.values[access.value].dtype))
        return result

    def _sum(self, s: int) -> str:
        stage, w = self.found.rows.stages[s], self.w
        (each,) = self.found.rows.reduces[s]
        (running,) = self._initial(s)
        first = len(stage.inputs) + 1
        for tap in self._taps():
            points = self._points(s, tap)
            operands = [w.read(source_of(w.kernel, access, stage.sizes), points) for access in stage.inputs]
            names = w.body(stage.body, [*operands, None], self._dtypes(s), points, frozenset({each.last - first}))
            term = names[each.term]
            running = w.define("a", combine(each, running, term) if running is not None else term)
        return w.define("a", narrowed(each, str(running)))

    def _evaluate(self, s: int, made: dict[int, str]) -> list[str]:
        stage, w = self.found.rows.stages[s], self.w
        operands = [
            made[access.value] if access.value in made
            else w.read(source_of(w.kernel, access, stage.sizes), self._points(s))
            for access in stage.inputs
        ]
        names = w.body(stage.body, [*operands, *self._initial(s)], self._dtypes(s), self._points(s))
        return [names[k] for k in stage.yields]
