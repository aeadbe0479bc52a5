"""Attention as one kernel, one tile of queries against one tile of keys at a time, with scores kept in registers.

    for each tile of queries:
        for each tile of keys:
            x = score(q k)                              a product by tensor cores, then scale and masks
            new = max(high, max(x))
            e = exp(x - new); r = exp(high - new)
            total = total * r + sum(e)
            acc = acc * r + e v                         the second product
            high = new
        result = acc / total

(Dao et al., "FlashAttention", 2022, and "FlashAttention-2", 2023; the running sum is that of Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018.) If queries are few, those of all heads that share keys and values
are rows of one tile. Tiles of keys that a positional mask hides from all queries are skipped. Tiles that no mask
affects and whose keys all exist are computed without masks.

A row that sees no key yields 0 / 0, as in the unfused program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.artifact.expressions import product
from motet.artifact.schema import Expr
from motet.compiler.codegen.gpu.accesses import source_of
from motet.compiler.codegen.gpu.attention.space import (
    LEAST,
    AttentionSpace,
    AttentionTile,
    choose_tiles,
    multiplies_by_threads,
    space_of,
)
from motet.compiler.codegen.gpu.tasks import ceiling, power_of_two, total
from motet.compiler.codegen.triton.attention.scores import Scores
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.scalars import rounded, storage_type
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.attention.description import Attention, KeyPiece
from motet.compiler.kernels.kernel import Access, Kernel
from motet.compiler.kernels.strides import Extent, StridedAccess
from motet.compiler.targets.gpu import GpuTarget

LOWEST = "-3.4028234663852886e38"  # initial maximum of the scores: subtracted from -inf it gives -inf
LOG2_E = math.log2(math.e)
_LITTLE = 500_000_000  # operations up to which one kernel pays by the launches that it saves
_PROGRAMS_PER_SM = 4  # programs per SM that may run at the same time
_PRECISIONS = {"ieee": "ieee", "tf32": "tf32", "tf32x3": "tf32x3"}
_PART = 16  # elements of a head that are multiplied at a time, where registers hold no more


def pays(attention: Attention, target: GpuTarget) -> bool:
    """Whether one kernel is faster than two products and a softmax. Products of f32 in full precision do not use tensor
    cores and need tiles so large that registers hold nothing else, so that fusion pays only for little work."""
    if attention.dtype == "f64" or attention.repairs:
        return False
    if attention.dtype != "f32" or target.precision != "ieee":
        return True
    sizes = [size if isinstance(size, int) else 1 for size in attention.sizes]
    points = math.prod(size for dim, size in enumerate(sizes) if dim not in (attention.depth, attention.column))
    return 2 * points * (sizes[attention.depth] + sizes[attention.column]) <= _LITTLE


@dataclass(frozen=True)
class AttentionLaunch:
    """A launch of one attention; its arguments are the values `buffers` of `kernel`."""

    kernel: Kernel
    buffers: tuple[int, ...]
    symbol: str
    forms: tuple[Form, ...]
    about: str


@dataclass(frozen=True)
class Emitted:
    launches: tuple[AttentionLaunch, ...]
    workspaces: tuple[Expr, ...] = ()


def emit(
    attention: Attention, symbol: str, about: str, target: GpuTarget, first: Sequence[Form] = ()
) -> Emitted:
    """Programs: `first`, then those with the best tiles. Raises `Unsupported`."""
    space, kernel = space_of(attention), attention.kernel
    stored = stored_by(attention)
    forms = tuple(
        form(space, tile, stored, kernel.externals, symbol, about, target) for tile in choose_tiles(space, target)
    )
    return Emitted((AttentionLaunch(kernel, kernel.externals, symbol, (*first, *forms), about),))


def stored_by(attention: Attention) -> dict[int, StridedAccess]:
    """The values that are stored, and their accesses."""
    epilogue = attention.epilogue
    written = [(epilogue.value, epilogue.place), *(pair for step in epilogue.steps for pair in step.writes)]
    return {value: place for value, place in written if place is not None}


def form(
    space: AttentionSpace, tile: AttentionTile, stored: Mapping[
        int, StridedAccess
    ], buffers: tuple[int, ...], symbol: str, about: str,
    target: GpuTarget,
) -> Form:
    w = Writer(space.attention.kernel, buffers, (tile.rows, tile.keys))
    flash = Flash(w, space, tile, target)
    flash.begin()
    flash.all_keys()
    flash.finish(stored)
    tasks = product((ceiling(space.row_count, tile.rows), total(space.batch).expression))
    # A few programs launched early would share SMs that are free at that time, and take up to half as long again.
    early = not isinstance(tasks, int) or tasks >= _PROGRAMS_PER_SM * target.processors
    return Form(w.module(symbol, about), tasks, tile.warps, tile.stages, tile.label, early=early)


@dataclass
class Flash:
    """The text of one program; `at` holds the coordinates of its queries."""

    w: Writer
    space: AttentionSpace
    tile: AttentionTile
    target: GpuTarget

    def __post_init__(self) -> None:
        a = self.space.attention
        self.attention = a
        self.depth = max(LEAST, power_of_two(self.space.depth))
        self.columns = max(LEAST, power_of_two(self.space.columns))
        self.at: dict[int, Coordinate] = {}
        self.row_mask: str | None = None
        self.first = self.last = "0"  # positions in the sequence of the first and last query of the tile
        self.factor = a.scale * LOG2_E
        self.float = storage_type(a.dtype)
        self.precision = (
            f', input_precision="{_PRECISIONS[self.target.precision]}"' if a.dtype == "f32" else ""
        )
        # Where threads multiply on Intel's GPUs, each keeps whole rows of both operands.
        self.by_parts = multiplies_by_threads(self.space, self.target) and self.depth > _PART

    # -- queries --

    def begin(self) -> None:
        """Define the program's number, its queries, and its accumulators."""
        w, space = self.w, self.space
        program = w.program()
        count = ceiling(space.row_count, self.tile.rows)
        if count == 1:
            self.at |= self._batch(program)
            self.rows("0")
        else:
            blocks = w.define("t", f"tl.cdiv({w.extent(space.row_count)}, {self.tile.rows})")
            self.at |= self._batch(w.define("p", f"{program} // {blocks}"))
            number_ = f"{program} % {blocks}"
            if self.attention.causal is not None:  # programs that see the most keys run first
                number_ = f"{blocks} - 1 - {number_}"
            self.rows(w.define("t", f"({number_}) * {self.tile.rows}"))
        self.prepare()

    def begin_at(self, batch: str, row: str) -> None:
        """Like `begin`, for the rows from `row` on of batch `batch`."""
        self.at |= self._batch(batch)
        self.rows(row)
        self.prepare()

    def prepare(self) -> None:
        """Load the queries, unless they are loaded by parts, and define the accumulators."""
        if not self.by_parts:
            self.load_queries()
        self.sums()

    def _batch(self, program: str) -> dict[int, Coordinate]:
        return self.w.decompose(Coordinate(program), self.space.batch) if self.space.batch else {}

    def rows(self, begin: str) -> None:
        """Define the coordinates of the tile's rows, the first of which is `begin`."""
        w, space = self.w, self.space
        w.shape = (self.tile.rows, self.tile.keys)
        row = w.define("m", w.range(0) if begin == "0" else f"{begin} + {w.range(0)}")
        count = space.row_count
        if count.known is None or count.factor % self.tile.rows:
            self.row_mask = w.define("b", f"{row} < {w.extent(count)}")
        if space.rows:
            self.at |= w.decompose(Coordinate(row, frozenset({0})), space.rows)
        if self.attention.row is not None:
            length = w.extent(Extent.of(self.attention.sizes[self.attention.row]))
            self.first = "0" if space.merged else begin
            self.last = f"{length} - 1" if space.merged or begin == "0" else f"{begin} + {self.tile.rows - 1}"

    def load_queries(self) -> None:
        a, w = self.attention, self.w
        w.shape, w.remembered = (self.tile.rows, self.depth), {}
        w.masks = {} if self.row_mask is None else {0: self.row_mask}
        query = self._load(a.query, self.at | self._inner(a.depth, self.space.depth, self.depth, 1))
        self.query = self._whole_tile(query)

    def _whole_tile(self, query: str) -> str:
        """`query`, which is one row if there is a single query, as all rows of the tile where Triton needs those."""
        if self.target.xpu is None or self.space.row_count.known != 1:
            return query
        return self.w.define("q", f"tl.broadcast_to({query}, {self.w.tile})")

    def sums(self) -> None:
        w, tile = self.w, self.tile
        w.line(f"high = tl.full(({tile.rows},), {LOWEST}, tl.float32)")
        w.line(f"total = tl.zeros(({tile.rows},), tl.float32)")
        w.line(f"acc = tl.zeros(({tile.rows}, {self.columns}), tl.float32)")

    def _inner(self, dim: int, extent: int, padded: int, axis: int) -> dict[int, Coordinate]:
        """The coordinate along a head, on `axis` of the tile."""
        w = self.w
        inner = w.define("c", w.range(axis))
        if extent != padded:
            w.masks[axis] = w.define("b", f"{inner} < {extent}")
        return {dim: Coordinate(inner, frozenset({axis}))}

    def _load(self, access: Access, at: Mapping[int, Coordinate]) -> str:
        """Load a tile of an operand. An access to a single key is broadcast to all keys."""
        w, a = self.w, self.attention
        source = source_of(a.kernel, access, a.sizes)
        value = w.read(source, at, other="0", raw=True)
        if access is a.query or source.strides[a.key].factor:
            return value
        (axis,) = at[a.key].axes
        exists = f"tl.where({w.masks[axis]}, {value}, 0)" if axis in w.masks else value
        return w.define("x", f"tl.broadcast_to({exists}, {w.tile}).to({self.float})")

    # -- keys --

    def all_keys(self) -> None:
        """Process all keys that the tile's queries see."""
        for piece in self.attention.pieces:
            begin, end = str(piece.first), self.w.extent(self.space.keys)
            if isinstance(piece.size, int):
                end = str(piece.first + piece.size)
            self.keys_between(piece, begin, *self.bounds(begin, end))

    def bounds(self, begin: str, length: str) -> tuple[str, str]:
        """The ends, from `begin` on, of the tiles of keys that all queries see, and of those that any query sees."""
        w, keys, causal = self.w, self.tile.keys, self.attention.causal
        if causal is None and length.isdigit() and begin.isdigit():
            return str(int(begin) + (int(length) - int(begin)) // keys * keys), length
        if causal is None:
            return w.define("n", f"{begin} + ({length} - {begin}) // {keys} * {keys}"), length
        seen = w.define("n", f"tl.maximum(tl.minimum({self.first} + {causal.offset + 1}, {length}), {begin})")
        whole = w.define("n", f"{begin} + ({seen} - {begin}) // {keys} * {keys}")
        if not causal.certain:
            return whole, length
        end = w.define("n", f"tl.maximum(tl.minimum({self.last} + {causal.offset + 1}, {length}), {begin})")
        return whole, end

    def keys_between(self, piece: KeyPiece, begin: str, whole: str, end: str) -> None:
        """Process the tiles from `begin` to `whole` without masks, then those up to `end` with masks."""
        w, tile = self.w, self.tile
        if w.wide:  # positions fit in 32 bits, their products with strides need 64
            begin, whole, end = (
                one if one.isdigit() else w.define("n", f"({one}).to(tl.int32)") for one in (begin, whole, end)
            )
        descriptors = self.describe(piece, end) if tile.descriptors else None
        if tile.specialised and whole != end:
            whole = begin
        for start, stop, careful in ((begin, whole, False), (whole, end, True)):
            if start == stop:
                continue
            extra = ", warp_specialize=True" if tile.specialised else ""
            w.line(f"for j in tl.range({start}, {stop}, {tile.keys}{extra}):")
            w.level += 1
            self.step(piece, careful, end, descriptors)
            w.level -= 1

    def describe(self, piece: KeyPiece, end: str) -> tuple[str, str]:
        """Create descriptors of this program's keys and values; elements from `end` on read as 0."""
        return (
            self._descriptor(piece.keys, self.space.depth, self.depth, end),
            self._descriptor(piece.values, self.space.columns, self.columns, end),
        )

    def _descriptor(self, access: Access, extent: int, padded: int, end: str) -> str:
        a, w = self.attention, self.w
        place = source_of(a.kernel, access, a.sizes)
        fixed = {dim: coordinate for dim, coordinate in self.at.items() if place.strides[dim].factor}
        offset = w.offset(place, fixed).text
        stride = w.extent(place.strides[a.key])
        return w.define(
            "d",
            f"tl.make_tensor_descriptor(v{place.value} + ({offset}), [{end}, {extent}], [{stride}, 1], "
            f"[{self.tile.keys}, {padded}])",
        )

    def step(self, piece: KeyPiece, careful: bool, end: str, descriptors: tuple[str, str] | None) -> None:
        """Process one tile of keys."""
        a, w, tile = self.attention, self.w, self.tile
        w.remembered, w.masks = {}, {}
        w.shape = (self.depth, tile.keys)
        key = self._key(1)
        exists = w.define("b", f"{key} < {end}") if careful else None
        if descriptors is not None:
            keys = w.define("k", f"{descriptors[0]}.load([j, 0]).T")
        elif not self.by_parts:
            w.masks = {} if exists is None else {1: exists}
            at = self.at | {a.key: Coordinate(key, frozenset({1}))}
            keys = self._load(piece.keys, at | self._inner(a.depth, self.space.depth, self.depth, 0))
        else:
            keys = ""
        product = self._by_parts(piece, key, exists) if self.by_parts else w.define(
            "s", f"tl.dot({self.query}, {keys}{self.precision})"
        )
        power, ratio = self.powers(product, key, exists, careful)
        if descriptors is not None:
            values = w.define("v", f"{descriptors[1]}.load([j, 0])")
        else:
            values = self._values(piece, careful, end)
        w.line(f"acc = acc * {ratio}[:, None]")
        factor = power if a.dtype == "f32" else w.define("e", f"{power}.to({self.float})")
        w.line(f"acc = tl.dot({factor}, {values}, acc{self.precision})")

    def _by_parts(self, piece: KeyPiece, key: str, exists: str | None) -> str:
        """The products of the queries and a tile of keys, `_PART` elements of a head at a time."""
        a, w, tile = self.attention, self.w, self.tile
        w.line(f"s = tl.zeros(({tile.rows}, {tile.keys}), tl.float32)")
        w.line(f"for i in range(0, {self.space.depth}, {_PART}):")
        w.level += 1
        w.shape, w.remembered = (tile.rows, _PART), {}
        w.masks = {} if self.row_mask is None else {0: self.row_mask}
        query = self._whole_tile(self._load(a.query, self.at | self._part(1)))
        w.shape, w.remembered = (_PART, tile.keys), {}
        w.masks = {} if exists is None else {1: exists}
        keys = self._load(piece.keys, self.at | {a.key: Coordinate(key, frozenset({1}))} | self._part(0))
        w.line(f"s = tl.dot({query}, {keys}, s{self.precision})")
        w.level -= 1
        w.remembered = {}
        return "s"

    def _part(self, axis: int) -> dict[int, Coordinate]:
        """The coordinate along a part of a head, on `axis` of the tile."""
        w, depth = self.w, self.space.depth
        inner = w.define("c", f"i + {w.range(axis)}")
        if depth % _PART:
            w.masks[axis] = w.define("b", f"{inner} < {depth}")
        return {self.attention.depth: Coordinate(inner, frozenset({axis}))}

    def _key(self, axis: int) -> str:
        text = f"j + {self.w.range(axis)}"
        return self.w.define("n", f"({text}).to(tl.int64)" if self.w.wide else text)

    def powers(self, product: str, key: str, exists: str | None, careful: bool) -> tuple[str, str]:
        """The exponentials of a tile of scores, and the factor that rescales earlier results."""
        a, w, tile = self.attention, self.w, self.tile
        w.shape, w.remembered = (tile.rows, tile.keys), {}
        w.masks = {axis: mask for axis, mask in ((0, self.row_mask), (1, exists)) if mask is not None}
        at = self.at | {a.key: Coordinate(key, frozenset({1}))}
        score = Scores(w, a, at, product, careful).text()
        if exists is not None:
            score = w.define("s", f'tl.where({exists}, {score}, float("-inf"))')
        if a.reads:  # as written in the program, whose scale may be any value
            scaled = score if a.scale == 1 else w.define("s", f"{score} * {a.scale!r}")
            new = w.define("h", f"tl.maximum(high, tl.max({scaled}, 1))")
            power = w.define("e", f"tl.exp2(({scaled} - {new}[:, None]) * {LOG2_E!r})")
            ratio = w.define("r", f"tl.exp2((high - {new}) * {LOG2_E!r})")
        else:
            new = w.define("h", f"tl.maximum(high, tl.max({score}, 1) * {self.factor!r})")
            power = w.define("e", f"tl.exp2({score} * {self.factor!r} - {new}[:, None])")
            ratio = w.define("r", f"tl.exp2(high - {new})")
        w.line(f"total = total * {ratio} + tl.sum({power}, 1)")
        w.line(f"high = {new}")
        return power, ratio

    def _values(self, piece: KeyPiece, careful: bool, end: str) -> str:
        a, w = self.attention, self.w
        w.shape, w.remembered, w.masks = (self.tile.keys, self.columns), {}, {}
        key = self._key(0)
        if careful:
            w.masks[0] = w.define("b", f"{key} < {end}")
        at = self.at | {a.key: Coordinate(key, frozenset({0}))}
        return self._load(piece.values, at | self._inner(a.column, self.space.columns, self.columns, 1))

    # -- results --

    def finish(self, stored: Mapping[int, StridedAccess]) -> None:
        """Divide by the sums, run the epilogue and store the results."""
        a, w = self.attention, self.w
        w.shape, w.remembered = (self.tile.rows, self.columns), {}
        w.masks = {} if self.row_mask is None else {0: self.row_mask}
        at = self.at | self._inner(a.column, self.space.columns, self.columns, 1)
        dtype = a.kernel.values[a.main.outputs[0].value].dtype
        if a.safe:  # no key was seen: 0 / 1
            w.line("total = tl.where(total == 0, 1.0, total)")
        value = w.define("x", rounded("acc / total[:, None]", dtype))
        w.finish(a.epilogue, value, at, stored)
