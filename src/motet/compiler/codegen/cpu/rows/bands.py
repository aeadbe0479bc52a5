"""Writes the points of nests with inputs that are contiguous along a parallel dimension other than the vectors'.

A band is a range of that dimension, a few tiles wide, so that whole cache lines are used. Tiles are transposed in
registers: 128-bit pieces of an input's rows are put into vectors so that each 128-bit lane holds a square, whose
elements are exchanged within the lane. For 8 rows of f32 and vectors of 8:

    rows 0 and 4:  a0 a1 a2 a3 | e0 e1 e2 e3        a0 b0 c0 d0 | e0 f0 g0 h0
    rows 1 and 5:  b0 b1 b2 b3 | f0 f1 f2 f3   →    a1 b1 c1 d1 | e1 f1 g1 h1
    rows 2 and 6:  …                                …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.addressing import Lanes, load_stored, store_values
from motet.compiler.codegen.cpu.emit.builder import I32, I64, Builder, Index, type_suffix
from motet.compiler.codegen.cpu.emit.compute_types import from_storage
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.rows.nest_writer import NestWriter
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.strides import ONE, ZERO, StridedAccess

_FEW = 2  # points beyond whole tiles that are written one by one
_ALONG = 64  # tiles side by side that write whole cache lines before the next rows of the result
_PIECE = 16  # bytes of a piece


@dataclass
class BandWriter:
    """Writes bands of dimension `other`, along which skewed inputs are contiguous; `writer.along` is the dimension of
    the vectors."""

    writer: NestWriter
    other: int

    def __post_init__(self) -> None:
        nest = self.writer.nest
        self.f, self.lanes, self.along = self.writer.f, self.writer.lanes, self.writer.along or 0
        self.length = self.f.extent(nest.sizes[self.along])
        self.skewed = [k for k, o in enumerate(nest.inputs) if o.strides[self.along] not in (ZERO, ONE)]
        pieces = [_PIECE // item_bytes(nest.inputs[k].dtype) for k in self.skewed]
        self.steps = min(self.lanes, max(pieces))  # of `other` that are transposed together

    def write(self, at: Sequence[Index], first: Index, end: Index) -> None:
        """Write all points of the vector dimension for `other` in `[first, end)`, with whole tiles transposed."""
        f, lanes = self.f, self.lanes
        if self.writer.streaming or not self._repeatable():
            self._with_edges(at, first, end)
            return
        # The last band may be narrow: it begins early enough for one tile.
        first = f.imin(first, f.imax(f.isub(end, lanes), 0))
        fits = f.and_(
            f.icmp_signed(">=", f.index(f.isub(end, first)), f.index(lanes)),
            f.icmp_signed(">=", f.index(self.length), f.index(lanes)),
        )
        f.branches(
            fits,
            lambda: self._overlapping(at, first, end),
            lambda: self._single_points(at, first, end, 0),
        )

    def _repeatable(self) -> bool:
        """Whether points may be written twice: no input can share memory with a result, since all are transposed."""
        nest = self.writer.nest
        return all(operand.strides[self.along] != ONE for operand in nest.inputs) and not any(
            isinstance(init, StridedAccess) for init in nest.inits
        )

    def _overlapping(self, at: Sequence[Index], first: Index, end: Index) -> None:
        """A band of at least one tile; the last tiles may overlap those before."""
        f, lanes = self.f, self.lanes
        tiled, tiles_end = self._tiled(0, self.length), self._tiled(first, end)

        last, end_of_rows = f.isub(tiled, lanes), f.isub(tiles_end, lanes)

        def block(i: Index, _: object) -> None:
            stop = f.imin(f.iadd(i, _ALONG * lanes), tiled)

            def step(j: Index, _: object) -> None:
                row = f.imin(j, end_of_rows)
                f.loop(i, stop, lanes, lambda k, _: self._tile(at, f.imin(k, last), row))

            f.loop(first, tiles_end, lanes, step)

        f.loop(0, tiled, _ALONG * lanes, block)
        self._single_points(at, first, tiles_end, tiled)
        self._single_points(at, tiles_end, end, 0)

    def _tiled(self, first: Index, end: Index) -> Index:
        """The end of the part of `[first, end)` that is written in tiles: all but a few points, which are faster one by
        one than in another tile."""
        f = self.f
        rest = f.irem(f.isub(end, first), self.lanes)
        whole = f.isub(end, rest)
        if isinstance(rest, int):
            return whole if rest <= _FEW else end
        return f.select(f.icmp_signed("<=", rest, f.index(_FEW)), f.index(whole), f.index(end))

    def _single_points(self, at: Sequence[Index], first: Index, end: Index, begin: Index) -> None:
        """Write the points of the vector dimension from `begin` on for `other` in `[first, end)`, not transposed."""

        def edge(j: Index, _: object) -> None:
            point = list(at)
            point[self.other] = j
            self.writer.row(point, begin, self.length)

        self.f.loop(first, end, 1, edge)

    def _with_edges(self, at: Sequence[Index], first: Index, end: Index) -> None:
        f, lanes = self.f, self.lanes
        whole = f.isub(self.length, f.irem(self.length, lanes))
        tiles_end = f.isub(end, f.irem(f.isub(end, first), lanes))

        def column(i: Index, _: object) -> None:
            f.loop(first, tiles_end, lanes, lambda j, _: self._tile(at, i, j))

        f.loop(0, whole, lanes, column)
        self._single_points(at, first, tiles_end, whole)
        self._single_points(at, tiles_end, end, 0)

    def _tile(self, at: Sequence[Index], start: Index, j: Index) -> None:
        """Write the square of points from `start` along the vector dimension and from `j` along `other`."""
        f, writer = self.f, self.writer
        inputs = writer.nest.inputs
        for begin in range(0, self.lanes, self.steps):
            point = list(at)
            point[self.along], point[self.other] = start, f.iadd(j, begin)
            columns = {k: self._transposed(inputs[k], point) for k in self.skewed}
            for step in range(self.steps):
                here = list(point)
                here[self.other] = f.iadd(j, begin + step)
                known = {k: from_storage(f, vectors[step], inputs[k].dtype) for k, vectors in columns.items()}
                lanes = Lanes(self.along, self.lanes)
                values = writer.once(here, lanes, known, writer.initial(here, lanes), False)
                for value, operand in zip(values, writer.nest.outputs, strict=True):
                    store_values(f, value, operand, here, lanes, writer.streaming)

    def _transposed(self, operand: StridedAccess, point: Sequence[Index]) -> list[Value]:
        """The operand as stored: one vector along the vector dimension for each of the steps of `other`."""
        width = min(self.steps, _PIECE // item_bytes(operand.dtype))
        result: list[Value] = []
        for begin in range(0, self.steps, width):
            pieces: list[Value] = []
            for lane in range(self.lanes):
                here = list(point)
                here[self.along] = self.f.iadd(here[self.along], lane)
                here[self.other] = self.f.iadd(here[self.other], begin)
                pieces.append(load_stored(self.f, operand, here, Lanes(self.other, width)))
            result += transposed_pieces(self.f, pieces, width)
        return result


def transposed_pieces(f: Builder, pieces: Sequence[Value], width: int) -> list[Value]:
    """The transpose of rows of `width` elements each, both numbers powers of two, `width` at most that of the rows: as
    many vectors as rows have elements."""
    if width == 1:
        return [joined(f, pieces)]
    return transposed_squares(f, [joined(f, pieces[number::width]) for number in range(width)])


def transposed_squares(f: Builder, vectors: Sequence[Value]) -> list[Value]:
    """Vectors of n · k elements, n of them, a power of two: as `vectors[i]` with element j, of the k-th group of n,
    exchanged with element i of `vectors[j]`."""
    if len(vectors) == 1:
        return list(vectors)
    result, width, lanes = list(vectors), len(vectors), vectors[0].type.count
    half = width // 2
    kind = ir.VectorType(I32, lanes)
    masks: list[ir.Constant] = []
    for begin in (0, half):  # the elements of both in turn, from the first half or the second of each square
        order = [
            square + begin + place // 2 + lanes * (place % 2)
            for square in range(0, lanes, width) for place in range(width)
        ]
        masks.append(ir.Constant(kind, order))
    for _ in range(width.bit_length() - 1):
        pairs = [(result[i], result[i + half]) for i in range(half)]
        result = [f.shuffle_vector(a, b, mask) for a, b in pairs for mask in masks]
    return result


def joined(f: Builder, parts: Sequence[Value]) -> Value:
    """Scalars, or vectors of one length, as one vector; their number is a power of two."""
    if len(parts) == 1:
        return parts[0]
    if not isinstance(parts[0].type, ir.VectorType):
        result: Value = ir.Constant(ir.VectorType(parts[0].type, len(parts)), ir.Undefined)
        for lane, part in enumerate(parts):
            result = f.insert_element(result, part, ir.Constant(I32, lane))
        return result
    width = parts[0].type.count
    kind = ir.VectorType(parts[0].type.element, width * len(parts))
    result = ir.Constant(kind, ir.Undefined)
    name = f"llvm.vector.insert.{type_suffix(kind)}.{type_suffix(parts[0].type)}"
    for number, part in enumerate(parts):  # one by one: x86 inserts 128 bits from memory
        result = f.intrinsic(name, kind, [result, part, ir.Constant(I64, number * width)])
    return result
