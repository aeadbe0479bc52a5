"""Writes persistent contractions (`persistent.py`) in Gluon, Triton's language of explicit layouts and barriers.

`full` and `empty` are the barriers of the slots. Descriptors are created where they are used, in parallel: one warp
loads the left operand, another one the right operand, and the consumer warps describe the result. All of them wait for
the launch's dependences afterwards (`programmatic_launch.py`), except for constants, which no kernel writes.

Operands of f32 in full precision are multiplied by the threads, limited by their reads of shared memory. A thread
computes about as many rows as columns of a tile, in groups of four, or single ones if lines run along K, so that no two
threads access the same bank at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.compiler.codegen.gpu.gemm.operand_layout import Matrix
from motet.compiler.codegen.gpu.gemm.persistent_tiles import PersistentParts, Ring
from motet.compiler.codegen.triton.gemm import persistent_wide as ring_wide
from motet.compiler.codegen.triton.gemm.descriptors import describe, short
from motet.compiler.codegen.triton.gemm.products import group_of
from motet.compiler.codegen.triton.text.gluon import GluonWriter
from motet.compiler.codegen.triton.text.scalars import from_storage, storage_type, to_storage
from motet.compiler.codegen.triton.text.writer import Coordinate, symbol_name
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.strides import StridedAccess

HEAD = GluonWriter.head + '''from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
'''
REGISTERS = 24  # of each thread of the producer warps
WAIT = 'gl.inline_asm("griddepcontrol.wait;", "~{memory}")'
NEXT = 'gl.inline_asm("griddepcontrol.launch_dependents;", "~{memory}")'  # before a tile's epilogue
_SLICE = 8  # steps of K that threads multiply at a time


class RingWriter(GluonWriter):
    """A `Writer` for the epilogue of a piece of a tile, in the layout of the products, that stores `result` through
    shared memory."""

    def __init__(
        self, kernel: Kernel, buffers: Sequence[int], shape: Sequence[int], result: Matrix | None, outs: int
    ) -> None:
        super().__init__(kernel, buffers, shape)
        self.result = result
        self.outs = outs
        self.points = 0  # the number of leading lines that compute a piece's coordinates
        self.ahead: list[str] | None = None  # the load, before the tile, of what its epilogue reads at every point

    def read_ahead(self) -> None:
        """From here on, load what is read at every point when the tile begins, if it is a 16-bit value and the first
        such one; registers hold no more."""
        self.points, self.ahead = len(self.lines), []

    def read(self, source: StridedAccess, at: Mapping[int, Coordinate], other: str = "", raw: bool = False) -> str:
        offset = self.offset(source, at)
        mask = " & ".join(self.mask_of(offset.axes))
        text = f"tl.load(v{source.value} + ({offset.text}){f', mask={mask}' if mask else ''})"
        whole = not source.bounds and len(offset.axes) == len(self.shape)
        short = item_bytes(source.dtype) <= 2
        if self.ahead is None or not whole or not short or (self.ahead and text not in self.ahead):
            return super().read(source, at, other, raw)
        self.ahead = [text]
        return "e0" if raw else self.define("x", from_storage("e0", source.dtype))

    def write(
        self, place: StridedAccess, at: Mapping[int, Coordinate], value: str, shape: Sequence[int] | None = None
    ) -> None:
        if self.result is None or place != self.result.place:
            super().write(place, at, value, shape)
            return
        stored = self.define("y", to_storage(f"({value})", place.dtype))
        out, corner = ("out.permute((1, 0))", "[n_at, m_at]") if self.result.across else ("out", "[m_at, n_at]")
        self.line(f"tma.store_wait({self.outs - 1})")
        self.line(f"{out}.store({stored})")
        self.line("fence_async_shared()")
        self.line(f"tma.async_store(c, {corner}, out)")


def module(w: RingWriter, parts: PersistentParts, ring: Ring, symbol: str, about: str) -> str:
    """The whole source; `w` holds the lines of a piece's epilogue."""
    arguments = [*(f"v{value}" for value in w.buffers), *map(symbol_name, w.kernel.symbols)]
    body = w.text()
    library = "from triton.language.extra import libdevice\n" if "libdevice." in body else ""
    functions = [
        *_ahead_function(w, ring, arguments), _finish_function(w, arguments, body),
        tile_function(group_of(ring.m, ring.n)),
        *_fetch_functions(w, parts, ring, arguments), *([ring_wide.functions(ring, parts)] if ring.wide else []),
        _multiply_function(w, parts, ring, arguments),
        _main_function(w, parts, ring, symbol, arguments),
    ]
    return f'"""{about}\n\n{w.described()}"""\n\n{HEAD}{library}\n\n' + "\n\n\n".join(functions) + "\n"


def _ahead_function(w: RingWriter, ring: Ring, arguments: Sequence[str]) -> list[str]:
    """The function that loads what the epilogue of `width` columns of a tile reads at every point."""
    if not w.ahead:
        return []
    given = ", ".join(["m_at", "n_at", "width: gl.constexpr", "L: gl.constexpr", *arguments])
    columns = f"arange(0, {ring.piece}, gl.SliceLayout(0"
    points = [line.replace(columns, "arange(0, width, gl.SliceLayout(0") for line in w.lines[: w.points]]
    body = "\n".join([*points, f"    return {', '.join(w.ahead)}"])
    return [f"@gluon.jit\ndef ahead({given}):\n{body}"]


def _finish_function(w: RingWriter, arguments: Sequence[str], body: str) -> str:
    early = [f"e{number}" for number in range(len(w.ahead or ()))]
    given = ", ".join(["acc", *early, "m_at", "n_at", "c", "out", "L: gl.constexpr", *arguments])
    return f"@gluon.jit\ndef finish({given}):\n{body}"


def barrier_lines(stages: int, fetching: int) -> list[str]:
    """The lines that make the barriers of a ring. Each of its `stages` is full once `fetching` functions have filled
    it, and empty once it is multiplied."""
    return [
        f"full = mbarrier.allocate_mbarrier(batch={stages})",
        f"empty = mbarrier.allocate_mbarrier(batch={stages})",
        f"for i in gl.static_range({stages}):",
        f"    mbarrier.init(full.index(i), count={fetching})",
        "    mbarrier.init(empty.index(i), count=1)",
        "fence_async_shared()",
    ]


def tile_function(group: int) -> str:
    """The function from numbers to tiles: groups of rows of tiles process their columns together."""
    return f'''@gluon.jit
def tile(number, rows, columns):
    first = number // ({group} * columns) * {group}
    height = tl.minimum(rows - first, {group})
    rest = number % ({group} * columns)
    return first + rest % height, rest // height'''


def _tile_lines(ring: Ring) -> list[str]:
    """The lines that compute the tile of a program; the tiles of a pair share rows."""
    if not ring.paired:
        return ["pm, pn = tile(number, rows, columns)"]
    return ["pm, pn = tile(number // 2, rows, columns // 2)", "pn = pn * 2 + number % 2"]


def _shared(ring: Ring) -> list[str]:
    """The arguments of all warps."""
    places = ["lefts", *(f"rights{i}" for i in range(1 if ring.wide else len(ring.widths)))]
    return [*places, "full", "empty", "rows", "columns", "depth"]


def _begins(ring: Ring) -> list[int]:
    """The first column of each part of a tile."""
    return [sum(ring.widths[:i]) for i in range(len(ring.widths))]


# -- producer warps --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fetched:
    """An operand for its producer warp: its side, the lines that describe it and that load a tile, and the names of the
    descriptors of a tile's parts."""

    side: str
    matrix: Matrix
    making: Sequence[str]
    loads: Sequence[str]
    names: Sequence[str]


def _fetch_functions(w: RingWriter, parts: PersistentParts, ring: Ring, arguments: Sequence[str]) -> list[str]:
    making = [_described(w, "a", "lefts", parts.left, (ring.m, ring.k))]
    corner = f"[k, pm * {ring.m}]" if parts.left.across else f"[pm * {ring.m}, k]"
    left = _Fetched("left", parts.left, making, [_load("a", corner, "lefts")], ["a"])
    making, loads = [], []
    for i, (width, begin) in enumerate(zip(ring.widths, _begins(ring), strict=True)):
        if width not in ring.widths[:i]:
            making.append(_described(w, f"b{width}", f"rights{i}", parts.right, (ring.k, width)))
        column = f"pn * {ring.n}" + (f" + {begin}" if begin else "")
        corner = f"[{column}, k]" if parts.right.across else f"[k, {column}]"
        where = ("rights0", ring_wide.at(ring, i)) if ring.wide else (f"rights{i}", "place")
        loads.append(_load(f"b{width}", corner, *where))
    right = _Fetched("right", parts.right, making, loads, [f"b{width}" for width in ring.widths])
    return [_fetch_function(w, ring, arguments, each) for each in (left, right)]


def _fetch_function(w: RingWriter, ring: Ring, arguments: Sequence[str], factor: _Fetched) -> str:
    making = list(factor.making)
    if w.kernel.values[factor.matrix.place.value].role != "constant":
        making.append(WAIT)
    return f'''@gluon.jit
def fetch_{factor.side}({", ".join([*_shared(ring), *arguments])}):
{indented(making, 1)}
    place = 0
    phase = 1
    for number in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
{indented(_tile_lines(ring), 2)}
        for k in range(0, depth, {ring.k}):
            mbarrier.wait(empty.index(place), phase)
            mbarrier.expect(full.index(place), {" + ".join(f"{name}.nbytes_per_cta" for name in factor.names)})
{indented(factor.loads, 3)}
{indented(_onwards(ring), 3)}'''


def _load(matrix: str, corner: str, places: str, place: str = "place") -> str:
    return f"tma.async_load({matrix}, {corner}, full.index(place), {places}.index({place}))"


def _described(w: RingWriter, name: str, places: str, matrix: Matrix, size: tuple[int, int]) -> str:
    """The line that describes a matrix, to copy tiles of `size` of it to and from `places`."""
    if matrix.across:
        size = size[1], size[0]
    return f"{name} = tma.make_tensor_descriptor({describe(w, matrix, {}, size)}, {places}.layout)"


def _onwards(ring: Ring) -> list[str]:
    return ["place += 1", f"if place == {ring.stages}:", "    place = 0", "    phase ^= 1"]


# -- consumer warps --------------------------------------------------------------------------------


def _multiply_function(w: RingWriter, parts: PersistentParts, ring: Ring, arguments: Sequence[str]) -> str:
    setting, begin = _accumulators(parts, ring)
    if parts.result is None:
        setting.append("c = 0")
    else:
        setting.append(_described(w, "c", "outs", parts.result, (ring.m, ring.piece)))
    setting.append(WAIT)
    if parts.by_threads:
        turn, closing = _turn_of_threads(parts, ring), [NEXT, *(f"acc{i} = r{i}" for i in range(len(ring.widths)))]
    else:
        turn = _turn(parts, ring, "k > 0", *(("x", "y") if parts.in_registers else ()))
        if parts.in_registers:
            turn += _turn(parts, ring, "True", "y", "x")
        ended = f"{_names('acc', ring)} = warpgroup_mma_wait(0, deps=[{_names('r', ring)}])"
        closing = [
            NEXT,
            ring_wide.done_line(ring) if ring.wide else ended,
            "mbarrier.arrive(empty.index(last))",
        ]
    return f'''@gluon.jit
def multiply({", ".join(["outs", *_shared(ring), *arguments])}):
{indented(setting, 1)}
    place = 0
    phase = 0
    for number in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
{indented(_tile_lines(ring), 2)}
{indented([*begin, *_ahead(w, ring, arguments)], 2)}
        last = 0
        for k in range(0, depth, {_together(parts, ring)}):
{indented(turn, 3)}
{indented([*closing, *_ending(w, parts, ring, arguments)], 2)}
    tma.store_wait(0)'''


def _accumulators(parts: PersistentParts, ring: Ring) -> tuple[list[str], list[str]]:
    """The lines that define the layouts of sums, and those that set sums to zero."""
    kind, step = storage_type(parts.sum), 32 // item_bytes(parts.factor)
    layouts: list[str] = []
    zeros: list[str] = []
    if parts.by_threads:
        own = f"[4, {1 if parts.right.across else 4}], [4, 8], [{ring.warps // 2}, 2], [1, 0]"
        for i, width in enumerate(ring.widths):
            layouts.append(f"layout{i}: gl.constexpr = gl.BlockedLayout({own})")
            zeros.append(f"r{i} = gl.zeros(({ring.m}, {width}), {kind}, layout{i})")
        return layouts, zeros
    for i, width in enumerate(ring.widths):
        layouts.append(
            f"layout{i}: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[{ring.warps}, 1], "
            f"instr_shape=[16, {width}, {step}])"
        )
        zero = f"gl.zeros(({ring.m}, {width}), {kind}, layout{i})"
        zeros.append(f"r{i} = " + (zero if ring.wide else f"warpgroup_mma_init({zero})"))
    if parts.in_registers:
        layouts.append(f"factors: gl.constexpr = gl.DotOperandLayout(0, layout0, {4 // item_bytes(parts.factor)})")
        zeros.append(f"y = gl.zeros(({ring.m}, {ring.k}), {storage_type(parts.factor)}, factors)")
    return layouts, zeros


def _turn(parts: PersistentParts, ring: Ring, begun: str, own: str = "", other: str = "") -> list[str]:
    """The lines that multiply one slot's tiles while earlier products are in progress, and release the previous slot,
    if `begun` holds. A left operand in registers is loaded to `own`; `other` is in use until the earlier products are
    done."""
    left = "lefts.index(place)" + (".permute((1, 0))" if parts.left.across else "")
    lines = ["mbarrier.wait(full.index(place), phase)"]
    if ring.wide:
        return [*lines, *ring_wide.turn_lines(ring, begun), *_given_back(ring, begun)]
    if own:
        lines.append(f"{own} = {left}.load(factors)")
        left = own
    for i in range(len(ring.widths)):
        right = f"rights{i}.index(place)" + (".permute((1, 0))" if parts.right.across else "")
        lines.append(f"r{i} = warpgroup_mma({left}, {right}, r{i}, use_acc={begun}, is_async=True)")
    kept = f", {other}" if own else ""
    running = f"{len(ring.widths)}, deps=[{_names('r', ring)}{kept}]"
    lines.append(f"{_names('t', ring)}{kept} = warpgroup_mma_wait({running})")
    lines += [f"r{i} = warpgroup_mma_init(t{i})" for i in range(len(ring.widths))]
    return [*lines, *_given_back(ring, begun)]


def _given_back(ring: Ring, begun: str) -> list[str]:
    """The lines that release the previous slot, if there is one, and advance to the next."""
    return [f"mbarrier.arrive(empty.index(last), pred={begun})", "last = place", *_onwards(ring)]


def _turn_of_threads(parts: PersistentParts, ring: Ring) -> list[str]:
    """The lines that multiply one slot's tiles by threads, as much of K at a time as registers hold."""
    left = "lefts.index(place)" + (".permute((1, 0))" if parts.left.across else "")
    lines = ["mbarrier.wait(full.index(place), phase)", f"for s in gl.static_range({ring.k // _SLICE}):"]
    for i in range(len(ring.widths)):
        right = f"rights{i}.index(place)" + (".permute((1, 0))" if parts.right.across else "")
        lines += [
            f"    x{i} = {left}.slice(s * {_SLICE}, {_SLICE}, 1).load(gl.DotOperandLayout(0, layout{i}, 0))",
            f"    y{i} = {right}.slice(s * {_SLICE}, {_SLICE}, 0).load(gl.DotOperandLayout(1, layout{i}, 0))",
            f"    r{i} = gl.dot_fma(x{i}, y{i}, r{i})",
        ]
    return [*lines, "mbarrier.arrive(empty.index(place))", *_onwards(ring)]


def _together(parts: PersistentParts, ring: Ring) -> int:
    """The steps of K that are multiplied at a time; operands in registers have two buffers, used alternately."""
    return ring.k * (2 if parts.in_registers else 1)


def _names(name: str, ring: Ring) -> str:
    return ", ".join(f"{name}{i}" for i in range(len(ring.widths)))


def _ahead(w: RingWriter, ring: Ring, arguments: Sequence[str]) -> list[str]:
    """The lines that load what the epilogue of a tile reads at every point, part by part along N."""
    lines: list[str] = []
    for i, (width, begin) in enumerate(zip(ring.widths, _begins(ring), strict=True)):
        names = ", ".join(f"e{number}_{i}" for number in range(len(w.ahead or ())))
        given = [f"pm * {ring.m}", f"pn * {ring.n} + {begin}", str(width), f"layout{i}", *arguments]
        lines += [f"{names} = ahead({', '.join(given)})"] if names else []
    return lines


def _ending(w: RingWriter, parts: PersistentParts, ring: Ring, arguments: Sequence[str]) -> list[str]:
    """The lines that split a tile along N and run the epilogue on its pieces."""
    lines: list[str] = []
    number = 0
    early = range(len(w.ahead or ()))
    for i, (width, begin) in enumerate(zip(ring.widths, _begins(ring), strict=True)):
        names, size = [str(i)], width
        while size > ring.piece:
            size //= 2
            halves = f".reshape(({ring.m}, 2, {size})).permute((0, 2, 1)).split()"
            for which in ("acc", *(f"e{e}_" for e in early)):
                lines += [f"{which}{each}0, {which}{each}1 = {which}{each}{halves}" for each in names]
            names = [f"{each}{half}" for each in names for half in (0, 1)]
        for position, each in enumerate(names):
            out = f"outs.index({number % ring.outs})" if parts.result is not None else "outs"
            at = f"pm * {ring.m}", f"pn * {ring.n} + {begin + position * size}"
            given = [f"acc{each}", *(f"e{e}_{each}" for e in early), *at, "c", out, f"acc{each}.type.layout"]
            lines.append(f"finish({', '.join([*given, *arguments])})")
            number += 1
    return lines


def indented(lines: Sequence[str], level: int) -> str:
    """The text of lines, indented by `level` blocks."""
    return "\n".join("    " * level + line for line in lines)


# -- the whole program -----------------------------------------------------------------------------


def _main_function(w: RingWriter, parts: PersistentParts, ring: Ring, symbol: str, arguments: Sequence[str]) -> str:
    size, kind = (ring.m, ring.k), storage_type(parts.factor)
    lines = _places("lefts", kind, ring.stages, size, parts.left)
    alike = len(ring.widths) if ring.wide else 1  # parts that are contiguous
    for i, width in enumerate(ring.widths[::alike]):
        size = ring.k, width
        lines += _places(f"rights{i}", kind, ring.stages * alike, size, parts.right)
    if parts.result is None:
        lines.append("outs = 0")
    else:
        size, kind = (ring.m, ring.piece), storage_type(parts.result.place.dtype)
        lines += _places("outs", kind, ring.outs, size, parts.result)
    together = _together(parts, ring)
    common = ", ".join([*_shared(ring), *arguments])
    lines += [
        *barrier_lines(ring.stages, 2),
        f"rows = tl.cdiv({short(w, parts.rows)}, {ring.m})",
        f"columns = tl.cdiv({short(w, parts.columns)}, {ring.n})",
        f"depth = tl.cdiv({short(w, parts.depth)}, {together}) * {together}",
        f"gl.warp_specialize([(multiply, (outs, {common})), (fetch_left, ({common})), (fetch_right, ({common}))], "
        f"[1, 1], [{REGISTERS}, {REGISTERS}])",
    ]
    return f"@gluon.jit\ndef {symbol}({', '.join(arguments)}):\n{indented(lines, 1)}"


def _places(
    name: str, kind: str, count: int, size: tuple[int, int], matrix: Matrix
) -> list[str]:
    """The lines that allocate buffers for `count` tiles of `size` of a matrix."""
    if matrix.across:
        size = size[1], size[0]
    layout = f"[{size[0]}, {size[1]}], {kind}"
    return [
        f"{name}_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for({layout})",
        f"{name} = gl.allocate_shared_memory({kind}, [{count}, {size[0]}, {size[1]}], {name}_layout)",
    ]
