"""Attention of few queries to many keys: programs process parts of the keys, then the partial results are combined.

    launch 0, for each part of the keys:   acc, total and high of the part, as in `attention`
    launch 1, for each query:              weight = exp(high - max(high));  result = sum(weight acc) / sum(weight total)

(Dao et al., "Flash-Decoding for long-context inference", 2023.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.artifact.expressions import product
from motet.artifact.schema import Expr
from motet.compiler.codegen.gpu.attention.space import (
    LEAST,
    AttentionSpace,
    AttentionTile,
    multiplies_by_threads,
    space_of,
)
from motet.compiler.codegen.gpu.tasks import ceiling, power_of_two, total
from motet.compiler.codegen.triton.attention.attention import LOG2_E, LOWEST, AttentionLaunch, Emitted, Flash, stored_by
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.scalars import rounded
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.attention.description import Attention
from motet.compiler.kernels.kernel import Size, Value
from motet.compiler.kernels.strides import Extent
from motet.compiler.targets.gpu import GpuTarget

_PROGRAMS_PER_SM = 2  # programs per SM
_GUESS = 256  # keys of a part, if their number is unknown
_TOGETHER = 32  # parts that are combined at a time
_SIDES = (128, 64, 32)  # parts that are combined at a time


@dataclass(frozen=True)
class KeyParts:
    """Parts of `keys` keys of the first piece; `count` parts for each batch."""

    keys: int
    count: Expr


def parts_of(space: AttentionSpace, target: GpuTarget) -> KeyParts | None:
    """The parts that keep all SMs busy; None if unsplit attention does."""
    batches, rows, keys = total(space.batch), space.row_count, Extent.of(space.attention.pieces[0].size)
    if rows.known is None or rows.factor > 4 * LEAST or not (space.merged or rows.factor <= LEAST):
        return None
    if (batches.known or 1) >= target.processors:
        return None
    if keys.known is None:
        return KeyParts(_GUESS, ceiling(keys, _GUESS))
    share = -(-keys.factor * (batches.known or 1) // (_PROGRAMS_PER_SM * target.processors))
    length = max(64, power_of_two(share))
    return KeyParts(length, ceiling(keys, length)) if keys.factor >= 2 * length else None


def emit(attention: Attention, parts: KeyParts, symbol: str, about: str, target: GpuTarget) -> Emitted:
    """The two launches. Raises `Unsupported`."""
    space, kernel = space_of(attention), attention.kernel
    first = len(kernel.values)
    memory = [Value((), "f32", "temporary", ()) for _ in range(3)]
    kernel = replace(kernel, values=(*kernel.values, *memory))
    attention = replace(attention, kernel=kernel)
    space = replace(space, attention=attention)
    spaces = tuple(range(first, first + 3))
    buffers = (*kernel.externals, *spaces)
    rows = max(LEAST, power_of_two(space.row_count.known or 1))
    width = max(LEAST, power_of_two(space.columns))
    tiles = _tiles(space, target, rows, parts.keys)
    forms = tuple(_part(_Partial(space, parts, spaces, buffers), tile, symbol, about, target) for tile in tiles)
    together = _Together(space, parts, spaces, rows, width)
    second = f"{symbol}_together"
    launches = (
        AttentionLaunch(kernel, buffers, symbol, forms, about),
        AttentionLaunch(kernel, buffers, second, (together.form(buffers, second, about),), f"{about}, put together"),
    )
    programs = product((total(space.batch).expression, parts.count))
    sizes = tuple(product((4 * points, programs)) for points in (rows * width, rows, rows))
    return Emitted(launches, sizes)


def _tiles(space: AttentionSpace, target: GpuTarget, rows: int, most: int) -> list[AttentionTile]:
    """Tiles of at most `most` keys; on Intel's GPUs those whose kernels spill no or few registers."""
    if target.xpu is None:
        return [AttentionTile(rows, min(side, most), 4, stages) for side in _SIDES for stages in (3, 2)]
    sides = (LEAST,) if multiplies_by_threads(space, target) else (2 * LEAST, LEAST)
    return [AttentionTile(rows, side, 4, 1) for side in sides]


@dataclass(frozen=True)
class _Partial:
    """The launch that attends to parts of the keys; `spaces` are the workspaces for sums, maxima and totals."""

    space: AttentionSpace
    parts: KeyParts
    spaces: tuple[int, ...]
    buffers: tuple[int, ...]


def _part(partial: _Partial, tile: AttentionTile, symbol: str, about: str, target: GpuTarget) -> Form:
    space, parts, spaces = partial.space, partial.parts, partial.spaces
    w = Writer(space.attention.kernel, partial.buffers, (tile.rows, tile.keys))
    flash = Flash(w, space, tile, target)
    program = w.program()
    count = _count(w, space, parts)
    flash.begin_at(w.define("p", f"{program} // ({count})"), "0")
    first, *rest = space.attention.pieces
    number = w.define("n", f"({program} % ({count})).to(tl.int32)")
    begin = w.define("n", f"{number} * {parts.keys}")
    length = w.extent(Extent.of(first.size))
    end = w.define("n", f"tl.minimum({begin} + {parts.keys}, {length})")
    even = length.isdigit() and not int(length) % parts.keys and space.attention.causal is None
    flash.keys_between(first, begin, *((end, end) if even else flash.bounds(begin, end)))
    for piece in rest:  # the last part processes these as well
        start = str(piece.first)
        end = w.define("n", f"tl.where({number} == {count} - 1, {piece.first + _known(piece.size)}, {start})")
        flash.keys_between(piece, start, *flash.bounds(start, end))
    row = f"({program} * {tile.rows} + tl.arange(0, {tile.rows}))"
    column = f"tl.arange(0, {flash.columns})"
    w.line(f"tl.store(v{spaces[0]} + ({row}[:, None] * {flash.columns} + {column}[None, :]), acc)")
    w.line(f"tl.store(v{spaces[1]} + {row}, high)")
    w.line(f"tl.store(v{spaces[2]} + {row}, total)")
    tasks = product((total(space.batch).expression, parts.count))
    return Form(w.module(symbol, about), tasks, tile.warps, tile.stages, f"{tile.label} parts={parts.keys}")


def _known(size: Size) -> int:
    if not isinstance(size, int):
        raise ValueError("a piece of unknown size beside others")
    return size


def _count(w: Writer, space: AttentionSpace, parts: KeyParts) -> str:
    if isinstance(parts.count, int):
        return str(parts.count)
    return f"tl.cdiv({w.extent(Extent.of(space.attention.pieces[0].size))}, {parts.keys})"


@dataclass
class _Together:
    """The program of the second launch, which combines all parts of one query."""

    space: AttentionSpace
    parts: KeyParts
    spaces: tuple[int, ...]
    rows: int
    width: int

    def form(self, buffers: tuple[int, ...], symbol: str, about: str) -> Form:
        space, attention = self.space, self.space.attention
        w = Writer(attention.kernel, buffers, (self.width,))
        known = space.row_count.known or 1
        program = w.program()
        row = w.define("m", f"{program} % {known}")
        batch = w.define("p", f"{program} // {known}")
        count = w.define("n", _count(w, space, self.parts))
        column = w.define("c", w.range(0))
        for line in self._sum(batch, row, count, column, "" if attention.reads else None):
            w.line(line)
        if space.columns != self.width:
            w.masks[0] = w.define("b", f"{column} < {space.columns}")
        at = w.decompose(Coordinate(batch), space.batch) if space.batch else {}
        at |= w.decompose(Coordinate(row), space.rows) if space.rows else {}
        at[attention.column] = Coordinate(column, frozenset({0}))
        dtype = attention.kernel.values[attention.main.outputs[0].value].dtype
        if attention.safe:  # no key was seen: 0 / 1
            w.line("total = tl.where(total == 0, 1.0, total)")
        value = w.define("x", rounded("acc / total", dtype))
        w.finish(attention.epilogue, value, at, stored_by(attention))
        tasks = product((total(space.batch).expression, known))
        return Form(w.module(symbol, about), tasks, 4, 1)

    def _sum(self, batch: str, row: str, count: str, column: str, natural: str | None) -> list[str]:
        """Sum `_TOGETHER` parts at a time, weighted relative to the largest score so far."""
        acc, high, sums = (f"v{space}" for space in self.spaces)
        factor = "" if natural is None else f" * {LOG2_E!r}"
        lowest = LOWEST
        step = power_of_two(min(_TOGETHER, self.parts.count)) if isinstance(self.parts.count, int) else _TOGETHER
        return [
            f"highest = tl.full((), {lowest}, tl.float32)",
            "total = tl.zeros((), tl.float32)",
            f"acc = tl.zeros(({self.width},), tl.float32)",
            f"for j in range(0, {count}, {step}):",
            f"    s = j + tl.arange(0, {step})",
            f"    place = ({batch} * {count} + s) * {self.rows} + {row}",
            f"    high = tl.load({high} + place, mask=s < {count}, other={lowest})",
            "    new = tl.maximum(highest, tl.max(high, 0))",
            f"    weight = tl.exp2((high - new){factor})",
            f"    ratio = tl.exp2((highest - new){factor})",
            f"    part = tl.load({sums} + place, mask=s < {count}, other=0.0)",
            "    total = total * ratio + tl.sum(part * weight, 0)",
            f"    parts = tl.load({acc} + (place[:, None] * {self.width} + {column}[None, :]), "
            f"mask=(s < {count})[:, None], other=0.0)",
            "    acc = acc * ratio + tl.sum(parts * weight[:, None], 0)",
            "    highest = new",
        ]
