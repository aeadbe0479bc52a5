"""Reads short rows column by column, so that vectors run across neighbouring rows and reductions need no sums of lanes.

    y[i] = max of x[i, j]:    x[0 … 7, 0 … 3]  →  x[0 … 7, 0]  x[0 … 7, 1]  x[0 … 7, 2]  x[0 … 7, 3]    (in registers)

The last columns of a row come from a tile that ends with the row. The order of a row's elements is kept, so that
reductions whose order matters, such as argmax, also run this way.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.cpu.emit.addressing import Frame, Lanes, StridedNest, load_stored
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.emit.compute_types import from_storage
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.rows.bands import transposed_pieces
from motet.compiler.codegen.cpu.rows.nest_writer import NestWriter
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.kernel import ITEM_BITS, dependencies, item_bytes
from motet.compiler.kernels.reduction import match_reduction
from motet.compiler.kernels.strides import ONE, ZERO, StridedAccess
from motet.compiler.targets.cpu import CpuTarget

_INSTRUCTIONS = ("math.absf", "math.sqrt", "math.fma", "math.floor", "math.ceil")
_PIECE = 16  # bytes of a piece
VECTORS = 2  # of rows at a time
_SHORT = 16  # elements of a row up to which a sum of lanes costs more than transposing
_SHORT_EXTREMES = 63  # likewise of extremes, whose lanes take more operations to combine
_SHORT_GROUP = 40  # likewise in a group of stages
_SHORT_FUNCTIONS = 128  # likewise with elementary functions, which must not be computed for masked lanes
_MANY = 8  # vectors of rows, from which on an incomplete last one costs little
_LONGEST_OF_FEW = 63  # elements of a row with fewer
_LONGEST_GROUP = 512  # of any group, whose columns are kept in scratch memory
_SHORT_IN_ORDER = 1 << 13  # of reductions whose order matters, which have no vectors along a row


def column_dimension(nest: StridedNest, along: int | None, lanes: int) -> int | None:
    """The dimension of short rows that `nest` reduces, if vectors of `lanes` along `along`, the contiguous dimension of
    its results, should read them column by column."""
    reductions = nest.dims_of("reduction")
    if along is None or lanes < 4 or len(reductions) != 1 or any(operand.bounds for operand in nest.inputs):
        return None
    (reduced,) = reductions
    length, skewed = nest.sizes[reduced].known, skewed_inputs(nest, along)
    if length is None or not skewed or guess(nest.sizes[along]) < lanes:
        return None
    for k in skewed:
        strides = nest.inputs[k].strides
        if strides[reduced] != ONE or strides[along].known is None:
            return None
    return reduced if columns_at_once(nest, along, lanes) <= length <= _longest(nest) else None


def lanes_across(nest: StridedNest, target: CpuTarget) -> int:
    """The number of lanes that the widest type allows that `nest` computes with or moves."""
    dtypes = nest.varying_dtypes
    return target.lanes(max(max(32, ITEM_BITS[d]) if d in ("f16", "bf16") else ITEM_BITS[d] for d in dtypes))


def skewed_inputs(nest: StridedNest, along: int) -> list[int]:
    """The inputs that are neither contiguous nor constant along `along`."""
    return [k for k, operand in enumerate(nest.inputs) if operand.strides[along] not in (ZERO, ONE)]


def columns_at_once(nest: StridedNest, along: int, lanes: int) -> int:
    """The number of columns of a tile."""
    return min(lanes, max(_PIECE // item_bytes(nest.inputs[k].dtype) for k in skewed_inputs(nest, along)))


def suits_across(nests: Sequence[StridedNest], wide: Sequence[bool], inner: int, target: CpuTarget) -> bool:
    """Whether vectors should run across the short rows of a group, instead of along them: `wide` are the nests that
    have a row's dimensions, `inner` of them, last."""
    chosen = [nest for nest, is_wide in zip(nests, wide, strict=True) if is_wide]
    if inner != 1 or len(nests) < 2 or len(chosen[0].sizes) < 2 or not any(nest.dims_of("reduction") for nest in nests):
        return False
    length, lanes = chosen[0].sizes[-1].known, min(lanes_across(nest, target) for nest in nests)
    if length is None or lanes < 4 or guess(chosen[0].sizes[-2]) < lanes:
        return False
    outputs = [operand for nest in chosen if nest.kinds[-1] == "parallel" for operand in nest.outputs]
    inputs = [operand for nest in chosen for operand in nest.inputs if operand.strides[-1] == ONE]
    if not any(operand.strides[-2] not in (ZERO, ONE) for operand in inputs):
        return False
    if any(operand.strides[-1] != ONE for operand in outputs):
        return False
    longest = max(map(_longest_across, chosen))
    if (chosen[0].sizes[-2].known or 0) < _MANY * lanes:  # the last vector of rows may be nearly empty
        longest = min(longest, _LONGEST_OF_FEW)
    return 2 <= length <= longest


def _longest_across(nest: StridedNest) -> int:
    longest = _SHORT_FUNCTIONS if _computes_functions(nest) else _SHORT_GROUP
    return max(longest, min(_longest(nest), _LONGEST_GROUP)) if nest.dims_of("reduction") else longest


def _computes_functions(nest: StridedNest) -> bool:
    """Whether a wide nest computes elementary functions of every element of a row."""
    inputs = len(nest.inputs) + len(nest.outputs)
    varying = {k for k, operand in enumerate(nest.inputs) if operand.strides[-1] != ZERO}
    return any(
        scalar.op.startswith("math.") and scalar.op not in _INSTRUCTIONS
        and varying & set(dependencies(nest.body, inputs, scalar.operands))
        for scalar in nest.body
    )  # fmt: skip


def _longest(nest: StridedNest) -> int:
    found = [match_reduction(nest.stage, output) for output in range(len(nest.outputs))]
    if any(each is None for each in found):
        return _SHORT_IN_ORDER
    return _SHORT_EXTREMES if any(each.op in ("arith.maximumf", "arith.minimumf") for each in found if each) else _SHORT


class ColumnWriter(NestWriter):
    """Writes the points of a nest whose rows, dimension `reduced`, are read column by column."""

    def __init__(self, f: Frame, nest: StridedNest, along: int, lanes: int, reduced: int) -> None:
        super().__init__(f, nest, along, lanes, VECTORS)
        self.reduced = reduced
        self.skewed = skewed_inputs(nest, along)
        self.width = columns_at_once(nest, along, lanes)

    def reduce_points(
        self, points: Sequence[list[Index]], lanes: Lanes, known: dict[int, Value], running: list[Value], checked: bool
    ) -> list[Value]:
        length, width = self.nest.sizes[self.reduced].factor, self.width
        rest = length % width

        def tile(first: Index, values: list[Value], skipped: int = 0) -> list[Value]:
            """Reduce the columns of the tile at `first`, without the first `skipped` ones."""
            columns = [self._columns(point, lanes, first) for point in points]
            for step in range(skipped, width):
                place = self.f.iadd(first, step)
                values = self._column(points, lanes, known, [each[step] for each in columns], place, values)
            return values

        running = self.f.loop(0, length - rest, width, tile, running)
        return tile(length - width, running, width - rest) if rest else running

    def _column(
        self, points: Sequence[list[Index]], lanes: Lanes, known: dict[int, Value],
        read: Sequence[dict[int, Value]], place: Index, running: Sequence[Value],
    ) -> list[Value]:
        """Reduce one column, at `place` of the rows."""
        count = len(self.nest.outputs)
        result: list[Value] = []
        for u, point in enumerate(points):
            here = list(point)
            here[self.reduced] = place
            result += self.once(here, lanes, known | read[u], running[u * count : (u + 1) * count], False)
        return result

    def _columns(self, point: Sequence[Index], lanes: Lanes, first: Index) -> list[dict[int, Value]]:
        """For each column of the tile at `first`, the values of the skewed inputs. Lanes that do not exist have the
        first lane's."""
        f = self.f
        starts: list[list[Index]] = []
        for lane in range(lanes.count):
            at: Index = lane
            if lanes.active is not None and lane:
                exists = f.icmp_signed("<", f.index(lane), f.index(lanes.active))
                at = f.select(exists, f.index(lane), f.index(0))
            start = list(point)
            start[self.along or 0], start[self.reduced] = f.iadd(point[self.along or 0], at), first
            starts.append(start)
        result: list[dict[int, Value]] = [{} for _ in range(self.width)]
        for k in self.skewed:
            operand = self.nest.inputs[k]
            for column, stored in zip(result, self._transposed(operand, starts), strict=True):
                column[k] = from_storage(f, stored, operand.dtype)
        return result

    def _transposed(self, operand: StridedAccess, starts: Sequence[list[Index]]) -> list[Value]:
        """The columns of the tile whose rows begin at `starts`, as stored."""
        f = self.f
        width = min(self.width, _PIECE // item_bytes(operand.dtype))
        result: list[Value] = []
        for begin in range(0, self.width, width):
            pieces: list[Value] = []
            for start in starts:
                here = list(start)
                here[self.reduced] = f.iadd(start[self.reduced], begin)
                pieces.append(load_stored(f, operand, here, Lanes(self.reduced, width)))
            result += transposed_pieces(f, pieces, width)
        return result
