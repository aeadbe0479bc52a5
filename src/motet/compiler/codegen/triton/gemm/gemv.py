"""Products of a matrix and a few vectors (GEMV), which dominate token-by-token inference.

Every element of the matrix is used only a few times, so that read bandwidth limits the speed. A program computes the
whole sum for some of the results, without tensor cores, with several loads of whole lines in flight.
"""

from __future__ import annotations

from motet.artifact.expressions import product
from motet.compiler.codegen.gpu.gemm.gemv import GemvBlock
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.tasks import Loop, ceiling, power_of_two, total
from motet.compiler.codegen.triton.gemm.products import finish
from motet.compiler.codegen.triton.text.program import Form, tile_along
from motet.compiler.codegen.triton.text.scalars import carried_type
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.strides import StridedAccess


def gemv_form(c: ContractionLaunch, block: GemvBlock, along: bool) -> Form:
    """Raises `UnsupportedOnGpu` for operations without code."""
    task = c.task
    results, depth = total(c.n), total(c.k)
    wide = item_bytes(c.right.dtype) > 2
    deep = min(block.depth // 2 if wide else block.depth, max(16, power_of_two(depth.factor)))
    own, inner = (0, 1) if along else (1, 0)  # the axes of results and of K
    shape = (block.results, deep) if along else (deep, block.results)
    w = Writer(task.kernel, task.buffers, shape)
    p = w.program()
    count = str(-(-results.factor // block.results))
    at = w.decompose(Coordinate(w.define("p", f"{p} // {count}")), c.batch) if c.batch else {}
    column = w.define("n", f"{p} % {count} * {block.results} + {w.range(own)}")
    if results.factor % block.results:
        w.masks[own] = w.define("b", f"{column} < {results.factor}")
    at |= w.decompose(Coordinate(column, frozenset({own})), c.n)
    rows = [_row(c.m, number) for number in range(total(c.m).factor)]
    kind = carried_type(c.sum)
    for number in range(len(rows)):
        w.line(f"a{number} = tl.zeros({w.tile}, {kind})")
    w.line(f"for k in tl.range(0, {w.extent(depth)}, {deep}, num_stages={block.stages}):")
    w.level += 1
    outer = dict(w.masks)
    point = w.define("k", f"k + {w.range(inner)}")
    if depth.factor % deep:
        w.masks[inner] = w.define("b", f"{point} < {w.extent(depth)}")
    inside = at | w.decompose(Coordinate(point, frozenset({inner})), c.k)
    matrix = _read(w, c.right, inside, kind)
    lines = _line(w, c, at, rows, deep, kind)
    spread = "[None, :]" if along else "[:, None]"
    for number, line in enumerate(lines):
        w.line(f"a{number} += {matrix} * {line}{spread}")
    w.level -= 1
    w.masks = {axis: mask for axis, mask in outer.items() if axis == own}
    w.shape = (block.results, 1) if along else (1, block.results)
    for number, row in enumerate(rows):
        w.remembered = {}
        value = w.define("x", f"tl.sum(a{number}, {inner}, keep_dims=True)")
        finish(w, c, value, at | row)
    tasks = product((ceiling(results, block.results), total(c.batch).expression))
    tiles = (tile_along(c.n, block.results), tile_along(c.k, block.depth))
    return Form(w.module(task.symbol, task.about), tasks, block.warps, 1, block.label, tiles=tiles)


def _line(
    w: Writer, c: ContractionLaunch, at: dict[int, Coordinate], rows: list[dict[int, Coordinate]], deep: int, kind: str
) -> list[str]:
    """Load the vectors' elements of an iteration, each along one axis, and distribute them to the threads that use
    them."""
    shape, masks = w.shape, w.masks
    w.shape, w.masks = (deep,), {}
    point = w.define("k", f"k + {w.range(0)}")
    if total(c.k).factor % deep:
        w.masks[0] = w.define("b", f"{point} < {w.extent(total(c.k))}")
    inside = {dim: place for dim, place in at.items() if not place.axes}
    inside |= w.decompose(Coordinate(point, frozenset({0})), c.k)
    found = [_read(w, c.left, inside | row, kind) for row in rows]
    w.shape, w.masks = shape, masks
    return found


def _row(loops: tuple[Loop, ...], number: int) -> dict[int, Coordinate]:
    """The coordinates of the loops that enumerate vectors, for vector `number`."""
    found: dict[int, Coordinate] = {}
    for size, dim in reversed(loops):
        found[dim] = Coordinate(str(number % size.factor))
        number //= size.factor
    return found


def _read(w: Writer, source: StridedAccess, at: dict[int, Coordinate], kind: str) -> str:
    value = w.read(source, at, other="0")
    carried = carried_type(source.dtype)
    return value if carried == kind else w.define("x", f"{value}.to({kind})")

