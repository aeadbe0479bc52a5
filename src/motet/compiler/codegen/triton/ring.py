"""Contractions on Hopper: warps that only fetch and warps that only multiply, around a ring of tiles in shared memory.

A program stays and makes tile after tile. One warp has the copy engine fill the ring, as far ahead as it is long, also
across the borders of tiles; the others multiply what has come, asynchronously, and give places of the ring back. What
they make goes through shared memory to the copy engine too, piece by piece along N. Written in Gluon, Triton's
language of layouts and barriers. Source: Shah et al., "FlashAttention-3" and NVIDIA, "CUTLASS: Efficient GEMM in CUDA"
(warp-specialised persistent kernels), 2024.

    alone       all warps that multiply share a tile
    in turns    two groups of them have a tile each: while one stores, the other multiplies
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.compiler.codegen.cpu.extents import Extent, Place
from motet.compiler.codegen.kernel import Kernel, item_bytes
from motet.compiler.codegen.triton.loops import ceiling, total
from motet.compiler.codegen.triton.matrices import Matrix, short
from motet.compiler.codegen.triton.products import GROUP, Contraction, finish, leaving, stay, times
from motet.compiler.codegen.triton.program import Form
from motet.compiler.codegen.triton.scalars import storage_type, to_storage
from motet.compiler.codegen.triton.tiles import stored_as
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
REGISTERS = 24  # of each thread of the warps that fetch
_HALF = 240  # of those of the second group that multiplies


@dataclass(frozen=True)
class Ring:
    """`m` by `n` tiles, `k` along the sum at a time, `stages` places in the ring; results leave in `pieces` along N.
    `turns` says that two groups of warps multiply in turns."""

    m: int
    n: int
    k: int
    stages: int
    pieces: int
    turns: bool = False

    @property
    def warps(self) -> int:
        """Those that a form asks for: of one group that multiplies."""
        return 4 if self.turns else 8

    @property
    def groups(self) -> int:
        return 2 if self.turns else 1

    @property
    def label(self) -> str:
        return f"ring {self.m}x{self.n}x{self.k} stages={self.stages}{' turns' if self.turns else ''}"

    def bytes(self, factor: int, result: int) -> int:
        """Shared memory, for factors and results of so many bytes an element."""
        ring = self.stages * (self.m + self.n) * self.k * factor
        return ring + self.groups * self.m * self.n // self.pieces * result + 1024 + 32 * self.stages


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


RINGS = (Ring(128, 256, 64, 4, 4), Ring(128, 256, 64, 3, 2))
_HOPPER = 90


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


def ring_forms(c: Contraction, left: Matrix | None, right: Matrix | None, target: GpuTarget) -> list[Form]:
    """Forms of a contraction of 16-bit factors `left` and `right`; none where they cannot be described."""
    if left is None or right is None or c.batch or c.task.epilogue is None:
        return []
    if target.architecture != _HOPPER or item_bytes(stored_as(c.factor)) != 2:
        return []
    return [_form(c, left, right, ring, target) for ring in RINGS]


def _form(c: Contraction, left: Matrix, right: Matrix, ring: Ring, target: GpuTarget) -> Form:
    task, result = c.task, leaving(c)
    w = RingWriter(task.kernel, task.buffers, (ring.m, ring.n // ring.pieces), result.place if result else None)
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
        _finish_function(arguments, body), _tile_function(GROUP), _fetch_function(parts, ring),
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
    right = f"[k, pn * {ring.n}]" if not parts.right.across else f"[pn * {ring.n}, k]"
    return f'''@gluon.jit
def fetch(a, b, lefts, rights, full, empty, rows, columns, depth):
    place = 0
    phase = 1
    for number in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
        pm, pn = tile(number, rows, columns)
        for k in range(0, depth, {ring.k}):
            mbarrier.wait(empty.index(place), phase)
            mbarrier.expect(full.index(place), a.nbytes_per_cta + b.nbytes_per_cta)
            tma.async_load(a, {left}, full.index(place), lefts.index(place))
            tma.async_load(b, {right}, full.index(place), rights.index(place))
            place += 1
            if place == {ring.stages}:
                place = 0
                phase ^= 1'''


def _multiply_function(parts: Parts, ring: Ring, arguments: Sequence[str]) -> str:
    given = ", ".join(["c", "outs", "lefts", "rights", "full", "empty", "rows", "columns", "depth",
                       "WHICH: gl.constexpr", *arguments])
    left = "lefts.index(place)" + (".permute((1, 0))" if parts.left.across else "")
    right = "rights.index(place)" + (".permute((1, 0))" if parts.right.across else "")
    layout = f"gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[{ring.warps}, 1], instr_shape=[16, {ring.n}, " \
             f"{32 // item_bytes(parts.factor)}])"
    own = "\n".join(f"        {line}" for line in _pieces(ring, arguments))
    numbers = f"gl.program_id(0) + WHICH * gl.num_programs(0), rows * columns, {ring.groups} * gl.num_programs(0)"
    if ring.turns:
        begin = f"""    turn = (depth + {ring.k - 1}) // {ring.k}
    at = WHICH * turn
    place = at % {ring.stages}
    phase = (at // {ring.stages}) & 1"""
        step = f"""        at += 2 * turn
        place = at % {ring.stages}
        phase = (at // {ring.stages}) & 1
"""
    else:
        begin, step = "    place = 0\n    phase = 0", ""
    kind = storage_type(parts.sum)
    return f'''@gluon.jit
def multiply({given}):
    layout: gl.constexpr = {layout}
    out = outs.index(WHICH)
{begin}
    for number in range({numbers}):
        pm, pn = tile(number, rows, columns)
        running = warpgroup_mma_init(gl.zeros(({ring.m}, {ring.n}), {kind}, layout))
        last = 0
        for k in range(0, depth, {ring.k}):
            mbarrier.wait(full.index(place), phase)
            running = warpgroup_mma({left}, {right}, running, use_acc=k > 0, is_async=True)
            running = warpgroup_mma_init(warpgroup_mma_wait(1, deps=[running]))
            mbarrier.arrive(empty.index(last), pred=k > 0)
            last = place
            place += 1
            if place == {ring.stages}:
                place = 0
                phase ^= 1
        acc = warpgroup_mma_wait(0, deps=[running])
        mbarrier.arrive(empty.index(last))
{step}{own}
    tma.store_wait(0)'''


def _pieces(ring: Ring, arguments: Sequence[str]) -> list[str]:
    """The lines that take a tile apart along N, and finish its pieces."""
    names, width = ["acc"], ring.n
    lines: list[str] = []
    while len(names) < ring.pieces:
        width //= 2
        split: list[str] = []
        for name in names:
            lines.append(f"{name}0, {name}1 = {name}.reshape(({ring.m}, 2, {width})).permute((0, 2, 1)).split()")
            split += [f"{name}0", f"{name}1"]
        names = split
    for number, name in enumerate(names):
        place = f"pm * {ring.m}, pn * {ring.n} + {number * width}"
        lines.append(f"finish({', '.join([name, place, 'c', 'out', f'{name}.type.layout', *arguments])})")
    return lines


def _main_function(w: RingWriter, parts: Parts, ring: Ring, symbol: str, arguments: Sequence[str]) -> str:
    kind = storage_type(parts.factor)
    width = ring.n // ring.pieces
    left = (ring.k, ring.m) if parts.left.across else (ring.m, ring.k)
    right = (ring.n, ring.k) if parts.right.across else (ring.k, ring.n)
    lines = [
        f"la: gl.constexpr = gl.NVMMASharedLayout.get_default_for([{left[0]}, {left[1]}], {kind})",
        f"lb: gl.constexpr = gl.NVMMASharedLayout.get_default_for([{right[0]}, {right[1]}], {kind})",
        f"a = tma.make_tensor_descriptor({parts.left.describe(w, {}, left)}, la)",
        f"b = tma.make_tensor_descriptor({parts.right.describe(w, {}, right)}, lb)",
        f"lefts = gl.allocate_shared_memory({kind}, [{ring.stages}, {left[0]}, {left[1]}], la)",
        f"rights = gl.allocate_shared_memory({kind}, [{ring.stages}, {right[0]}, {right[1]}], lb)",
    ]
    if parts.result is not None:
        out = storage_type(parts.result.place.dtype)
        lines += [
            f"lc: gl.constexpr = gl.NVMMASharedLayout.get_default_for([{ring.m}, {width}], {out})",
            f"c = tma.make_tensor_descriptor({parts.result.describe(w, {}, (ring.m, width))}, lc)",
            f"outs = gl.allocate_shared_memory({out}, [{ring.groups}, {ring.m}, {width}], lc)",
        ]
    else:
        lines += ["c = 0", "outs = lefts"]
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
    shared = ["c", "outs", "lefts", "rights", "full", "empty", "rows", "columns", "depth"]
    workers = [f"(multiply, ({', '.join([*shared, str(which), *arguments])}))" for which in range(ring.groups)]
    workers.append("(fetch, (a, b, lefts, rights, full, empty, rows, columns, depth))")
    warps, registers = ([4, 1], [_HALF, REGISTERS]) if ring.turns else ([1], [REGISTERS])
    lines.append(f"gl.warp_specialize([{', '.join(workers)}], {warps}, {registers})")
    body = "\n".join(f"    {line}" for line in lines)
    return f"@gluon.jit\ndef {symbol}({', '.join(arguments)}):\n{body}"
