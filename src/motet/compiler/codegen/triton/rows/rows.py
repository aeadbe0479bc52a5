"""Rows as Triton programs: softmax, normalisations, sums, extremes, products of a matrix and a vector.

Element-wise values are computed again in each pass that needs them, which costs less than keeping them in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from motet.compiler.codegen.gpu.accesses import gathered, source_of
from motet.compiler.codegen.gpu.rows import RowsPlan, RowTile, kept_reads
from motet.compiler.codegen.gpu.tasks import total
from motet.compiler.codegen.triton.rows.reductions import beginning, combine, helper_of, masked, narrowed
from motet.compiler.codegen.triton.text.program import Form, FormTile
from motet.compiler.codegen.triton.text.scalars import carried_type, constant, from_storage, storage_type
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.kernel import Access
from motet.compiler.kernels.reduction import Reduction
from motet.compiler.kernels.rows import Rows
from motet.compiler.kernels.strides import Extent, StridedAccess

# Adds 0 to pairs of 16-bit numbers in a way that no compiler can fold: grids have one dimension, so that z is 0.
_HIDE = (
    'tl.inline_asm_elementwise("{{ .reg .b32 z; mov.u32 z, %ctaid.z; add.u32 $0, $1, z; }}", "=r,r", [{}], dtype={}, '
    "is_pure=False, pack=2)"
)


def emit(plan: RowsPlan) -> tuple[Form, ...]:
    """The programs of `plan`. Raises `UnsupportedOnGpu` for operations without code."""
    return tuple(_form(plan, tile) for tile in plan.tiles)


def _form(plan: RowsPlan, tile: RowTile) -> Form:
    launch = plan.found.launch
    e = _RowsEmitter(plan, tile)
    e.run()
    source = e.w.module(launch.symbol, launch.about)
    return Form(source, plan.tasks(tile), tile.warps, tile.stages, tile.label, tiles=_tiles(plan.found.rows, tile))


def _tiles(rows: Rows, tile: RowTile) -> tuple[FormTile, ...]:
    """The tiles along the outer loops of the first stage and along the others."""
    stage, outer = rows.stages[0], len(rows.outer)
    if [Extent.of(size) for size in stage.sizes[:outer]] != list(rows.outer):
        return ()
    inner = tuple(range(outer, len(stage.sizes)))
    return FormTile(tuple(range(outer)), tile.height), FormTile(inner, tile.width)


@dataclass
class _RowsEmitter:
    """Writes a program with tiles of `height` rows and `width` of their elements. `whole` means that such a tile covers
    a row; several `pieces` of a longer row are kept in registers."""

    plan: RowsPlan
    tile: RowTile
    made: dict[int, str] = field(default_factory=dict[int, str])  # values of rows, and of the current pass

    def __post_init__(self) -> None:
        rows = self.rows = self.plan.found.rows
        self.stored = self.plan.found.stored
        self.height, self.width = self.tile.height, self.tile.width
        self.w = Writer(rows.kernel, self.plan.found.launch.buffers, (self.height, self.width))
        length = rows.length.factor
        self.pieces = -(-length // self.width) if self.tile.whole and length > self.width else 0
        self.whole = self.tile.whole and not self.pieces
        self.producer = {access.value: s for s, stage in enumerate(rows.stages) for access in stage.outputs}
        self.at: dict[int, Coordinate] = {}  # by loop
        self.waiting: list[int] = []  # reductions for the next pass
        self.columns: list[tuple[dict[int, Coordinate], str | None]] = []  # of the tiles of a row, with their masks
        self.passes = 0
        self.latest: dict[str, tuple[int, str, str]] = {}  # kept: pass, value, number

    def run(self) -> None:
        self._rows()
        if self.whole:
            self._columns("")
        if self.pieces:
            self._load()
        for s in range(len(self.rows.stages)):
            self._stage(s)
        self._flush()
        self._finish()

    def _rows(self) -> None:
        """Define the coordinates over rows."""
        w, plan = self.w, self.plan
        program, own, others = w.program(), plan.along(plan.lane), plan.along(plan.others)
        count = total(own)
        if others:
            blocks = -(-count.factor // self.height)
            row = w.define("r", f"{program} % {blocks} * {self.height} + {w.range(0)}")
            self.at |= w.decompose(Coordinate(w.define("q", f"{program} // {blocks}")), others)
        else:
            row = w.define("r", f"{program} * {self.height} + {w.range(0)}")
        self.at |= w.decompose(Coordinate(row, frozenset({0})), own) if own else {}
        if count.known is None or count.factor % self.height:
            w.masks[0] = w.define("m", f"{row} < {w.extent(count)}")

    def _load(self) -> None:
        """Load all tiles of the kept inputs, before any of them is used."""
        for number in range(self.pieces):
            self._columns(f"{number * self.width} + " if number else "", number == self.pieces - 1)
            self.columns.append((dict(self.at), self.w.masks.get(1)))
            for s, access in kept_reads(self.rows):
                source = source_of(self.rows.kernel, access, self.rows.stages[s].sizes)
                self.w.read(source, self._points(s), raw=self._hides(source))

    def _stage(self, s: int) -> None:
        if self.waiting and self._needs(s) & {a.value for t in self.waiting for a in self.rows.stages[t].outputs}:
            self._flush()
        if self.rows.reduces[s]:
            self.waiting.append(s)
        elif not self.rows.wide[s]:
            self._evaluate(s, self.made)
            for access in self.rows.stages[s].outputs:
                self._store(s, access, self.made[access.value])

    def _needs(self, s: int) -> set[int]:
        """The values of these stages that stage `s` depends on."""
        found: set[int] = set()
        todo = [s]
        while todo:
            for access in self.rows.stages[todo.pop()].inputs:
                if access.value in self.producer and access.value not in found:
                    found.add(access.value)
                    todo.append(self.producer[access.value])
        return found

    # -- passes ------------------------------------------------------------------------------------

    def _columns(self, begin: str, last: bool = True) -> None:
        """Define the coordinates along the row, from `begin` on; in a `last` tile, some may be out of bounds."""
        w, rows = self.w, self.rows
        column = w.define("c", f"{begin}{w.range(1)}")
        w.masks.pop(1, None)
        length = rows.length
        if last and (not length.known or length.factor % self.width):  # a row without elements is masked entirely
            w.masks[1] = w.define("m", f"{column} < {w.extent(length)}")
        loops = [(size, len(rows.outer) + number) for number, size in enumerate(rows.inner)]
        self.at |= w.decompose(Coordinate(column, frozenset({1})), loops)

    def _turns(self) -> Iterator[dict[int, str]]:
        """A pass: yields, for each of its iterations, the values known in it."""
        w = self.w
        self.passes += 1
        if self.whole:
            yield self.made
            return
        for at, mask in self.columns:
            self.at = at | {number: self.at[number] for number in range(len(self.rows.outer))}
            w.masks = {axis: text for axis, text in w.masks.items() if axis != 1} | ({1: mask} if mask else {})
            yield dict(self.made)
        if self.pieces:
            return
        w.line(f"for k in range(0, {w.extent(self.rows.length)}, {self.width}):")
        w.level += 1
        w.remembered = {}
        self._columns("k + ")
        yield dict(self.made)
        w.level -= 1
        w.remembered = {}

    def _flush(self) -> None:
        """Run one pass for the waiting reductions."""
        if not self.waiting:
            return
        w = self.w
        sums: dict[tuple[int, int], str] = {}
        if not self.whole:
            for s in self.waiting:
                for k, each in enumerate(self.rows.reduces[s]):
                    kind = carried_type(each.accumulator)
                    sums[s, k] = w.define("a", f"tl.full({w.tile}, {beginning(each)}, {kind})")
        for known in self._turns():
            for s in self.waiting:
                terms = self._terms(s, known)
                for k, (each, term) in enumerate(zip(self.rows.reduces[s], terms, strict=True)):
                    spread = w.spread(term, each.accumulator)
                    mask = " & ".join(w.mask_of((1,)))
                    value = w.define("t", masked(each, mask, spread) if mask else spread)
                    if self.whole:
                        sums[s, k] = value
                    else:
                        w.line(f"{sums[s, k]} = {combine(each, sums[s, k], value)}")
        for s in self.waiting:
            self._gather(s, sums)
        self.waiting = []

    def _gather(self, s: int, sums: dict[tuple[int, int], str]) -> None:
        """Compute the totals of rows, combined with the outputs' initial values."""
        stage, w = self.rows.stages[s], self.w
        for k, (each, access, init) in enumerate(zip(self.rows.reduces[s], stage.outputs, stage.inits, strict=True)):
            value = w.define("t", across(w, each, sums[s, k], 1))
            dtype = self.rows.kernel.values[access.value].dtype
            if isinstance(init, Access):
                first = w.read(source_of(self.rows.kernel, init, stage.sizes), self._points(s))
                value = w.define("t", combine(each, first, value))
            elif init is not None and init != each.identity:
                value = w.define("t", combine(each, constant(init, dtype), value))
            self.made[access.value] = w.define("t", narrowed(each, value))
            self._store(s, access, self.made[access.value])

    def _finish(self) -> None:
        """Run one pass for all results written along rows."""
        wanted = [
            (s, access) for s, stage in enumerate(self.rows.stages)
            if self.rows.wide[s] and not self.rows.reduces[s]
            for access in stage.outputs if access.value in self.stored
        ]
        if not wanted:
            return
        for known in self._turns():
            for s, access in wanted:
                self._evaluate(s, known)
                self._store(s, access, known[access.value])

    # -- points ------------------------------------------------------------------------------------

    def _points(self, s: int) -> dict[int, Coordinate]:
        """The coordinates of a stage's dimensions."""
        return {
            d: self.at[number] for d, number in enumerate(self.rows.dims[s]) if number is not None and number in self.at
        }

    def _operands(self, s: int, known: dict[int, str]) -> list[str | None]:
        stage = self.rows.stages[s]
        tables = gathered(stage)
        found: list[str | None] = []
        for position, access in enumerate(stage.inputs):
            if position in tables:
                found.append(None)
            elif access.value in self.producer:
                if access.value not in known:
                    self._evaluate(self.producer[access.value], known)
                found.append(known[access.value])
            else:
                found.append(self._read(source_of(self.rows.kernel, access, stage.sizes), s))
        return found

    def _read(self, source: StridedAccess, s: int) -> str:
        """Load an input of stage `s`. Kept values are converted again in each pass: the compiler would otherwise keep
        the converted values, which take twice the registers."""
        if not self._hides(source):
            return self.w.read(source, self._points(s))
        w, dtype = self.w, source.dtype
        raw = w.read(source, self._points(s), raw=True)
        if 1 not in self.w.offset(source, self._points(s)).axes:
            return w.define("x", from_storage(raw, dtype))
        since, held, value = self.latest.get(raw, (0, raw, ""))
        if since != self.passes:
            if since:
                held = w.define("h", _HIDE.format(held, storage_type(dtype)))
            value = w.define("x", from_storage(held, dtype))
            self.latest[raw] = (self.passes, held, value)
        return value

    def _hides(self, source: StridedAccess) -> bool:
        """Whether a value kept in registers is hidden from the compiler: its storage type is not its compute type."""
        short = source.dtype in ("f16", "bf16")
        return bool(self.pieces) and short and not source.bounds and self.plan.family == "cuda"

    def _dtypes(self, s: int) -> list[str]:
        stage = self.rows.stages[s]
        return [self.rows.kernel.values[access.value].dtype for access in (*stage.inputs, *stage.outputs)]

    def _evaluate(self, s: int, known: dict[int, str]) -> None:
        """Add the results of an element-wise stage to `known`."""
        stage = self.rows.stages[s]
        if all(access.value in known for access in stage.outputs):
            return
        running: list[str | None] = []
        for access, init in zip(stage.outputs, stage.inits, strict=True):
            if isinstance(init, Access):
                source: StridedAccess = source_of(self.rows.kernel, init, stage.sizes)
                running.append(self._read(source, s))
            else:
                dtype = self.rows.kernel.values[access.value].dtype
                running.append(None if init is None else constant(init, dtype))
        operands = [*self._operands(s, known), *running]
        tables = gathered(stage)
        names = self.w.body(stage.body, operands, self._dtypes(s), self._points(s), tables=tables, sizes=stage.sizes)
        for access, k in zip(stage.outputs, stage.yields, strict=True):
            known[access.value] = names[k]

    def _terms(self, s: int, known: dict[int, str]) -> list[str]:
        """The terms of a reduction at each point."""
        stage = self.rows.stages[s]
        found = self.rows.reduces[s]
        first = len(stage.inputs) + len(stage.outputs)
        skip = frozenset(each.last - first for each in found)
        operands = [*self._operands(s, known), *(None for _ in stage.outputs)]
        names = self.w.body(stage.body, operands, self._dtypes(s), self._points(s), skip)
        return [names[each.term] for each in found]

    def _store(self, s: int, access: Access, value: str) -> None:
        if access.value not in self.stored:
            return
        place = self.rows.place(access, s)
        narrow = not self.rows.wide[s] or bool(self.rows.reduces[s])
        if narrow:
            self.w.write(place, self._points(s), value, (self.height, 1))
        else:
            self.w.write(place, self._points(s), value)


def across(w: Writer, each: Reduction, text: str, axis: int) -> str:
    """Combine all points along an axis of the tile; the axis is kept, with extent 1."""
    name = each.op.partition(".")[2]
    if name in ("addf", "addi") and each.dtype != "i1":
        return f"tl.sum({text}, {axis}, keep_dims=True).to({carried_type(each.accumulator)})"
    helper, definition = helper_of(each)
    w.helpers[helper] = definition
    return f"tl.reduce({text}, {axis}, {helper}, keep_dims=True)"
