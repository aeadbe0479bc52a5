"""Small products without tensor cores: few results per program, so that all SMs are busy, with all operands loaded at
once.

A tile of threads loads its operands to registers and sums by halving, lane by lane. There is no loop along K, and no
operand in shared memory, so that a product takes about one memory latency and a launch.
"""

from __future__ import annotations

from motet.artifact.expressions import product
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.gemm.small_gemm import SmallBlock
from motet.compiler.codegen.gpu.tasks import ceiling, power_of_two, total
from motet.compiler.codegen.triton.gemm.products import finish
from motet.compiler.codegen.triton.text.program import Form, tile_along
from motet.compiler.codegen.triton.text.scalars import carried_type
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.strides import StridedAccess


def small_form(c: ContractionLaunch, block: SmallBlock) -> Form:
    """Raises `UnsupportedOnGpu` for operations without code."""
    task, depth = c.task, power_of_two(total(c.k).factor)
    shape = block.m, depth, block.n
    w = Writer(task.kernel, task.buffers, shape)
    rows, columns = total(c.m), total(c.n)
    p = w.program()
    across, down = (-(-extent.factor // side) for extent, side in ((columns, block.n), (rows, block.m)))
    batch = w.decompose(Coordinate(w.define("p", f"{p} // {across * down}")), c.batch) if c.batch else {}
    first = w.define("m", f"{p} % {down} * {block.m}")
    second = w.define("n", f"{p} // {down} % {across} * {block.n}")
    at = batch | _points(w, c, first, second, block, (0, 2))
    depths = w.define("k", w.range(1))
    if total(c.k).factor % depth:
        w.masks[1] = w.define("b", f"{depths} < {total(c.k).factor}")
    inside = at | w.decompose(Coordinate(depths, frozenset({1})), c.k)
    kind = carried_type(c.sum)
    left, right = (_read(w, source, inside, kind) for source in (c.left, c.right))
    acc = w.define("x", f"tl.sum({left} * {right}, 1)")
    w.shape, w.masks, w.remembered = (block.m, block.n), {}, {}
    finish(w, c, acc, batch | _points(w, c, first, second, block, (0, 1)))
    tasks = product((ceiling(rows, block.m), ceiling(columns, block.n), total(c.batch).expression))
    tiles = (tile_along(c.m, block.m), tile_along(c.n, block.n))
    return Form(w.module(task.symbol, task.about), tasks, block.warps, 1, block.label, tiles=tiles)


def _points(
    w: Writer, c: ContractionLaunch, first: str, second: str, block: SmallBlock, axes: tuple[int, int]
) -> dict[int, Coordinate]:
    """The coordinates of rows and columns from `first` and `second` on, along `axes` of the tile."""
    at: dict[int, Coordinate] = {}
    for begin, loops, side, axis in ((first, c.m, block.m, axes[0]), (second, c.n, block.n, axes[1])):
        point = w.define("i", f"{begin} + {w.range(axis)}")
        if total(loops).factor % side:
            w.masks[axis] = w.define("b", f"{point} < {total(loops).factor}")
        at |= w.decompose(Coordinate(point, frozenset({axis})), loops) if loops else {}
    return at


def _read(w: Writer, source: StridedAccess, at: dict[int, Coordinate], kind: str) -> str:
    """Load an operand in its compute type, with zeros out of bounds."""
    value = w.read(source, at, other="0")
    return value if carried_type(source.dtype) == kind else w.define("x", f"{value}.to({kind})")
