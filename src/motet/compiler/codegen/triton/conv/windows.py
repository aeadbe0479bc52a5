"""Convolutions with few products per point, such as a model's first layer, together with their siblings.

    y[n, f, h, w] = sum over c, i, j of x[n, c, h + i, w + j] * k[f, c, i, j],  and another one added

They are limited by writing the result; tensor cores would be mostly idle. A program computes a row of points: it loads
all that their windows contain once, into registers, and iterates over the filters, which are a few numbers that all
points share. Several convolutions of the same points, and their epilogues, are computed for one filter before the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from motet.artifact.expressions import apply
from motet.compiler.codegen.gpu.accesses import source_of
from motet.compiler.codegen.gpu.tasks import Loop, ceiling, total
from motet.compiler.codegen.triton.rows.reductions import combine, narrowed
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.scalars import constant
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.rows import Rows, match_rows
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess
from motet.compiler.kernels.windows import is_windowed, read_windows
from motet.compiler.targets.gpu import GpuTarget

_READS = 18  # elements of the image kept in registers per point
_FEW_READS = 9
_WARPS = 4
_WAVES = 4  # minimum number of programs per SM
_UNROLLED = 4  # filters unrolled


@dataclass(frozen=True)
class RowWindows:
    """`rows` whose reductions are convolutions; `points` are the loops that images are read along, `filters` those
    along filters. `images` are what the windows of stages are of."""

    rows: Rows
    points: tuple[Loop, ...]
    filters: tuple[Loop, ...]
    images: Mapping[int, Access]
    reads: int


def match(kernel: Kernel, stages: Sequence[Stage]) -> RowWindows | None:
    """Read `stages` as sibling convolutions over the same points and filters, with element-wise stages on their
    results."""
    reducing = {s: read_windows(stage) for s, stage in enumerate(stages) if stage.reductions}
    opened = {s: each for s, each in reducing.items() if each is not None and is_windowed(each.image)}
    if not reducing or len(opened) != len(reducing):
        return None
    found = match_rows(kernel, stages)
    if found is None or found.length.known is None:
        return None
    if any(wide and not reduces for wide, reduces in zip(found.wide, found.reduces, strict=True)):
        return None
    images = {s: each.image for s, each in opened.items()}
    along_images = set[int]().union(*(_outer(found, s, image) for s, image in images.items()))
    along_filters = set[int]().union(*(_outer(found, s, each.filters) for s, each in opened.items()))
    outer = range(len(found.outer))
    if along_images & along_filters or any(number not in along_images | along_filters for number in outer):
        return None
    reads = len(set(images.values())) * found.length.factor
    if reads > _READS or not along_filters:
        return None
    last = [found.place(access, s) for s, stage in enumerate(stages) for access in stage.outputs][-1]
    dims = found.dims[-1]
    if not any(last.strides[d] == ONE and number in along_images for d, number in enumerate(dims)):
        return None
    points, filters = ([(found.outer[n], n) for n in outer if n in part] for part in (along_images, along_filters))

    def distance(loop: Loop) -> tuple[int, int]:
        stride = next((last.strides[d] for d, number in enumerate(dims) if number == loop[1]), ZERO)
        return len(stride.symbols), stride.factor

    ordered = tuple(sorted(points, key=distance, reverse=True))
    return RowWindows(found, ordered, tuple(sorted(filters, key=distance, reverse=True)), images, reads)


def _outer(found: Rows, s: int, access: Access) -> set[int]:
    """The outer loops that stage `s` reads `access` along."""
    numbers = {found.dims[s][d] for d in access.dims}
    return {number for number in numbers if number is not None and number < len(found.outer)}


# -- emission --------------------------------------------------------------------------------------


def emit(
    found: RowWindows, stored: dict[
        int, StridedAccess
    ], buffers: tuple[int, ...], symbol: str, about: str, target: GpuTarget
) -> tuple[Form, ...]:
    """Forms of sibling convolutions. Raises `Unsupported` for operations without code."""
    each = 8 if found.reads <= _FEW_READS else 4
    return tuple(_form(found, stored, buffers, symbol, about, target, count) for count in (each, each // 2))


def _form(
    found: RowWindows, stored: dict[
        int, StridedAccess
    ], buffers: tuple[int, ...], symbol: str, about: str, target: GpuTarget,
    each: int,
) -> Form:
    block = 32 * _WARPS * each
    points, filters = total(found.points), total(found.filters)
    share = _share(points, filters, block, target)
    w = Writer(found.rows.kernel, buffers, (block,))
    p = w.program()
    shares = f"tl.cdiv({w.extent(filters)}, {share})" if filters.known is None else str(ceiling(filters, share))
    point = w.define("o", f"({p} // {shares}) * {block} + {w.range(0)}")
    first = w.define("f", f"({p} % {shares}) * {share}")
    if points.known is None or points.factor % block:
        w.masks[0] = w.define("m", f"{point} < {w.extent(points)}")
    at = w.decompose(Coordinate(point, frozenset({0})), found.points)
    emitter = _WindowsEmitter(found, stored, w, at)
    emitter.read_images()
    last = f"tl.minimum({first} + {share}, {w.extent(filters)})"
    w.line(f"for f in tl.range({first}, {last}, loop_unroll_factor={_UNROLLED}):")
    w.level += 1
    at |= w.decompose(Coordinate("f"), found.filters)
    emitter.filter()
    return Form(w.module(symbol, about), apply("*", ceiling(points, block), ceiling(filters, share)), _WARPS)


def _share(points: Extent, filters: Extent, block: int, target: GpuTarget) -> int:
    """The number of filters per program: all, unless SMs would be idle."""
    count = filters.known or 64
    blocks = -(-(points.known or 1 << 20) // block)
    while count > _UNROLLED and blocks * -(-(filters.known or 64) // count) < _WAVES * target.processors:
        count = -(-count // 2)
    return count


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
