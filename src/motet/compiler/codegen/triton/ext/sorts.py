"""Sorts along one dimension: any number of tensors by the first one, or only the first elements (top-k).

The sorted items are pairs of a key and a position in a 64-bit integer: the key in the high bits, encoded so that
integer comparison orders it, the position in the low bits, so that equal keys keep their order. The tensors are then
gathered by the positions.

- Lines of at most a tile: one launch, a bitonic network in registers (Batcher, "Sorting networks and their
  applications", 1968).
- The first few of longer lines: a line is split into groups, and one launch finds the first element of each. The n
  first elements are in the n groups whose first elements come first (any other group has n elements before its first
  one). The second launch sorts groups by their first elements, and then the elements of n groups.
- The first few of lines that are too long for this: the first ones of every tile, then of those, until one tile
  holds all of them.
- Longer lines: tiles are sorted, then merged. Each merge step that reaches beyond a tile is a separate launch, in
  memory.

NaNs are larger than all other values, as in PyTorch. `ranks.py` sorts dtypes without such a key and lines of unknown
length.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.gpu.accesses import UnsupportedOnGpu
from motet.compiler.codegen.gpu.tasks import power_of_two
from motet.compiler.codegen.triton.ext import ranks
from motet.compiler.codegen.triton.ext.whole_operations import LaunchText, code_of, grid, program_number, text_of
from motet.compiler.codegen.triton.text.program import TritonCode
from motet.compiler.codegen.triton.text.scalars import from_storage, storage_type
from motet.compiler.kernels.kernel import FLOATS, ITEM_BITS
from motet.compiler.kernels.linalg_ext import Line, Whole, line_of, order_of
from motet.compiler.targets.gpu import GpuTarget

_TILE = 4096  # pairs that one program sorts
_WHOLE = 8192  # elements of a line that one program sorts
_LEAST = 1024  # minimum number of pairs of a program, if there are enough
_FEW = 512  # first elements up to which tiles are reduced to their first ones
_STEP = 2048  # pairs per program of a merge step in memory
_GROUPING_WARPS = 8
_LAST = (1 << 63) - 1
_LAST_KEY = (1 << 31) - 1


@dataclass(frozen=True)
class _TiledSort:
    """A sort by tiles; `wanted` elements of each line are written."""

    whole: Whole
    line: Line
    length: int
    wanted: int
    descending: bool

    @property
    def dtype(self) -> str:
        return self.whole.outputs[0].dtype

    def place(self, i: str) -> str:
        """The offset of element `i` of line `r`; lines are numbered through the dimensions behind the sorted one,
        too."""
        inner = text_of(self.line.inner)
        if inner == "1":
            return f"r * {self.length} + {i}"
        return f"(r // {inner}) * {self.length} * {inner} + ({i}) * {inner} + r % {inner}"

    def keys(self, i: str, mask: str) -> list[str]:
        """Lines that define `b`, the keys at `i` of line `r` as integers; undefined outside `mask`."""
        value = self.whole.outputs[0].value
        loaded = from_storage(f"tl.load(v{value} + ({self.place(i)}), mask={mask}, other=0)", self.dtype)
        lines = [f"a = {loaded}"]
        if self.dtype in FLOATS:
            lines += [
                "b = (a + 0.0).to(tl.int32, bitcast=True)", "b = b ^ ((b >> 31) & 0x7fffffff)",
                "b = tl.where(a == a, b, 0x7fffffff)",
            ]
        else:
            lines.append("b = a.to(tl.int32)")
        if self.descending:
            lines.append("b = ~b")
        return lines

    def pairs(self, i: str, mask: str) -> list[str]:
        """Lines that define `x`, the pairs at `i` of line `r`; those outside `mask` come last."""
        pair = f"tl.where({mask}, (b.to(tl.int64) << 32) | ({i}).to(tl.int64), {_LAST})"
        return [*self.keys(i, mask), f"x = {pair}"]

    def gather(self, i: str, mask: str) -> list[str]:
        """Lines that write the elements at the positions of the pairs `x` to element `i` of line `r` of every
        result."""
        lines = ["s = x & 0xffffffff"]
        inner = text_of(self.line.inner)
        for number, (result, first) in enumerate(zip(self.whole.results, self.whole.firsts, strict=True)):
            operand = self.whole.outputs[result]
            target = len(self.whole.kernel.values) - len(self.whole.results) + number
            count = self.length if first is None else first
            inside = f"({mask}) & (({i}) < {count})"
            place = f"r * {count} + {i}"
            if inner != "1":
                place = f"(r // {inner}) * {count} * {inner} + ({i}) * {inner} + r % {inner}"
            taken = f"tl.load(v{operand.value} + ({self.place('s')}), mask={inside}, other=0)"
            lines.append(f"y = {taken if operand.value >= 0 else f's.to({storage_type(operand.dtype)})'}")
            lines.append(f"tl.store(v{target} + ({place}), y, mask={inside})")
        return lines


def emit(whole: Whole, target: GpuTarget) -> TritonCode:
    """Raises `UnsupportedOnGpu` for orders that are not a plain comparison of the first tensor's elements."""
    order = order_of(whole)
    if order is None:
        raise UnsupportedOnGpu("a sort by more than one comparison")
    line = line_of(whole.outputs[0].shape, whole.dimension)
    carried = [whole.outputs[result] for result in whole.results]
    if whole.outputs[0].value < 0 or any(one.value < 0 and one.axis != whole.dimension for one in carried):
        raise UnsupportedOnGpu("a sort with an operand that is not a tensor")
    dtype = whole.outputs[0].dtype
    short = ITEM_BITS[dtype] <= 32 and not order.unsigned and not dtype.startswith("ui") and dtype != "i1"
    if not short or line.length.known is None or line.count.known is None:
        return ranks.emit(whole, line, order)
    length = line.length.known
    wanted = max(length if first is None else first for first in whole.firsts)
    sort = _TiledSort(whole, line, length, wanted, order.descending)
    if sort.length <= _WHOLE:
        return code_of(whole, [_alone(sort)])
    if sort.wanted > _FEW:
        return _merged(sort)
    width = _group_width(sort)
    return _grouped(sort, width) if width else _thinned(sort)


def _warps(pairs: int) -> int:
    return max(1, min(16, pairs // 256))


def _alone(sort: _TiledSort) -> LaunchText:
    """Sort whole lines, each in one program."""
    width = power_of_two(sort.length)
    height = max(1, min(_LEAST // width, power_of_two(sort.line.count.known or 1)))
    lines = [
        f"r = {program_number(sort.whole.kernel)} * {height} + tl.arange(0, {height})[:, None]",
        f"c = tl.arange(0, {width})[None, :]", f"exists = r < {text_of(sort.line.count)}",
        *sort.pairs("c", f"exists & (c < {sort.length})"),
    ]
    kept = power_of_two(sort.wanted)
    if width > 1 and kept < width:
        lines += [f"x = tl.topk(x, {kept}, descending=False)", f"c = tl.arange(0, {kept})[None, :]"]
    elif width > 1:
        lines.append("x = tl.sort(x)")
    lines += sort.gather("c", f"exists & (c < {sort.wanted})")
    return LaunchText(lines, grid(sort.line.count, height), _warps(height * width))


def _group_width(sort: _TiledSort) -> int:
    """The number of elements of a group that minimises the time to sort groups and then the elements of some; 0 if it
    does not fit."""
    kept = max(2, power_of_two(sort.wanted))
    widths = [1 << k for k in range(1, 14)]
    most = {width: (power_of_two(-(-sort.length // width)), kept * width) for width in widths}
    fitting = [width for width in widths if kept <= most[width][0] and max(most[width]) <= _WHOLE]
    return min(fitting, key=lambda width: (sum(most[width]), -width), default=0)


def _grouped(sort: _TiledSort, width: int) -> TritonCode:
    """Write the first element of each group of `width` to a workspace, then sort groups and elements."""
    kept = max(2, power_of_two(sort.wanted))
    count = sort.line.count.known or 0
    number = program_number(sort.whole.kernel)
    space = len(sort.whole.kernel.values)
    groups = -(-sort.length // width)
    height = max(1, min(_TILE // width, power_of_two(groups)))
    tiles = -(-groups // height)
    first = [
        f"p = {number}", f"r = p // {tiles}", f"g = (p % {tiles}) * {height} + tl.arange(0, {height})[:, None]",
        f"c = g * {width} + tl.arange(0, {width})[None, :]", *sort.keys("c", f"c < {sort.length}"),
        f"b = tl.where(c < {sort.length}, b, {_LAST_KEY})", "x = tl.min(b, 1, keep_dims=True)",
        f"tl.store(v{space} + (r * {tiles * height} + g), x)",
    ]
    all_groups = power_of_two(groups)
    second = [
        f"r = {number}", f"c = tl.arange(0, {all_groups})",
        f"b = tl.load(v{space} + (r * {tiles * height} + c), mask=c < {groups}, other=0)",
        f"x = tl.where(c < {groups}, (b.to(tl.int64) << 32) | c.to(tl.int64), {_LAST})",
        *([f"x = tl.topk(x, {kept}, descending=False)"] if kept < all_groups else []), "g = x & 0xffffffff",
        f"c = tl.reshape(g[:, None] * {width} + tl.arange(0, {width})[None, :], ({kept * width},))",
        *sort.pairs("c", f"c < {sort.length}"),
        f"x = tl.topk(x, {kept}, descending=False)", f"k = tl.arange(0, {kept})",
        *sort.gather("k", f"k < {sort.wanted}"),
    ]
    texts = [
        LaunchText(first, count * tiles, _GROUPING_WARPS), LaunchText(
            second, count, _warps(max(all_groups, kept * width))
        ),
    ]
    return code_of(sort.whole, texts, [("i32", count * tiles * height)])


def _thinned(sort: _TiledSort) -> TritonCode:
    """Write the first elements of each tile to a workspace, until one tile is left."""
    kept = max(2, power_of_two(sort.wanted))
    count = sort.line.count.known or 0
    number = program_number(sort.whole.kernel)
    texts: list[LaunchText] = []
    spaces: list[tuple[str, int]] = []
    first = len(sort.whole.kernel.values)
    length = sort.length
    while True:
        tiles = -(-length // _TILE)
        width = _TILE if tiles > 1 else power_of_two(length)
        lines = [
            f"p = {number}", f"r = p // {tiles}", f"t = p % {tiles}", f"c = t * {width} + tl.arange(0, {width})",
        ]
        if not texts:
            lines += sort.pairs("c", f"c < {length}")
        else:
            lines.append(
                f"x = tl.load(v{first + len(spaces) - 1} + (r * {length} + c), mask=c < {length}, other={_LAST})"
            )
        lines += [f"x = tl.topk(x, {min(kept, width)}, descending=False)", f"k = tl.arange(0, {min(kept, width)})"]
        if tiles == 1:
            lines += sort.gather("k", f"k < {sort.wanted}")
            return code_of(sort.whole, [*texts, LaunchText(lines, count, _warps(width))], spaces)
        lines.append(f"tl.store(v{first + len(spaces)} + (p * {kept} + k), x)")
        texts.append(LaunchText(lines, count * tiles, _warps(width)))
        spaces.append(("i64", count * tiles * kept))
        length = tiles * kept


def _merged(sort: _TiledSort) -> TritonCode:
    """Sort tiles, alternately ascending and descending, then merge two, four, … of them."""
    whole = power_of_two(sort.length)
    count = sort.line.count.known or 0
    number = program_number(sort.whole.kernel)
    space = len(sort.whole.kernel.values)
    tiles = whole // _TILE
    tile = [
        f"p = {number}", f"r = p // {tiles}", f"t = p % {tiles}", f"c = t * {_TILE} + tl.arange(0, {_TILE})",
        f"place = r * {whole} + c",
    ]
    texts = [LaunchText(
        [
            *tile, *sort.pairs("c", f"c < {sort.length}"), "down = -(t & 1).to(tl.int64)",
            "x = tl.sort(x ^ down) ^ down", f"tl.store(v{space} + place, x)",
        ],
        count * tiles, _warps(_TILE),
    )]
    size = 2 * _TILE
    while size <= whole:
        texts += [_exchanged(sort, space, whole, size, distance) for distance in _halvings(size)]
        lines = [
            *tile, f"x = tl.load(v{space} + place)", f"down = -((t * {_TILE} // {size}) & 1).to(tl.int64)",
            "x = tl.bitonic_merge(x ^ down) ^ down",
        ]
        if size == whole:
            lines += sort.gather("c", f"c < {sort.wanted}")
        else:
            lines.append(f"tl.store(v{space} + place, x)")
        texts.append(LaunchText(lines, count * tiles, _warps(_TILE)))
        size *= 2
    return code_of(sort.whole, texts, [("i64", count * whole)])


def _halvings(size: int) -> list[int]:
    """The distances beyond a tile at which a merge to `size` compares."""
    found: list[int] = []
    distance = size // 2
    while distance >= _TILE:
        found.append(distance)
        distance //= 2
    return found


def _exchanged(sort: _TiledSort, space: int, whole: int, size: int, distance: int) -> LaunchText:
    """Compare and exchange pairs at distance `distance`, towards merged parts of `size`."""
    programs = whole // 2 // _STEP
    lines = [
        f"p = {program_number(sort.whole.kernel)}", f"r = p // {programs}",
        f"i = (p % {programs}) * {_STEP} + tl.arange(0, {_STEP})",
        f"low = (i // {distance}) * {2 * distance} + i % {distance}",
        f"place = v{space} + r * {whole} + low",
        "x = tl.load(place)", f"y = tl.load(place + {distance})",
        f"up = ((low // {size}) & 1) == 0",
        "a = tl.minimum(x, y)", "b = tl.maximum(x, y)",
        "tl.store(place, tl.where(up, a, b))", f"tl.store(place + {distance}, tl.where(up, b, a))",
    ]
    return LaunchText(lines, (sort.line.count.known or 0) * programs, 4)
