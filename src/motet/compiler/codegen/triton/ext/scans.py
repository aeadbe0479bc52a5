"""Scans: running sums, products and extremes along one dimension.

A program scans a few lines, or, if the dimensions behind the scanned one are contiguous, a block of neighbouring lines.
A line that fits in registers is read and written once; a longer one is processed in chunks with a carried total. A few
long lines are split: one launch reduces each part, and the next one scans each part from the total of all parts before
it.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.gpu.accesses import UnsupportedOnGpu, is_wide
from motet.compiler.codegen.gpu.tasks import power_of_two
from motet.compiler.codegen.triton.ext.whole_operations import LaunchText, code_of, grid, program_number, text_of
from motet.compiler.codegen.triton.rows.reductions import beginning, helper_of
from motet.compiler.codegen.triton.text.program import TritonCode
from motet.compiler.codegen.triton.text.scalars import carried_type, constant, from_storage, to_storage
from motet.compiler.kernels.kernel import Access, Stage
from motet.compiler.kernels.linalg_ext import Line, Whole, line_of
from motet.compiler.kernels.reduction import Reduction, match_reductions
from motet.compiler.kernels.strides import ONE
from motet.compiler.targets.gpu import GpuTarget

_LINE = 8192  # elements of a line per iteration
_TILE = 2048  # minimum number of elements of a program, if there are enough
_WIDTH = 32  # neighbouring lines of a program
_PARTED = 1 << 16  # elements from which on few lines are split
_PARTS = 512


@dataclass(frozen=True)
class _Scan:
    """A scan; `begin` is the value before the first element of an exclusive scan."""

    whole: Whole
    line: Line
    each: Reduction
    begin: float | int | None

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
    scan = _scan(whole)
    length = scan.line.length.known
    lines = scan.line.count.known
    if scan.line.inner == ONE and length and lines and length >= _PARTED and lines < target.processors:
        return _parted(scan, length, lines)
    text = _along(scan, length) if scan.line.inner == ONE else _across(scan, length)
    return code_of(whole, [text])


def _scan(whole: Whole) -> _Scan:
    if whole.inputs[0].value < 0 or whole.results != (0,) or len(whole.yields) != 1:
        raise UnsupportedOnGpu("a scan of this form")
    stage = Stage(("n",), ("reduction",), (Access(0, ()),), (Access(1, ()),), (None,), whole.body, whole.yields)
    found = match_reductions(stage)
    if found is None or found[0].term != 0:
        raise UnsupportedOnGpu("a scan by an operation whose order matters")
    begin = whole.outputs[1].number
    if not whole.inclusive and begin is None:
        raise UnsupportedOnGpu("an exclusive scan whose initial value is a tensor")
    return _Scan(whole, line_of(whole.inputs[0].shape, whole.dimension), found[0], begin)


def _along(scan: _Scan, length: int | None) -> LaunchText:
    """Write a scan along contiguous lines: a tile is several lines and a chunk of each."""
    part = _LINE if length is None else min(_LINE, power_of_two(length))
    height = max(1, _TILE // part)
    outer, extent = text_of(scan.line.outer), text_of(scan.line.length)
    helper, definition = helper_of(scan.each)
    lines = [
        f"r = {program_number(scan.whole.kernel)} * {height} + tl.arange(0, {height})[:, None]",
        f"c = tl.arange(0, {part})[None, :]",
    ]
    body = _chunk(scan, f"r * {extent} + c", f"(r < {outer}) & (c < {extent})", "c", "1", helper, 1)
    lines += _chunks(scan, length, part, extent, body, f"({height}, 1)", "c")
    warps = max(1, min(16, height * part // 512))
    return LaunchText(lines, grid(scan.line.outer, height), warps, [definition])


def _across(scan: _Scan, length: int | None) -> LaunchText:
    """Write a scan across memory: a tile is a chunk of neighbouring lines."""
    inner = scan.line.inner.known
    width = _WIDTH if inner is None else min(_WIDTH, power_of_two(inner))
    part = min(_TILE // width, _TILE if length is None else power_of_two(length))
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
    body = _chunk(scan, offset, mask, "c", behind, helper, 0)
    lines += _chunks(scan, length, part, extent, body, f"(1, {width})", "c")
    return LaunchText(lines, grid(scan.line.inner, width, scan.line.outer), 4, [definition])


def _chunk(scan: _Scan, offset: str, mask: str, place: str, step: str, helper: str, axis: int) -> list[str]:
    """Load a chunk and store its running totals; `carry` is the total before it."""
    if scan.whole.inclusive:
        lines = [f"x = {scan.read(offset, mask)}"]
    else:
        lines = [f"x = {scan.read(f'{offset} - {step}', f'{mask} & ({place} > 0)')}"]
    lines.append(f"y = tl.associative_scan(x, {axis}, {helper})")
    lines.append(f"y = {helper}(carry, y)")
    lines.append(scan.write(offset, mask, "y"))
    return lines


def _chunks(
    scan: _Scan, length: int | None, part: int, extent: str, body: list[str], shape: str, place: str
) -> list[str]:
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


def _parted(scan: _Scan, length: int, lines: int) -> TritonCode:
    """Scan each line in parts of whole chunks: first the total of each part, then the parts."""
    chunks = -(-length // _LINE)
    chunks_of_part = -(-chunks // _PARTS)
    size = chunks_of_part * _LINE
    parts = -(-length // size)
    helper, definition = helper_of(scan.each)
    space = len(scan.whole.kernel.values)
    number = program_number(scan.whole.kernel)
    shift = "" if scan.whole.inclusive else " - 1"
    inside = "c < end" if scan.whole.inclusive else "(c < end) & (c > 0)"
    head = [
        f"p = {number}", f"line = p // {parts}", f"part = p % {parts}", f"begin = part * {size}",
        f"end = tl.minimum(begin + {size}, {length})", f"c0 = tl.arange(0, {_LINE})",
    ]
    first = [
        *head, f"total = tl.full((), {beginning(scan.each)}, {scan.kind})",
        f"for k in range(0, {size}, {_LINE}):", "    c = c0 + begin + k",
        f"    x = {scan.read(f'line * {length} + c{shift}', inside)}",
        f"    total = {helper}(total, tl.reduce(x, 0, {helper})).to({scan.kind})",
        f"tl.store(v{space} + p, total)",
    ]
    before = power_of_two(parts)
    start = beginning(scan.each) if scan.whole.inclusive else constant(scan.begin, scan.each.accumulator)
    second = [
        *head, f"b = tl.arange(0, {before})",
        f"earlier = tl.load(v{space} + line * {parts} + b, mask=b < part, other={beginning(scan.each)})",
        f"carry = {helper}(tl.full((), {start}, {scan.kind}), tl.reduce(earlier, 0, {helper})).to({scan.kind})",
        f"for k in range(0, {size}, {_LINE}):", "    c = c0 + begin + k",
        f"    x = {scan.read(f'line * {length} + c{shift}', inside)}",
        f"    y = {helper}(carry, tl.associative_scan(x, 0, {helper}))",
        f"    {scan.write(f'line * {length} + c', 'c < end', 'y')}",
        f"    carry = {helper}(carry, tl.reduce(x, 0, {helper})).to({scan.kind})",
    ]
    texts = [LaunchText(first, parts * lines, 8, [definition]), LaunchText(second, parts * lines, 8, [definition])]
    return code_of(scan.whole, texts, [(scan.each.accumulator, parts * lines)])
