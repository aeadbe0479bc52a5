"""Scans as Triton programs."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.gpu.accesses import is_wide
from motet.compiler.codegen.gpu.ext.scans import AcrossTile, LinesTile, PartedLines, Scan, match, plan
from motet.compiler.codegen.gpu.tasks import power_of_two
from motet.compiler.codegen.triton.ext.whole_operations import LaunchText, code_of, grid, program_number, text_of
from motet.compiler.codegen.triton.rows.reductions import beginning, helper_of
from motet.compiler.codegen.triton.text.program import TritonCode
from motet.compiler.codegen.triton.text.scalars import carried_type, constant, from_storage, to_storage
from motet.compiler.kernels.linalg_ext import Line, Whole
from motet.compiler.kernels.reduction import Reduction
from motet.compiler.targets.gpu import GpuTarget


@dataclass(frozen=True)
class _ScanText:
    """What a scan reads and writes, as text."""

    scan: Scan

    @property
    def whole(self) -> Whole:
        return self.scan.whole

    @property
    def line(self) -> Line:
        return self.scan.line

    @property
    def each(self) -> Reduction:
        return self.scan.each

    @property
    def begin(self) -> float | int | None:
        return self.scan.begin

    @property
    def dtype(self) -> str:
        return self.whole.inputs[0].dtype

    @property
    def source(self) -> int:
        return self.whole.inputs[0].value

    @property
    def target(self) -> int:
        return len(self.whole.kernel.values) - 1

    def read(self, offset: str, mask: str) -> str:
        loaded = f"tl.load(v{self.source} + ({offset}), mask={mask}, other=0)"
        return f"tl.where({mask}, {from_storage(loaded, self.dtype)}, {beginning(self.each)}).to({self.kind})"

    def write(self, offset: str, mask: str, value: str) -> str:
        return f"tl.store(v{self.target} + ({offset}), {to_storage(f'({value})', self.dtype)}, mask={mask})"

    @property
    def kind(self) -> str:
        return carried_type(self.each.accumulator)


def emit(whole: Whole, target: GpuTarget) -> TritonCode:
    """Raises `UnsupportedOnGpu` unless the scan is an order-independent reduction of one tensor."""
    found = plan(match(whole), target)
    scan, tile = _ScanText(found.scan), found.tile
    if isinstance(tile, PartedLines):
        return _parted(scan, tile)
    return code_of(whole, [_along(scan, tile) if isinstance(tile, LinesTile) else _across(scan, tile)])


def _along(scan: _ScanText, tile: LinesTile) -> LaunchText:
    """Write a scan along contiguous lines: a tile is several lines and a chunk of each."""
    part, height = tile.part, tile.height
    outer, extent = text_of(scan.line.outer), text_of(scan.line.length)
    helper, definition = helper_of(scan.each)
    lines = [
        f"r = {program_number(scan.whole.kernel)} * {height} + tl.arange(0, {height})[:, None]",
        f"c = tl.arange(0, {part})[None, :]",
    ]
    body = _turn(scan, f"r * {extent} + c", f"(r < {outer}) & (c < {extent})", "c", "1", helper, 1)
    lines += _turns(scan, part, extent, body, f"({height}, 1)", "c")
    return LaunchText(lines, grid(scan.line.outer, height), tile.warps, [definition])


def _across(scan: _ScanText, tile: AcrossTile) -> LaunchText:
    """Lines across memory: a tile is a part of lines, and neighbours."""
    part, width = tile.part, tile.width
    extent, behind = text_of(scan.line.length), text_of(scan.line.inner)
    blocks = f"tl.cdiv({behind}, {width})"
    helper, definition = helper_of(scan.each)
    lines = [
        f"p = {program_number(scan.whole.kernel)}",
        f"j = (p % {blocks}) * {width} + tl.arange(0, {width})[None, :]",
        f"first = (p // {blocks}) * {extent} * {behind}",
        f"c = tl.arange(0, {part})[:, None]",
    ]
    offset, mask = f"first + c * {behind} + j", f"(c < {extent}) & (j < {behind})"
    body = _turn(scan, offset, mask, "c", behind, helper, 0)
    lines += _turns(scan, part, extent, body, f"(1, {width})", "c")
    return LaunchText(lines, grid(scan.line.inner, width, scan.line.outer), 4, [definition])


def _turn(scan: _ScanText, offset: str, mask: str, place: str, step: str, helper: str, axis: int) -> list[str]:
    """Reads a part, and writes what is gathered up to each point; `carry` is what is before it."""
    if scan.whole.inclusive:
        lines = [f"x = {scan.read(offset, mask)}"]
    else:
        lines = [f"x = {scan.read(f'{offset} - {step}', f'{mask} & ({place} > 0)')}"]
    lines.append(f"y = tl.associative_scan(x, {axis}, {helper})")
    lines.append(f"y = {helper}(carry, y)")
    lines.append(scan.write(offset, mask, "y"))
    return lines


def _turns(
    scan: _ScanText, part: int, extent: str, body: list[str], shape: str, place: str
) -> list[str]:
    length = scan.line.length.known
    helper, _ = helper_of(scan.each)
    axis = 1 if shape.endswith(" 1)") else 0
    begin = beginning(scan.each) if scan.whole.inclusive else constant(scan.begin, scan.each.accumulator)
    carry = f"carry = tl.full({shape}, {begin}, {scan.kind})"
    if length is not None and length <= part:
        return [carry, *body]
    index = "tl.int64" if is_wide(scan.whole.kernel) else "tl.int32"  # the type of a loop-carried value must not change
    gathered = f"carry = {helper}(carry, tl.reduce(x, {axis}, {helper}, keep_dims=True)).to({scan.kind})"
    return [
        carry, f"c0 = ({place}).to({index})", f"{place} = c0", f"for k in range(0, {extent}, {part}):",
        f"    {place} = (c0 + k).to({index})",
        *(f"    {line}" for line in body), f"    {gathered}",
    ]


def _parted(scan: _ScanText, tile: PartedLines) -> TritonCode:
    """Scan each line in parts of whole chunks: first the total of each part, then the parts."""
    text = _PartText(scan, tile)
    space = len(scan.whole.kernel.values)
    helper, definition = helper_of(scan.each)
    first = [
        *text.head, f"total = tl.full({text.one}, {beginning(scan.each)}, {scan.kind})",
        f"for k in range(0, {tile.size}, {tile.turn}):", "    c = c0 + begin + k",
        f"    x = {text.read()}",
        f"    total = {helper}(total, {text.gathered('x')}).to({scan.kind})",
        f"tl.store(v{space} + {text.total('p')}, total)",
    ]
    start = beginning(scan.each) if scan.whole.inclusive else constant(scan.begin, scan.each.accumulator)
    second = [
        *text.head, f"b = {text.along(power_of_two(tile.parts))}",
        f"earlier = tl.load(v{space} + {text.total('(p - part + b)')}, mask=b < part, other={beginning(scan.each)})",
        f"carry = {helper}(tl.full({text.one}, {start}, {scan.kind}), {text.gathered('earlier')}).to({scan.kind})",
        f"for k in range(0, {tile.size}, {tile.turn}):", "    c = c0 + begin + k",
        f"    x = {text.read()}",
        f"    y = {helper}(carry, tl.associative_scan(x, 0, {helper}))",
        f"    {scan.write(text.place, text.inside, 'y')}",
        f"    carry = {helper}(carry, {text.gathered('x')}).to({scan.kind})",
    ]
    programs = tile.parts * tile.blocks
    texts = [LaunchText(first, programs, 8, [definition]), LaunchText(second, programs, 8, [definition])]
    return code_of(scan.whole, texts, [(scan.each.accumulator, programs * tile.width)])


@dataclass(frozen=True)
class _PartText:
    """The part of a program: of one line, or of neighbours, in columns of a tile."""

    scan: _ScanText
    tile: PartedLines

    @property
    def head(self) -> list[str]:
        tile, line = self.tile, self.scan.line
        extent, behind = line.length.factor, line.inner.factor
        lines = [
            f"p = {program_number(self.scan.whole.kernel)}", f"part = p % {tile.parts}", f"begin = part * {tile.size}",
            f"end = tl.minimum(begin + {tile.size}, {extent})", f"c0 = {self.along(tile.turn)}",
        ]
        if tile.width == 1:
            return [*lines, f"base = p // {tile.parts} * {extent}"]
        blocks = -(-behind // tile.width)
        return [
            *lines, f"w = tl.arange(0, {tile.width})[None, :]", f"j = p // {tile.parts} % {blocks} * {tile.width} + w",
            f"base = p // {tile.parts} // {blocks} * {extent * behind} + j",
        ]

    def along(self, count: int) -> str:
        return f"tl.arange(0, {count})" + ("" if self.tile.width == 1 else "[:, None]")

    @property
    def one(self) -> str:
        """The shape of what is gathered."""
        return "()" if self.tile.width == 1 else f"(1, {self.tile.width})"

    @property
    def place(self) -> str:
        return "base + c" if self.tile.width == 1 else f"base + c * {self.scan.line.inner.factor}"

    @property
    def inside(self) -> str:
        return "(c < end)" if self.tile.width == 1 else f"(c < end) & (j < {self.scan.line.inner.factor})"

    def read(self) -> str:
        if self.scan.whole.inclusive:
            return self.scan.read(self.place, self.inside)
        return self.scan.read(f"{self.place} - {self.scan.line.inner.factor}", f"{self.inside} & (c > 0)")

    def gathered(self, values: str) -> str:
        helper, _ = helper_of(self.scan.each)
        return f"tl.reduce({values}, 0, {helper}" + (")" if self.tile.width == 1 else ", keep_dims=True)")

    def total(self, number: str) -> str:
        """The place of the total of a program in the launches' common memory."""
        return number if self.tile.width == 1 else f"{number} * {self.tile.width} + w"
