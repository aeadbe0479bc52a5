"""The source of attention by groups of warps (`hopper.py`), in Gluon, a language of layouts and barriers.

    fetch_keys, fetch_values (a warp each)      attend (each group of four warps, its own queries)
        q of every group                            x = q k(last)
        for each tile of keys, the last first:      for each tile of keys before it:
            k (v) into its place                        x' = q k, started;  acc += e v of the tile before, started
                                                        powers e' of x' once it is there, while the other product runs
    put (a warp)                                        acc *= ratio; e = e'
        what a group leaves where its queries were

Matrices are described by the warps that move tiles of them, all at the same time, before what the launch depends on has
ended (`dependent.py`). `full` and `empty` are the barriers of places. While one group calculates powers, products of
another one run. The last tile of keys comes first, so that those that masks by positions touch are at the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.artifact.expressions import product
from motet.compiler.codegen.gpu.attention.space import AttentionSpace
from motet.compiler.codegen.gpu.attention.tiles import MOVING, OWN, Groups
from motet.compiler.codegen.gpu.tasks import ceiling, total
from motet.compiler.codegen.triton.attention.attention import LOG2_E, LOWEST, stored_by
from motet.compiler.codegen.triton.attention.operand_layout import matrices_of
from motet.compiler.codegen.triton.attention.scores import Scores
from motet.compiler.codegen.triton.attention.tile_schedule import every_tile, is_even, is_one_careful, one_tile
from motet.compiler.codegen.triton.gemm.persistent_text import NEXT, WAIT
from motet.compiler.codegen.triton.text.gluon import GluonWriter
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.scalars import carried_type, rounded, storage_type, to_storage
from motet.compiler.codegen.triton.text.writer import Coordinate, symbol_name
from motet.compiler.kernels.strides import StridedAccess

_HEAD = GluonWriter.head + '''from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
'''
_POWER = '''@gluon.jit
def power(x):  # of two; of small results it makes 0, as one instruction
    asm: gl.constexpr = "ex2.approx.ftz.f32 $0, $1;"
    return gl.inline_asm_elementwise(asm, "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)'''
_BARRIERS = "qfull, kfull, vfull, ofull, qempty, kempty, vempty"


class _WarpWriter(GluonWriter):
    """A `Writer` for tiles in `layout`, which stores one of its results through shared memory."""

    layout = "SL"
    result: StridedAccess | None = None
    piece = 0

    def spread(self, text: str, dtype: str) -> str:
        return f"({text}).to({carried_type(dtype)})"  # scores have the shape of their product

    def write(
        self, place: StridedAccess, at: Mapping[int, Coordinate], value: str, shape: Sequence[int] | None = None
    ) -> None:
        if place != self.result:
            super().write(place, at, value, shape)
            return
        self.line(f"q{self.piece}.store({to_storage(f'({value})', place.dtype)})")
        self.line("fence_async_shared()")


@dataclass
class AttentionProgram:
    """The text of one form."""

    space: AttentionSpace
    groups: Groups
    buffers: tuple[int, ...]
    symbol: str
    about: str
    processors: int

    def __post_init__(self) -> None:
        a = self.attention = self.space.attention
        self.kernel = a.kernel
        self.float = storage_type(a.dtype)
        self.arguments = [*(f"v{value}" for value in self.buffers), *map(symbol_name, self.kernel.symbols)]
        self.stored = stored_by(a)
        self.even = is_even(self.space, self.groups)
        self.matrices = matrices_of(self.space, self.groups.keys, OWN, self.groups.stay)
        self.columns = self.matrices["v"].pieces
        self.depths = range(len(self.matrices["q"].pieces))

    def form(self) -> Form:
        groups = self.groups
        tasks = product((ceiling(self.space.row_count, groups.rows), total(self.space.batch).expression))
        if isinstance(tasks, int):
            tasks = min(tasks, self.processors) if groups.stay else -(-tasks // groups.at_once)
        w = _WarpWriter(self.kernel, self.buffers, (groups.rows, groups.keys))
        attend = self._attend()
        functions = [_POWER, self._fetch_keys(), self._fetch_values(), *self._put(), attend, self._main()]
        library = "from triton.language.extra import libdevice\n" if "libdevice." in attend else ""
        source = f'"""{self.about}\n\n{w.described()}"""\n\n{_HEAD}{library}\n\n' + "\n\n\n".join(functions) + "\n"
        return Form(source, tasks, 4, 1, groups.label)

    # -- producer warps --

    def _tile(self, w: _WarpWriter, names: str, state: Sequence[str]) -> dict[int, Coordinate]:
        """Create the descriptors of the matrices `names`, wait for the launch's dependences, and write `state`; then
        find the tile of the program, or begin the loop over those of a persistent one. Returns the tile's batch."""
        at = {} if self.groups.stay else one_tile(w, self.space, self.groups)
        for name in names:
            self._describe(w, name, at)
        self._lines(w, [WAIT, *state])
        return every_tile(w, self.space, self.groups) if self.groups.stay else at

    def _describe(self, w: _WarpWriter, name: str, at: Mapping[int, Coordinate]) -> None:
        matrix = self.matrices[name]
        lines, columns, length = matrix.size(w, self.attention)
        start = matrix.start(w, at)
        for i, piece in enumerate(matrix.pieces):
            w.line(self._layout(f"l{name}{i}", matrix.lines, piece))
            w.line(
                f"{name}d{i} = tma.make_tensor_descriptor({start}, [{lines}, {columns}], [{length}, 1], "
                f"[{matrix.lines}, {piece}], l{name}{i})"
            )

    def _layout(self, name: str, lines: int, columns: int) -> str:
        return f"{name}: gl.constexpr = gl.NVMMASharedLayout.get_default_for([{lines}, {columns}], {self.float})"

    def _move(self, command: str, name: str, line: str, places: str, at: Mapping[int, Coordinate]) -> list[str]:
        """The lines that copy a tile, from `line` of the batch on, to or from `places`: one copy for each piece."""
        matrix = self.matrices[name]
        first, column = matrix.origin(self.space, at)
        return [
            f"{command}({name}d{i}, [{first} + {line}, {column} + {begin}], {places.format(i=i)})"
            for i, begin in enumerate(matrix.begins())
        ]

    def _expected(self, barrier: str, name: str) -> str:
        """The line that announces to `barrier` the bytes of a tile."""
        size = " + ".join(f"{name}d{i}.nbytes_per_cta" for i in range(len(self.matrices[name].pieces)))
        return f"mbarrier.expect({barrier}, {size})"

    def _fetch_keys(self) -> str:
        w, groups = self._writer(), self.groups
        stay = ["turn = 1"] if groups.stay else []
        at = self._tile(w, "qk", ["place = 0", "phase = 1", *stay])
        loads = self._move("tma.async_load", "q", self._row("w"), "qfull.index(w), qs{i}.index(w)", at)
        self._lines(w, [
            *self._of_groups([
                *(["mbarrier.wait(qempty.index(w), turn)"] if groups.stay else []),
                self._expected("qfull.index(w)", "q"),
                *loads,
            ]),
            *(["turn ^= 1"] if groups.stay else []),
            *self._tiles("k", at),
        ])
        return self._function(w, "fetch_keys")

    def _fetch_values(self) -> str:
        w = self._writer()
        at = self._tile(w, "v", ["place = 0", "phase = 1"])
        self._lines(w, self._tiles("v", at))
        return self._function(w, "fetch_values")

    def _tiles(self, x: str, at: Mapping[int, Coordinate]) -> list[str]:
        """The lines that load tiles of keys (k) or values (v), the last tile first."""
        place = self._at("place")
        full = f"{x}full.index({place})"
        loads = self._move("tma.async_load", x, "j", f"{full}, {x}s{{i}}.index({place})", at)
        return [
            "for i in range(0, count):",
            f"    j = (count - 1 - i) * {self.groups.keys}",
            f"    mbarrier.wait({x}empty.index({place}), phase)",
            f"    {self._expected(full, x)}",
            *(f"    {load}" for load in loads),
            *self._onwards(1),
        ]

    def _put(self) -> list[str]:
        """The function that stores results by TMA; none if threads store them."""
        if "o" not in self.matrices:
            return []
        w, groups = self._writer(), self.groups
        at = self._tile(w, "o", ["turn = 0"])
        stores = self._move("tma.async_store", "o", self._row("w"), "qs{i}.index(w)", at)
        self._lines(w, [*self._of_groups(["mbarrier.wait(ofull.index(w), turn)", *stores]), "tma.store_wait(0)"])
        if groups.stay:
            self._lines(w, [*self._of_groups(["mbarrier.arrive(qempty.index(w))"]), "turn ^= 1"])
        return [self._function(w, "put")]

    def _of_groups(self, lines: Sequence[str]) -> list[str]:
        """Repeat the lines for each group `w` that this warp moves tiles for."""
        which = "WHICH, WHICH + 1" if self.groups.apart else self.groups.count
        return [f"for w in gl.static_range({which}):", *(f"    {line}" for line in lines)]

    def _row(self, group: str) -> str:
        """The first query of a group."""
        return "begin" if self.groups.apart else f"begin + {group} * {OWN}"

    def _at(self, place: str) -> str:
        """The index of a buffer among those of all groups."""
        return f"WHICH * {self.groups.stages} + {place}" if self.groups.apart else place

    # -- consumer warps --

    def _attend(self) -> str:
        w, a, groups = self._writer(), self.attention, self.groups
        keys, stay = groups.keys, groups.stay
        for name, n in (("SL", keys), *((f"AL{i}", columns) for i, columns in enumerate(self.columns))):
            w.line(
                f"{name}: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], "
                f"instr_shape=[16, {n}, 16])"
            )
        for i in range(len(self.columns)):
            w.line(f"PL{i}: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=AL{i}, k_width=2)")
        batch = self._tile(w, "", ["place = 0", "phase = 0", "turn = 0"])
        at = batch | self._rows(w)
        self._lines(w, [
            f"high = gl.full(({OWN},), {LOWEST}, gl.float32, gl.SliceLayout(1, SL))",
            f"total = gl.zeros(({OWN},), gl.float32, gl.SliceLayout(1, SL))",
            *self._each("acc{i} = gl.zeros(({own}, {n}), gl.float32, AL{i})"),
            f"j = (count - 1) * {keys}",
            "mbarrier.wait(qfull.index(WHICH), turn)",
            *(f"q{i} = qs{i}.index(WHICH)" for i in self.depths),
            f"mbarrier.wait(kfull.index({self._at('place')}), phase)",
            *self._scores("s"),
            "s = warpgroup_mma_wait(0, deps=[s])",
            f"mbarrier.arrive(kempty.index({self._at('place')}))",
        ])
        self._powers(w, at, not self.even)
        self._lines(w, self._each("short{i} = gl.convert_layout(e.to({float}), PL{i})"))
        first = "1"
        if not self.even and not is_one_careful(self.space, self.groups):
            self._iterations(w, at, first, "count - whole", True)
            first = "tl.maximum(count - whole, 1)"
        self._iterations(w, at, first, "count", False)
        self._lines(w, [
            f"mbarrier.wait(vfull.index({self._at('place')}), phase)",
            NEXT,
            *self._each("acc{i} = warpgroup_mma(short{i}, vs{i}.index({place}), acc{i})"),
            *([f"mbarrier.arrive(vempty.index({self._at('place')}))"] if stay else []),
            *(["total = gl.where(total == 0, 1.0, total)"] if a.safe else []),  # no key was seen: 0 / 1
            *self._each("acc{i} = acc{i} / gl.convert_layout(total, gl.SliceLayout(1, AL{i}))[:, None]"),
        ])
        self._finish(w, batch)
        if stay:
            self._lines(w, ["turn ^= 1", *self._onwards(0)])
        return self._function(w, "attend")

    def _each(self, line: str) -> list[str]:
        """A line for each piece of the values: `i` is its number, `n` its columns, `place` and `last` are buffers."""
        place, last = self._at("place"), self._at("last")
        return [
            line.format(i=i, n=n, own=OWN, float=self.float, place=place, last=last)
            for i, n in enumerate(self.columns)
        ]

    def _names(self, name: str) -> str:
        return ", ".join(f"{name}{i}" for i in range(len(self.columns)))

    def _scores(self, name: str) -> list[str]:
        """The lines that start the product of queries and keys."""
        lines: list[str] = []
        for i in self.depths:
            sums = f"gl.zeros(({OWN}, {self.groups.keys}), gl.float32, SL), use_acc=False" if i == 0 else name
            keys = f"ks{i}.index({self._at('place')}).permute((1, 0))"
            lines.append(f"{name} = warpgroup_mma(q{i}, {keys}, {sums}, is_async=True)")
        return lines

    def _rows(self, w: _WarpWriter) -> dict[int, Coordinate]:
        """The coordinates of a group's queries."""
        w.shape = (OWN, self.groups.keys)
        row = w.define("m", f"{self._row('WHICH')} + {w.range(0)}")
        count = self.space.row_count
        w.masks.pop(0, None)
        if count.known is None or count.factor % self.groups.rows:
            w.masks[0] = w.define("b", f"{row} < {w.extent(count)}")
        return w.decompose(Coordinate(row, frozenset({0})), self.space.rows)

    def _iterations(self, w: _WarpWriter, at: Mapping[int, Coordinate], first: str, last: str, careful: bool) -> None:
        """Process the tiles of keys from the `first`-th from the end up to the `last`-th."""
        w.line(f"for i in range({first}, {last}):")
        w.level += 1
        self._lines(w, [
            f"j = (count - 1 - i) * {self.groups.keys}",
            *self._next(),
            f"mbarrier.wait(kfull.index({self._at('place')}), phase)",
            *self._scores("started"),
            f"mbarrier.wait(vfull.index({self._at('last')}), before)",
            *self._each("running{i} = warpgroup_mma(short{i}, vs{i}.index({last}), acc{i}, is_async=True)"),
            f"s = warpgroup_mma_wait({len(self.columns)}, deps=[started])",
            f"mbarrier.arrive(kempty.index({self._at('place')}))",
        ])
        self._powers(w, at, careful)
        self._lines(w, [
            f"{self._names('acc')} = warpgroup_mma_wait(0, deps=[{self._names('running')}])",
            f"mbarrier.arrive(vempty.index({self._at('last')}))",
            *self._each("acc{i} = acc{i} * gl.convert_layout(ratio, gl.SliceLayout(1, AL{i}))[:, None]"),
            *self._each("short{i} = gl.convert_layout(e.to({float}), PL{i})"),
        ])
        w.level -= 1

    def _powers(self, w: _WarpWriter, at: Mapping[int, Coordinate], careful: bool) -> None:
        a = self.attention
        w.shape, w.remembered, w.layout = (OWN, self.groups.keys), {}, "SL"
        w.masks.pop(1, None)
        key = w.define("n", f"j + {w.range(1)}")
        if careful:
            w.masks[1] = w.define("b", f"{key} < {w.extent(self.space.keys)}")
        at = {**at, a.key: Coordinate(key, frozenset({1}))}
        score = Scores(w, a, at, "s", careful).text()
        if careful and (self.space.keys.known is None or self.space.keys.factor % self.groups.keys):
            score = w.define("x", f'gl.where({w.masks[1]}, {score}, float("-inf"))')
        if a.reads:  # as written in the program, whose scale may be any value
            scaled = score if a.scale == 1 else w.define("x", f"{score} * {a.scale!r}")
            w.line(f"new = gl.maximum(high, gl.max({scaled}, 1))")
            w.line(f"e = power(({scaled} - new[:, None]) * {LOG2_E!r})")
            w.line(f"ratio = power((high - new) * {LOG2_E!r})")
        else:
            factor = a.scale * LOG2_E
            w.line(f"new = gl.maximum(high, gl.max({score}, 1) * {factor!r})")
            w.line(f"e = power({score} * {factor!r} - new[:, None])")
            w.line("ratio = power(high - new)")
        w.line("total = total * ratio + gl.sum(e, 1)")
        w.line("high = new")

    def _finish(self, w: _WarpWriter, batch: Mapping[int, Coordinate]) -> None:
        a = self.attention
        leaves = self.matrices.get("o")
        w.result = leaves.place if leaves else None
        dtype = self.kernel.values[a.main.outputs[0].value].dtype
        for i, columns in enumerate(self.columns):
            begin = sum(self.columns[:i])
            w.remembered, w.layout, w.masks, w.piece = {}, f"AL{i}", {}, i
            at = {**batch, **self._rows(w)}
            w.shape = (OWN, columns)
            column = w.define("c", f"{begin} + {w.range(1)}" if begin else w.range(1))
            if begin + columns > self.space.columns:
                w.masks[1] = w.define("b", f"{column} < {self.space.columns}")
            at[a.column] = Coordinate(column, frozenset({1}))
            w.finish(a.epilogue, w.define("x", rounded(f"acc{i}", dtype)), at, self.stored)
        if leaves is not None:
            w.line("mbarrier.arrive(ofull.index(WHICH))")

    # -- the whole program --

    def _main(self) -> str:
        w, groups = self._writer(), self.groups
        for name, count in (("q", groups.count), ("k", groups.places), ("v", groups.places)):
            lines = self.matrices[name].lines
            for i, columns in enumerate(self.matrices[name].pieces):
                w.line(self._layout(f"l{name}{i}", lines, columns))
                size = f"[{count}, {lines}, {columns}]"
                w.line(f"{name}s{i} = gl.allocate_shared_memory({self.float}, {size}, l{name}{i})")
        self._barriers(w)
        given = ", ".join(self._given())
        workers = [f"(attend, ({which}, {given}))" for which in range(groups.count)]
        moving = ["fetch_keys", "fetch_values", *(["put"] if "o" in self.matrices else [])]
        for which in range(groups.at_once):
            own = f"{which}, " if groups.apart else ""
            workers += [f"({name}, ({own}{given}))" for name in moving]
        movers = len(moving) * groups.at_once
        warps = [4] * (groups.count - 1) + [1] * movers
        registers = [groups.attending(movers)] * (groups.count - 1) + [MOVING] * movers
        w.line(f"gl.warp_specialize([{', '.join(workers)}], {warps}, {registers})")
        body = "\n".join(w.lines)
        return f"@gluon.jit\ndef {self.symbol}({', '.join(self.arguments)}):\n{body}"

    def _barriers(self, w: _WarpWriter) -> None:
        groups = self.groups
        for names, count in (("qfull ofull qempty", groups.count), ("kfull vfull kempty vempty", groups.places)):
            for name in names.split():
                w.line(f"{name} = mbarrier.allocate_mbarrier(batch={count})")
            w.line(f"for i in gl.static_range({count}):")
            for name in names.split():
                arriving = groups.count // groups.at_once if name in ("kempty", "vempty") else 1
                w.line(f"    mbarrier.init({name}.index(i), count={arriving})")
        w.line("fence_async_shared()")

    def _given(self) -> list[str]:
        """The arguments of all functions."""
        places = [f"{name}s{i}" for name in "qkv" for i in range(len(self.matrices[name].pieces))]
        return [*places, _BARRIERS, *self.arguments]

    def _writer(self) -> _WarpWriter:
        return _WarpWriter(self.kernel, self.buffers, (OWN, self.groups.keys))

    def _lines(self, w: _WarpWriter, lines: Sequence[str]) -> None:
        for line in lines:
            w.line(line)

    def _next(self) -> list[str]:
        """The lines that advance the buffers `last` and `before` to those of the `i`-th tile of keys of a program."""
        if self.groups.stay:
            return ["last = place", "before = phase", *self._onwards(0)]
        stages = self.groups.stages  # without registers carried from iteration to iteration
        return [
            f"last = (i - 1) % {stages}", f"before = (i - 1) // {stages} & 1",
            f"place = i % {stages}", f"phase = i // {stages} & 1",
        ]

    def _onwards(self, level: int) -> list[str]:
        """The lines that advance to the next buffer of a tile of keys."""
        lines = ["place += 1", f"if place == {self.groups.stages}:", "    place = 0", "    phase ^= 1"]
        return ["    " * level + line for line in lines]

    def _function(self, w: _WarpWriter, name: str) -> str:
        before = "WHICH: gl.constexpr, " if name == "attend" or self.groups.apart else ""
        body = "\n".join(w.lines).replace("tl.full((), ", "tl.cast(")  # a scalar: Gluon's `full` needs a layout
        return f"@gluon.jit\ndef {name}({before}{', '.join(self._given())}):\n{body}"
