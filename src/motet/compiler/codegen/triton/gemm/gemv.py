"""Products of a matrix and a few vectors: what a model that answers word by word is made of.

Every element of the matrix is used a few times only, so that what counts is how fast it is read: a program goes over
all of the sum for some of the results, on the processors' own units, with several loads of whole lines on their way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.artifact.expressions import product
from motet.compiler.codegen.triton.gemm.products import ContractionLaunch, finish
from motet.compiler.codegen.triton.rows.loops import Loop, ceiling, power_of_two, total
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.scalars import FLOATS, carried_type
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer, is_windowed
from motet.compiler.kernels.kernel import Kernel, Stage, item_bytes, known_product
from motet.compiler.kernels.product import match_product
from motet.compiler.kernels.strides import ONE, StridedAccess
from motet.compiler.targets.gpu import GpuTarget

_MOST = 7  # vectors
_LEAST = 64  # results of each, and products of each result
_PROGRAMS = 48  # that are worth it; where there are fewer, reductions are parted


@dataclass(frozen=True)
class _GemvBlock:
    """`results` results at once, `depth` products of each; `stages` turns are on their way at once."""

    results: int
    depth: int
    warps: int
    stages: int

    @property
    def label(self) -> str:
        return f"vectors {self.results}x{self.depth} warps={self.warps} stages={self.stages}"


# For a matrix that lies along the sum, and across it; the best first, as measured on an H200 with bf16.
_ALONG = (_GemvBlock(2, 2048, 4, 1), _GemvBlock(8, 512, 4, 3), _GemvBlock(4, 1024, 4, 3), _GemvBlock(4, 1024, 4, 1))
_ACROSS = (_GemvBlock(32, 512, 8, 1), _GemvBlock(32, 256, 4, 3), _GemvBlock(16, 512, 8, 3))
_WIDE = _GemvBlock(64, 256, 8, 1)  # across, where there are so many results that all processors have some


def takes(kernel: Kernel, stage: Stage, classes: tuple[list[int], ...] | None) -> bool:
    """Whether `stage`, whose dimensions are of `classes` (batch, M, N, K), is such a product."""
    product = match_product(stage)
    if classes is None or product is None or any(map(is_windowed, stage.inputs)):
        return False
    dtypes = {kernel.values[access.value].dtype for access in (*stage.inputs, *stage.outputs)}
    batch, m, n, k = (known_product(stage.sizes[d] for d in dims) for dims in classes)
    if None in (m, n, k) or not dtypes <= set(FLOATS) or product.dtype not in ("f32", "f64"):
        return False
    few, many = sorted((m or 0, n or 0))
    programs = many // _ACROSS[0].results * (batch or 1)
    return few <= _MOST and many >= _LEAST and (k or 0) >= _LEAST and programs >= _PROGRAMS


def emit(c: ContractionLaunch, target: GpuTarget) -> tuple[Form, ...]:
    """Forms of a product that `takes` holds of. Raises `Unsupported`."""
    if (total(c.m).known or 0) > (total(c.n).known or 0):
        c = replace(c, left=c.right, right=c.left, m=c.n, n=c.m)
    along = bool(c.k) and c.right.strides[c.k[-1][1]] == ONE
    many = (total(c.n).known or 0) // _WIDE.results * (total(c.batch).known or 1) >= target.processors
    blocks = _ALONG if along else (_WIDE, *_ACROSS) if many else (*_ACROSS, _WIDE)
    return tuple(_form(c, block, along) for block in blocks)


def _form(c: ContractionLaunch, block: _GemvBlock, along: bool) -> Form:
    task = c.task
    results, depth = total(c.n), total(c.k)
    wide = item_bytes(c.right.dtype) > 2
    deep = min(block.depth // 2 if wide else block.depth, max(16, power_of_two(depth.factor)))
    own, inner = (0, 1) if along else (1, 0)  # the axes of results, and of the sum
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
    return Form(w.module(task.symbol, task.about), tasks, block.warps, 1, block.label)


def _line(
    w: Writer, c: ContractionLaunch, at: dict[int, Coordinate], rows: list[dict[int, Coordinate]], deep: int, kind: str
) -> list[str]:
    """The vectors' elements of a turn, each along one axis, which threads then have where they need them."""
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
    """The coordinates of the loops that count vectors, at one of them."""
    found: dict[int, Coordinate] = {}
    for size, dim in reversed(loops):
        found[dim] = Coordinate(str(number % size.factor))
        number //= size.factor
    return found


def _read(w: Writer, source: StridedAccess, at: dict[int, Coordinate], kind: str) -> str:
    value = w.read(source, at, other="0")
    carried = carried_type(source.dtype)
    return value if carried == kind else w.define("x", f"{value}.to({kind})")

