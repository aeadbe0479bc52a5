"""The layout of queries, keys, values and results as TMA descriptors.

A tensor is described as a whole, as one matrix of which heads are parts, or head by head. Heads whose size is not a
power of two are moved in pieces: 80 columns as 64 and 16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from motet.compiler.codegen.gpu.accesses import source_of
from motet.compiler.codegen.gpu.attention.space import LEAST, AttentionSpace
from motet.compiler.codegen.gpu.tasks import power_of_two
from motet.compiler.codegen.triton.attention.attention import stored_by
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.attention.description import Attention
from motet.compiler.kernels.kernel import Access, item_bytes
from motet.compiler.kernels.strides import ONE, Extent, StridedAccess

_LEAST_PIECE = 64  # columns that are moved by one copy


@dataclass(frozen=True)
class AttentionOperand:
    """A tensor over its dimensions `outer` and `inner`. A tile has `lines` lines, each split into consecutive `pieces`;
    `whole` means that the tensor is described as one matrix."""

    place: StridedAccess
    outer: int
    inner: int
    lines: int
    pieces: tuple[int, ...]
    whole: bool

    def begins(self) -> list[int]:
        """The first column of each piece."""
        return [sum(self.pieces[:i]) for i in range(len(self.pieces))]

    def start(self, w: Writer, at: Mapping[int, Coordinate]) -> str:
        """The base address of the descriptor, for the batch `at`."""
        place = self.place
        if self.whole:
            return f"v{place.value}"
        fixed = {dim: point for dim, point in at.items() if dim < len(place.strides) and place.strides[dim].factor}
        return f"v{place.value} + ({w.offset(place, fixed).text})"

    def size(self, w: Writer, a: Attention) -> tuple[str, str, str]:
        """The number of lines and columns and the stride between lines of the described matrix."""
        place = self.place
        if self.whole:
            length = place.strides[self.outer].factor
            points = math.prod(size for size in a.kernel.values[place.value].shape if isinstance(size, int))
            return str(points // length), str(length), str(length)
        lines = w.extent(Extent.of(a.sizes[self.outer]))
        lines = lines if lines.isdigit() else f"({lines}).to(tl.int32)"
        return lines, str(a.sizes[self.inner]), w.extent(place.strides[self.outer])

    def origin(self, space: AttentionSpace, at: Mapping[int, Coordinate]) -> tuple[str, str]:
        """The line and column in the described matrix at which the batch `at` begins."""
        if not self.whole:
            return "0", "0"
        line = self.place.strides[self.outer].factor
        offset = divmod(sum(part.factor for part in self.place.offset), line)
        texts: list[str] = []
        for axis in (0, 1):
            steps = [(at[dim].text, divmod(self.place.strides[dim].factor, line)[axis]) for _, dim in space.batch]
            texts.append(" + ".join([*(f"{text} * {step}" for text, step in steps if step), str(offset[axis])]))
        return texts[0], texts[1]


def pieces_of(width: int) -> tuple[int, ...]:
    """The pieces of a head: one power of two, or two if together they have fewer columns."""
    whole = max(_LEAST_PIECE, power_of_two(width))
    first = whole // 2
    second = max(LEAST, power_of_two(width - first))
    return (whole,) if first < _LEAST_PIECE or second >= first else (first, second)


def matrices_of(space: AttentionSpace, keys: int, own: int, whole: bool) -> dict[str, AttentionOperand]:
    """Queries (q), keys (k), values (v) and, if TMA can store it, the result (o). Tiles have `own` queries and `keys`
    keys."""
    a = space.attention
    row, piece = a.row or 0, a.pieces[0]
    depth, columns = pieces_of(space.depth), pieces_of(space.columns)

    def place_of(access: Access) -> StridedAccess:
        return source_of(a.kernel, access, a.sizes)

    found = {
        "q": AttentionOperand(place_of(a.query), row, a.depth, own, depth, whole),
        "k": AttentionOperand(place_of(piece.keys), a.key, a.depth, keys, depth, whole),
        "v": AttentionOperand(place_of(piece.values), a.key, a.column, keys, columns, whole),
    }
    result = _leaving(a) if depth == columns else None
    if result is not None:
        found["o"] = AttentionOperand(result, row, a.column, own, columns, whole)
    return found


def _leaving(a: Attention) -> StridedAccess | None:
    """The result, if it is one tensor of the operands' dtype that TMA can store."""
    stored = stored_by(a)
    if len(stored) != 1 or a.row is None:
        return None
    (place,) = stored.values()
    size = item_bytes(place.dtype)
    others = [*(stride for dim, stride in enumerate(place.strides) if dim != a.column), *place.offset]
    if place.dtype != a.dtype or place.strides[a.column] != ONE or any(s.factor * size % LEAST for s in others):
        return None
    return place


def may_be_whole(space: AttentionSpace, rows: int, keys: int) -> bool:
    """Whether every tile of `rows` queries and `keys` keys is full, and each tensor is one matrix of which heads are
    parts."""
    a = space.attention
    sizes = [a.sizes[dim] for dim in (*a.batch, *a.group, a.row or 0, a.key)]
    if not all(isinstance(size, int) for size in sizes) or a.row is None:
        return False
    if space.row_count.factor % rows or space.keys.factor % keys:
        return False
    if any(sum(pieces_of(width)) != width for width in (space.depth, space.columns)):
        return False
    matrices = matrices_of(space, keys, rows, True)
    return "o" in matrices and all(_is_one_matrix(space, matrix) for matrix in matrices.values())


def _is_one_matrix(space: AttentionSpace, matrix: AttentionOperand) -> bool:
    """Whether each dimension of the batch either steps over whole lines or stays within one line."""
    line = matrix.place.strides[matrix.outer].known
    if line is None:
        return False
    strides = [(matrix.place.strides[dim].factor, size.factor) for size, dim in space.batch]
    return not any(stride % line and stride * size > line for stride, size in strides)
