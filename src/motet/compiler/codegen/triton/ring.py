"""Contractions on Hopper: warps that only fetch and warps that only multiply, around a ring of tiles in shared memory.

A program stays and makes tile after tile. One warp has the copy engine fill the ring, as far ahead as it is long, also
across the borders of tiles; the others multiply what has come, asynchronously, and give places of the ring back. What
they make goes through shared memory to the copy engine too, piece by piece along N. A tile may be wider than a power of
two, being several beside each other. Written in Gluon, Triton's language of layouts and barriers. Source: NVIDIA,
"CUTLASS: Efficient GEMM in CUDA" (warp-specialised persistent kernels), 2024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.compiler.codegen.cpu.extents import Extent, Place
from motet.compiler.codegen.kernel import Kernel, item_bytes
from motet.compiler.codegen.triton.loops import ceiling, total
from motet.compiler.codegen.triton.matrices import Matrix, short
from motet.compiler.codegen.triton.products import Contraction, finish, group_of, leaving, stay, times
from motet.compiler.codegen.triton.program import Form
from motet.compiler.codegen.triton.scalars import storage_type, to_storage
from motet.compiler.codegen.triton.tiles import Problem, Tile, cycles, stored_as
from motet.compiler.codegen.triton.writer import Coordinate, Writer, symbol_name
from motet.compiler.targets.gpu import GpuTarget

_HEAD = '''import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
'''
_REGISTERS = 24  # of each thread of the warps that fetch
_HOPPER = 90
_LINE = 128  # bytes of a factor along K in one place of the ring
_PLACES = (4, 2)  # most and least of a ring
_FORMS = 3
_SHAPES = ((128, (256,)), (128, (128, 64)), (128, (128,)), (256, (128,)), (64, (256,)), (64, (128, 64)))


@dataclass(frozen=True)
class Ring:
    """Tiles of `m` rows and `widths` columns, `k` along the sum at a time, `stages` places in the ring; results leave
    in pieces of `piece` columns."""

    m: int
    widths: tuple[int, ...]
    k: int
    stages: int
    piece: int

    @property
    def n(self) -> int:
        return sum(self.widths)

    @property
    def warps(self) -> int:
        """Those that multiply, which is what a form asks for."""
        return 8 if self.m >= 128 else 4

    @property
    def label(self) -> str:
        return f"ring {self.m}x{self.n}x{self.k} stages={self.stages}"


class RingWriter(Writer):
    """Writes what is done to a piece of a tile: as `Writer`, in the layout that the products are left in, and one
    result through shared memory."""

    def __init__(self, kernel: Kernel, buffers: Sequence[int], shape: Sequence[int], result: Place | None) -> None:
        super().__init__(kernel, buffers, shape)
        self.result = result

    def range(self, axis: int) -> str:
        inside = ", ".join(":" if a == axis else "None" for a in range(len(self.shape)))
        return f"gl.arange(0, {self.shape[axis]}, gl.SliceLayout({1 - axis}, L))[{inside}]"

    def write(
        self, place: Place, at: Mapping[int, Coordinate], value: str, shape: Sequence[int] | None = None
    ) -> None:
        if place != self.result:
            super().write(place, at, value, shape)
            return
        stored = self.define("y", to_storage(f"({value})", place.dtype))
        self.line("tma.store_wait(0)")
        self.line(f"out.store({stored})")
        self.line("fence_async_shared()")
        self.line("tma.async_store(c, [m_at, n_at], out)")


@dataclass(frozen=True)
class Parts:
    """What a ring is written for: both factors and the result (None: stored by the threads) as matrices, how many rows,
    columns and products there are, and the element type of factors and sums."""

    left: Matrix
    right: Matrix
    result: Matrix | None
    rows: Extent
    columns: Extent
    depth: Extent
    factor: str
    sum: str


def rings(c: Contraction, left: Matrix | None, right: Matrix | None, problem: Problem, target: GpuTarget) -> list[Ring]:
    """What fits a contraction of factors `left` and `right`, the best first; none where they cannot be described."""
    if left is None or right is None or c.batch or c.task.epilogue is None or target.architecture != _HOPPER:
        return []
    if c.factor in ("f32", "f64", "tf32x3"):
        return []
    result = leaving(c)
    sizes = item_bytes(stored_as(c.factor)), item_bytes(result.place.dtype) if result is not None else 0
    found = [ring for m, widths in _SHAPES for ring in _fitting(m, widths, sizes, target)]
    return sorted(found, key=lambda ring: ring_cycles(ring, problem, target))[:_FORMS]


def _fitting(m: int, widths: tuple[int, ...], sizes: tuple[int, int], target: GpuTarget) -> list[Ring]:
    """The ring with most places that has room; results leave in larger pieces if as many then have it."""
    factor, result = sizes
    most, least = _PLACES
    k = _LINE // factor
    for stages in range(most, least - 1, -1):
        for piece in (128, 64, 32):
            used = stages * (m + sum(widths)) * _LINE + m * piece * result + 2048
            if piece <= min(widths) and used <= target.shared:
                return [Ring(m, widths, k, stages, piece)]
    return []


def ring_cycles(ring: Ring, problem: Problem, target: GpuTarget) -> float:
    """What a product takes, as `tiles.cycles`."""
    return cycles(problem, Tile(ring.m, ring.n, ring.k, ring.warps, ring.stages, "ring"), target)


def ring_form(c: Contraction, left: Matrix, right: Matrix, ring: Ring, target: GpuTarget) -> Form:
    """Raises `Unsupported`."""
    task, result = c.task, leaving(c)
    w = RingWriter(task.kernel, task.buffers, (ring.m, ring.piece), result.place if result else None)
    wide = ".to(tl.int64)" if w.wide else ""
    row, column = (w.define(name, f"({name}_at + {w.range(axis)}){wide}") for axis, name in enumerate("mn"))
    rows, columns = total(c.m), total(c.n)
    w.masks = {
        axis: w.define("b", f"{point} < {w.extent(count)}")
        for axis, point, count, block in ((0, row, rows, ring.m), (1, column, columns, ring.n))
        if count.known is None or count.factor % block
    }
    at = w.decompose(Coordinate(row, frozenset({0})), c.m) | w.decompose(Coordinate(column, frozenset({1})), c.n)
    finish(w, c, "acc", at)
    parts = Parts(left, right, result, rows, columns, total(c.k), stored_as(c.factor), c.sum)
    tiles = times(ceiling(rows, ring.m), ceiling(columns, ring.n))
    return Form(
        _module(w, parts, ring, task.symbol, task.about), stay(tiles, target.processors), ring.warps, ring.stages,
        ring.label,
    )


def _module(w: RingWriter, parts: Parts, ring: Ring, symbol: str, about: str) -> str:
    """The whole source; `w` has the lines of what is done to a piece."""
    arguments = [*(f"v{value}" for value in w.buffers), *map(symbol_name, w.kernel.symbols)]
    body = "\n".join(w.lines)
    body = body.replace("tl.full((), ", "tl.cast(")  # a scalar: Gluon's `full` asks for a layout
    library = "from triton.language.extra import libdevice\n" if "libdevice." in body else ""
    functions = [
        _finish_function(arguments, body), _tile_function(group_of(ring.m, ring.n)), _fetch_function(parts, ring),
        _multiply_function(parts, ring, arguments), _main_function(w, parts, ring, symbol, arguments),
    ]
    return f'"""{about}\n\n{w.described()}"""\n\n{_HEAD}{library}\n\n' + "\n\n\n".join(functions) + "\n"


def _finish_function(arguments: Sequence[str], body: str) -> str:
    given = ", ".join(["acc", "m_at", "n_at", "c", "out", "L: gl.constexpr", *arguments])
    return f"@gluon.jit\ndef finish({given}):\n{body}"


def _tile_function(group: int) -> str:
    """Which tile a number stands for: groups of rows of tiles go over their columns together."""
    return f'''@gluon.jit
def tile(number, rows, columns):
    first = number // ({group} * columns) * {group}
    height = tl.minimum(rows - first, {group})
    rest = number % ({group} * columns)
    return first + rest % height, rest // height'''


def _fetch_function(parts: Parts, ring: Ring) -> str:
    left = f"[k, pm * {ring.m}]" if parts.left.across else f"[pm * {ring.m}, k]"
    names = [f"b{i}" for i in range(len(ring.widths))]
    bytes_text = " + ".join(f"{name}.nbytes_per_cta" for name in ("a", *names))
    loads: list[str] = []
    for i, begin in enumerate(_begins(ring)):
        column = f"pn * {ring.n}" + (f" + {begin}" if begin else "")
        at = f"[{column}, k]" if parts.right.across else f"[k, {column}]"
        loads.append(f"            tma.async_load(b{i}, {at}, full.index(place), rights{i}.index(place))")
    buffers = ", ".join(f"rights{i}" for i in range(len(names)))
    own = "\n".join(loads)
    return f'''@gluon.jit
def fetch(a, {", ".join(names)}, lefts, {buffers}, full, empty, rows, columns, depth):
    place = 0
    phase = 1
    for number in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
        pm, pn = tile(number, rows, columns)
        for k in range(0, depth, {ring.k}):
            mbarrier.wait(empty.index(place), phase)
            mbarrier.expect(full.index(place), {bytes_text})
            tma.async_load(a, {left}, full.index(place), lefts.index(place))
{own}
            place += 1
            if place == {ring.stages}:
                place = 0
                phase ^= 1'''


def _begins(ring: Ring) -> list[int]:
    """Where the parts of a tile begin, side by side."""
    return [sum(ring.widths[:i]) for i in range(len(ring.widths))]


def _multiply_function(parts: Parts, ring: Ring, arguments: Sequence[str]) -> str:
    count = len(ring.widths)
    shared = ["lefts", *(f"rights{i}" for i in range(count)), "full", "empty", "rows", "columns", "depth"]
    given = ", ".join(["c", "out", *shared, *arguments])
    left = "lefts.index(place)" + (".permute((1, 0))" if parts.left.across else "")
    kind, step = storage_type(parts.sum), 32 // item_bytes(parts.factor)
    layouts: list[str] = []
    begin: list[str] = []
    turn: list[str] = []
    end: list[str] = []
    for i, (width, at) in enumerate(zip(ring.widths, _begins(ring), strict=True)):
        right = f"rights{i}.index(place)" + (".permute((1, 0))" if parts.right.across else "")
        layouts.append(
            f"layout{i}: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[{ring.warps}, 1], "
            f"instr_shape=[16, {width}, {step}])"
        )
        begin.append(f"r{i} = warpgroup_mma_init(gl.zeros(({ring.m}, {width}), {kind}, layout{i}))")
        turn.append(f"r{i} = warpgroup_mma({left}, {right}, r{i}, use_acc=k > 0, is_async=True)")
        end += _pieces(ring, f"acc{i}", width, at, arguments)
    running = [f"r{i}" for i in range(count)]
    if count == 1:
        turn.append("r0 = warpgroup_mma_init(warpgroup_mma_wait(1, deps=[r0]))")
        done = ["acc0 = warpgroup_mma_wait(0, deps=[r0])"]
    else:
        names = [f"t{i}" for i in range(count)]
        turn.append(f"{', '.join(names)} = warpgroup_mma_wait({count}, deps=[{', '.join(running)}])")
        turn += [f"r{i} = warpgroup_mma_init(t{i})" for i in range(count)]
        done = [f"{', '.join(f'acc{i}' for i in range(count))} = warpgroup_mma_wait(0, deps=[{', '.join(running)}])"]
    return f'''@gluon.jit
def multiply({given}):
{_indented(layouts, 1)}
    place = 0
    phase = 0
    for number in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
        pm, pn = tile(number, rows, columns)
{_indented(begin, 2)}
        last = 0
        for k in range(0, depth, {ring.k}):
            mbarrier.wait(full.index(place), phase)
{_indented(turn, 3)}
            mbarrier.arrive(empty.index(last), pred=k > 0)
            last = place
            place += 1
            if place == {ring.stages}:
                place = 0
                phase ^= 1
{_indented(done, 2)}
        mbarrier.arrive(empty.index(last))
{_indented(end, 2)}
    tma.store_wait(0)'''


def _indented(lines: Sequence[str], level: int) -> str:
    return "\n".join("    " * level + line for line in lines)


def _pieces(ring: Ring, name: str, width: int, begin: int, arguments: Sequence[str]) -> list[str]:
    """The lines that take part `name` of a tile, `width` columns from `begin` on, apart along N, and finish its
    pieces."""
    names = [name]
    lines: list[str] = []
    while width > ring.piece:
        width //= 2
        for each in names:
            lines.append(f"{each}0, {each}1 = {each}.reshape(({ring.m}, 2, {width})).permute((0, 2, 1)).split()")
        names = [f"{each}{half}" for each in names for half in (0, 1)]
    for number, each in enumerate(names):
        at = begin + number * width
        given = [each, f"pm * {ring.m}", f"pn * {ring.n} + {at}", "c", "out", f"{each}.type.layout", *arguments]
        lines.append(f"finish({', '.join(given)})")
    return lines


def _main_function(w: RingWriter, parts: Parts, ring: Ring, symbol: str, arguments: Sequence[str]) -> str:
    kind = storage_type(parts.factor)
    left = (ring.k, ring.m) if parts.left.across else (ring.m, ring.k)
    lines = [
        f"la: gl.constexpr = gl.NVMMASharedLayout.get_default_for([{left[0]}, {left[1]}], {kind})",
        f"a = tma.make_tensor_descriptor({parts.left.describe(w, {}, left)}, la)",
        f"lefts = gl.allocate_shared_memory({kind}, [{ring.stages}, {left[0]}, {left[1]}], la)",
    ]
    for i, width in enumerate(ring.widths):
        right = (width, ring.k) if parts.right.across else (ring.k, width)
        lines += [
            f"l{i}: gl.constexpr = gl.NVMMASharedLayout.get_default_for([{right[0]}, {right[1]}], {kind})",
            f"b{i} = tma.make_tensor_descriptor({parts.right.describe(w, {}, right)}, l{i})",
            f"rights{i} = gl.allocate_shared_memory({kind}, [{ring.stages}, {right[0]}, {right[1]}], l{i})",
        ]
    if parts.result is not None:
        out = storage_type(parts.result.place.dtype)
        lines += [
            f"lc: gl.constexpr = gl.NVMMASharedLayout.get_default_for([{ring.m}, {ring.piece}], {out})",
            f"c = tma.make_tensor_descriptor({parts.result.describe(w, {}, (ring.m, ring.piece))}, lc)",
            f"out = gl.allocate_shared_memory({out}, [{ring.m}, {ring.piece}], lc)",
        ]
    else:
        lines += ["c = 0", "out = 0"]
    lines += [
        f"full = mbarrier.allocate_mbarrier(batch={ring.stages})",
        f"empty = mbarrier.allocate_mbarrier(batch={ring.stages})",
        f"for i in gl.static_range({ring.stages}):",
        "    mbarrier.init(full.index(i), count=1)",
        "    mbarrier.init(empty.index(i), count=1)",
        "fence_async_shared()",
        f"rows = tl.cdiv({short(w, parts.rows)}, {ring.m})",
        f"columns = tl.cdiv({short(w, parts.columns)}, {ring.n})",
        f"depth = {short(w, parts.depth)}",
    ]
    numbers = range(len(ring.widths))
    shared = ["lefts", *(f"rights{i}" for i in numbers), "full", "empty", "rows", "columns", "depth"]
    workers = [
        f"(multiply, ({', '.join(['c', 'out', *shared, *arguments])}))",
        f"(fetch, ({', '.join(['a', *(f'b{i}' for i in numbers), *shared])}))",
    ]
    lines.append(f"gl.warp_specialize([{', '.join(workers)}], [1], [{_REGISTERS}])")
    return f"@gluon.jit\ndef {symbol}({', '.join(arguments)}):\n{_indented(lines, 1)}"
