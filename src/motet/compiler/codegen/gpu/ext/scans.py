"""Scans on GPUs: sums, products, extremes of all elements up to each one, along one dimension.

A program has a few lines, or, where what is behind the dimension lies side by side, a block of neighbours. A line that
fits the registers is read and written once, else it is gone over in turns, what was gathered so far handed on. Long
lines of few programs are parted: one launch gathers each part, the next begins each part with all that is before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.gpu.accesses import UnsupportedOnGpu
from motet.compiler.codegen.gpu.tasks import power_of_two
from motet.compiler.kernels.kernel import Access, Stage
from motet.compiler.kernels.linalg_ext import Line, Whole, line_of
from motet.compiler.kernels.reduction import Reduction, match_reductions
from motet.compiler.kernels.strides import ONE
from motet.compiler.targets.gpu import GpuTarget

_LINE = 8192  # elements of a line per iteration
_TILE = 2048  # minimum number of elements of a program, if there are enough
_WIDTH = 32  # neighbouring lines of a program
_PARTED = 8  # turns from which on lines of few programs are split
_PARTS = 512


@dataclass(frozen=True)
class Scan:
    """`begin` is what stands before the first element where the scan is exclusive."""

    whole: Whole
    line: Line
    each: Reduction
    begin: float | int | None


@dataclass(frozen=True)
class LinesTile:
    """`height` lines of neighbours, `part` elements of each at once."""

    height: int
    part: int
    warps: int


@dataclass(frozen=True)
class AcrossTile:
    """`part` elements of `width` lines that lie side by side."""

    part: int
    width: int


@dataclass(frozen=True)
class PartedLines:
    """`parts` parts of `size` elements of each line, each by `blocks` programs; `turn` elements of `width` neighbours
    at once."""

    blocks: int
    parts: int
    size: int
    turn: int
    width: int


@dataclass(frozen=True)
class ScanPlan:
    """A scan, and how its lines are cut."""

    scan: Scan
    tile: LinesTile | AcrossTile | PartedLines


def match(whole: Whole) -> Scan:
    """Raises `UnsupportedOnGpu` for what is no gathering of one tensor whose order does not matter."""
    if whole.inputs[0].value < 0 or whole.results != (0,) or len(whole.yields) != 1:
        raise UnsupportedOnGpu("a scan of this form")
    stage = Stage(("n",), ("reduction",), (Access(0, ()),), (Access(1, ()),), (None,), whole.body, whole.yields)
    found = match_reductions(stage)
    if found is None or found[0].term != 0:
        raise UnsupportedOnGpu("a scan whose order matters")
    begin = whole.outputs[1].number
    if not whole.inclusive and begin is None:
        raise UnsupportedOnGpu("an exclusive scan that begins with a tensor")
    return Scan(whole, line_of(whole.inputs[0].shape, whole.dimension), found[0], begin)


def plan(scan: Scan, target: GpuTarget) -> ScanPlan:
    length, inner = scan.line.length.known, scan.line.inner
    if inner == ONE:
        part = _LINE if length is None else min(_LINE, power_of_two(length))
        height = max(1, _TILE // part)
        tile = LinesTile(height, part, max(1, min(16, height * part // 512)))
        return ScanPlan(scan, _parted(scan.line, target, part, 1) or tile)
    width = _WIDTH if inner.known is None else min(_WIDTH, power_of_two(inner.known))
    part = min(_TILE // width, _TILE if length is None else power_of_two(length))
    return ScanPlan(scan, _parted(scan.line, target, part, width) or AcrossTile(part, width))


def _parted(line: Line, target: GpuTarget, turn: int, width: int) -> PartedLines | None:
    """Parts of lines that take many turns, if there are fewer programs than processors; None otherwise."""
    length, outer, inner = line.length.known, line.outer.known, line.inner.known
    if length is None or not outer or not inner:
        return None
    blocks, turns = outer * -(-inner // width), -(-length // turn)
    if turns < _PARTED or blocks >= target.processors:
        return None
    size = -(-turns // _PARTS) * turn
    return PartedLines(blocks, -(-length // size), size, turn, width)
