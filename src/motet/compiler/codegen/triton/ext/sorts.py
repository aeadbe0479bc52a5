"""Sorts along one dimension, of any number of tensors by the first one, and the first elements of a sort.

What is sorted are pairs of a key and a position, as one number of 64 bits: the key, made so that numbers compare as
integers, above the position, so that equal keys keep their order. The tensors are then gathered by the positions.

- Lines of at most a tile: one launch, a bitonic network in registers (Batcher, "Sorting networks and their
  applications", 1968).
- The first few of longer lines: a line is parted into groups, and one launch finds the first element of each. The n
  first elements lie in the n groups whose first elements come first (any other group has n elements before its own
  first one), so that the second launch sorts groups, and then the elements of n groups.
- The first few of lines that are too long for this: the first ones of every tile, and again of those, until one tile
  has them all.
- Longer lines: tiles, then merges, those steps that reach beyond a tile each a launch of its own, in memory.

NaNs are larger than all else, as in PyTorch. What has no such key, or lines of unknown length, `ranks.py` sorts.
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
_WHOLE = 8192  # of a line that one program sorts alone
_LEAST = 1024  # pairs of a program, if there are enough
_FEW = 512  # first elements, as far as tiles are thinned out for them
_STEP = 2048  # pairs of a program that compares in memory
_GROUPING_WARPS = 8
_LAST = (1 << 63) - 1
_LAST_KEY = (1 << 31) - 1


@dataclass(frozen=True)
class _TiledSort:
    """`wanted` elements of each line are written."""

    whole: Whole
    line: Line
    length: int
    wanted: int
    descending: bool

    @property
    def dtype(self) -> str:
        return self.whole.outputs[0].dtype

    def place(self, i: str) -> str:
        """Where element `i` of line `r` lies; lines are numbered through what is behind them, too."""
        inner = text_of(self.line.inner)
        if inner == "1":
            return f"r * {self.length} + {i}"
        return f"(r // {inner}) * {self.length} * {inner} + ({i}) * {inner} + r % {inner}"

    def keys(self, i: str, mask: str) -> list[str]:
        """Lines that make `b`, the keys at `i` of line `r` as integers; those outside `mask` are anything."""
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
        """Lines that make `x`, the pairs at `i` of line `r`; those outside `mask` come last."""
        pair = f"tl.where({mask}, (b.to(tl.int64) << 32) | ({i}).to(tl.int64), {_LAST})"
        return [*self.keys(i, mask), f"x = {pair}"]

    def gather(self, i: str, mask: str) -> list[str]:
        """Lines that write what the pairs `x` stand for to element `i` of line `r` of every result."""
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
    """Raises `UnsupportedOnGpu` for orders that are no plain comparison of the first tensor's elements."""
    order = order_of(whole)
    if order is None:
        raise UnsupportedOnGpu("a sort by more than one comparison")
    line = line_of(whole.outputs[0].shape, whole.dimension)
    carried = [whole.outputs[result] for result in whole.results]
    if whole.outputs[0].value < 0 or any(one.value < 0 and one.axis != whole.dimension for one in carried):
        raise UnsupportedOnGpu("a sort that carries along what is no tensor")
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
    """Whole lines in one program."""
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
    """How many elements of a line make a group, so that sorting groups and then the elements of some takes least; 0
    where it does not fit."""
    kept = max(2, power_of_two(sort.wanted))
    widths = [1 << k for k in range(1, 14)]
    most = {width: (power_of_two(-(-sort.length // width)), kept * width) for width in widths}
    fitting = [width for width in widths if kept <= most[width][0] and max(most[width]) <= _WHOLE]
    return min(fitting, key=lambda width: (sum(most[width]), -width), default=0)


def _grouped(sort: _TiledSort, width: int) -> TritonCode:
    """The first element of each group of `width` into a workspace, then all else."""
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
    """The first ones of each tile into a workspace, until there is one tile."""
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
    """Tiles that go up and down by turns, then merges of two, four, … of them."""
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
        texts += [_exchanged(sort, space, whole, size, apart) for apart in _halvings(size)]
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
    """The distances at which a merge to `size` compares beyond a tile."""
    found: list[int] = []
    apart = size // 2
    while apart >= _TILE:
        found.append(apart)
        apart //= 2
    return found


def _exchanged(sort: _TiledSort, space: int, whole: int, size: int, apart: int) -> LaunchText:
    """Pairs that are `apart` brought into order, towards merged parts of `size`."""
    programs = whole // 2 // _STEP
    lines = [
        f"p = {program_number(sort.whole.kernel)}", f"r = p // {programs}",
        f"i = (p % {programs}) * {_STEP} + tl.arange(0, {_STEP})",
        f"low = (i // {apart}) * {2 * apart} + i % {apart}",
        f"place = v{space} + r * {whole} + low",
        "x = tl.load(place)", f"y = tl.load(place + {apart})",
        f"up = ((low // {size}) & 1) == 0",
        "a = tl.minimum(x, y)", "b = tl.maximum(x, y)",
        "tl.store(place, tl.where(up, a, b))", f"tl.store(place + {apart}, tl.where(up, b, a))",
    ]
    return LaunchText(lines, (sort.line.count.known or 0) * programs, 4)
