"""Attention on Hopper: warps that fetch keys and values ahead, and groups of warps that have a tile of queries each.

    fetch                                   attend (each group of four warps, its own queries)
        q of every group                        x = q k(last)
        for each tile of keys, the last first:  for each tile of keys before it:
            k into its place                        x' = q k, started;  acc += e v of the tile before, started
            v into its place                        powers e' of x' once it is there, while the other product runs
                                                    acc *= ratio; e = e'

While one group calculates powers, the products of another one run. The last tile of keys comes first, so that those
that masks by positions touch are at the beginning. Source: Shah et al., "FlashAttention-3: Fast and Accurate Attention
with Asynchrony and Low-precision", 2024. Written in Gluon, Triton's language of layouts and barriers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from motet.compiler.codegen.cpu.extents import ONE, Extent, Place
from motet.compiler.codegen.kernel import Kernel, item_bytes
from motet.compiler.codegen.triton.attention import (
    LEAST,
    LOG2_E,
    LOWEST,
    Space,
    lies_flat,
    stored_by,
    times,
)
from motet.compiler.codegen.triton.attention_scores import Scores
from motet.compiler.codegen.triton.loops import ceiling, power_of_two, total
from motet.compiler.codegen.triton.program import Form
from motet.compiler.codegen.triton.scalars import carried_type, rounded, storage_type, to_storage
from motet.compiler.codegen.triton.writer import Coordinate, Writer, source_of, symbol_name
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
    warpgroup_mma_wait,
)
'''
_OWN = 64  # queries of a group of four warps, as many as its products have rows
_ATTENDING, _FETCHING = 240, 24  # registers of each thread
_HOPPER = 90
_LEAST_QUERIES, _LEAST_KEYS = 256, 768  # for fewer it takes too long to begin
_TOGETHER = 8  # heads whose tiles programs that stay take together


@dataclass(frozen=True)
class Groups:
    """`count` groups of warps (two: more leave them too few registers), tiles of `keys`, and places for `stages` tiles
    of keys and values. Programs that `stay` take tile after tile of queries: while one is finished, the keys of the
    next are fetched."""

    count: int
    keys: int
    stages: int
    stay: bool = False

    @property
    def rows(self) -> int:
        return self.count * _OWN

    @property
    def label(self) -> str:
        return f"groups {self.rows}x{self.keys} stages={self.stages}{' stay' if self.stay else ''}"


def forms_of(
    space: Space, buffers: tuple[int, ...], symbol: str, about: str, target: GpuTarget
) -> list[Form]:
    """Forms for Hopper, the best first; none where tensors do not lie so that the copying unit takes tiles of them, or
    are too small."""
    a = space.attention
    if target.architecture != _HOPPER or not target.is_cuda or item_bytes(a.dtype) != 2 or len(space.rows) != 1:
        return []
    if (space.row_count.known or _LEAST_QUERIES) < _LEAST_QUERIES or (space.keys.known or _LEAST_KEYS) < _LEAST_KEYS:
        return []
    if a.row is None or a.whole is None:
        return []
    flat = [(a.query, a.row, a.depth), (a.whole.keys, a.key, a.depth), (a.whole.values, a.key, a.column)]
    if not all(lies_flat(a, access, outer, inner) for access, outer, inner in flat):
        return []
    programs = [_Program(space, groups, buffers, symbol, about, target.processors) for groups in _groups(space)]
    return [program.form() for program in programs if not program.groups.stay or program.may_stay]


def _groups(space: Space) -> list[Groups]:
    """By measurement on an H200. Narrow heads take powers more than products: pointers are faster for them. Programs
    that stay are faster but where queries of several heads look back on the same keys."""
    a = space.attention
    found = {128: Groups(2, 128, 2), 256: Groups(2, 64, 2)}
    groups = found.get(max(power_of_two(space.depth), power_of_two(space.columns)))
    if groups is None:
        return []
    both = [replace(groups, stay=True), groups]
    return both[::-1] if a.causal is not None and a.group else both


# -- writing ---------------------------------------------------------------------------------------


class _Writer(Writer):
    """Writes as `Writer`, on tiles in `layout`; one result goes through shared memory."""

    layout = "SL"
    result: Place | None = None
    origin: tuple[str, str] = ("0", "0")

    def range(self, axis: int) -> str:
        inside = ", ".join(":" if a == axis else "None" for a in range(len(self.shape)))
        return f"gl.arange(0, {self.shape[axis]}, gl.SliceLayout({1 - axis}, {self.layout}))[{inside}]"

    def spread(self, text: str, dtype: str) -> str:
        return f"({text}).to({carried_type(dtype)})"  # scores have the shape of their product

    def write(
        self, place: Place, at: Mapping[int, Coordinate], value: str, shape: Sequence[int] | None = None
    ) -> None:
        if place != self.result:
            super().write(place, at, value, shape)
            return
        self.line(f"q.store({to_storage(f'({value})', place.dtype)})")
        self.line("fence_async_shared()")
        line, column = self.origin
        self.line(f"tma.async_store(od, [{line} + begin + WHICH * {_OWN}, {column}], q)")
        self.line("tma.store_wait(0)")


@dataclass
class _Program:
    space: Space
    groups: Groups
    buffers: tuple[int, ...]
    symbol: str
    about: str
    processors: int

    def __post_init__(self) -> None:
        self.attention = self.space.attention
        self.kernel: Kernel = self.attention.kernel
        self.depth = max(64, power_of_two(self.space.depth))
        self.columns = max(64, power_of_two(self.space.columns))
        self.float = storage_type(self.attention.dtype)
        self.arguments = [*(f"v{value}" for value in self.buffers), *map(symbol_name, self.kernel.symbols)]
        self.stored = stored_by(self.attention)
        self.result = self._leaving()
        keys = self.space.keys
        self.even = self.attention.causal is None and keys.known is not None and not keys.factor % self.groups.keys

    # -- programs that stay --

    @property
    def may_stay(self) -> bool:
        """Whether every tile is whole, and all tensors are one matrix each, of which heads are parts."""
        a, groups = self.attention, self.groups
        sizes = [a.sizes[dim] for dim in (*a.batch, *a.group, a.row or 0, a.key)]
        if not all(isinstance(size, int) for size in sizes) or self.result is None or a.row is None:
            return False
        rows, keys = self.space.row_count.factor, self.space.keys.factor
        if rows % groups.rows or keys % groups.keys:
            return False
        if (self.depth, self.columns) != (self.space.depth, self.space.columns):
            return False
        accesses = (a.query, a.pieces[0].keys, a.pieces[0].values)
        places = [source_of(self.kernel, access, a.sizes).place for access in accesses]
        outer = (a.row, a.key, a.key, a.row)
        return all(self._flat(place, dim) is not None for place, dim in zip((*places, self.result), outer, strict=True))

    def _flat(self, place: Place, outer: int) -> tuple[int, dict[int, tuple[int, int]], tuple[int, int]] | None:
        """`place` in a matrix with a line for each step along `outer`: the length of lines, how far each batch's
        dimension goes in it (lines, columns), and where it begins."""
        line = place.strides[outer].known
        offset = sum(part.factor for part in place.offset)
        if line is None:
            return None
        steps: dict[int, tuple[int, int]] = {}
        for size, dim in self.space.batch:
            stride = place.strides[dim].factor
            if stride % line and stride * size.factor > line:
                return None
            steps[dim] = divmod(stride, line)
        return line, steps, divmod(offset, line)

    def _origin(self, place: Place, outer: int, at: Mapping[int, Coordinate]) -> tuple[str, str]:
        """The line and the column where a batch begins."""
        found = self._flat(place, outer)
        if found is None:
            raise ValueError("a tensor that is no matrix")
        _, steps, offset = found
        texts: list[str] = []
        for axis in (0, 1):
            parts = [f"{at[dim].text} * {step[axis]}" for dim, step in steps.items() if step[axis]]
            texts.append(" + ".join([*parts, str(offset[axis])]))
        return texts[0], texts[1]

    def _turn(self, w: _Writer) -> dict[int, Coordinate]:
        """A loop over the tiles of a program that stays. Of heads that hide keys, some go together: the tiles that see
        the most come first, and their keys are still in the cache."""
        blocks, heads = self.space.row_count.factor // self.groups.rows, total(self.space.batch).factor
        w.line(f"for number in range(gl.program_id(0), {blocks * heads}, gl.num_programs(0)):")
        w.level += 1
        if self.attention.causal is None:
            head, tile = w.define("p", f"number // {blocks}"), f"number % {blocks}"
        else:
            first = w.define("g", f"number // {_TOGETHER * blocks} * {_TOGETHER}")
            some = w.define("g", f"tl.minimum({heads} - {first}, {_TOGETHER})")
            rest = w.define("g", f"number % {_TOGETHER * blocks}")
            head, tile = w.define("p", f"{first} + {rest} % {some}"), f"{blocks} - 1 - {rest} // {some}"
        w.line(f"begin = ({tile}) * {self.groups.rows}")
        self._counts(w)
        return w.decompose(Coordinate(head), self.space.batch) if self.space.batch else {}

    def _counts(self, w: _Writer) -> None:
        """How many tiles of keys the queries from `begin` on see, and how many of them as a whole."""
        groups, causal = self.groups, self.attention.causal
        length = w.extent(self.space.keys)
        seen = last = length
        if causal is not None:
            seen = f"tl.maximum(tl.minimum(begin + {causal.offset + 1}, {length}), 0)"
            if causal.certain:
                last = f"tl.maximum(tl.minimum(begin + {groups.rows + causal.offset}, {length}), 1)"
        if self.space.keys.known is None:
            last = f"tl.maximum({last}, 1)"  # whoever attends waits for a first tile
        w.line(f"count = ({last} + {groups.keys - 1}) // {groups.keys}")
        w.line(f"whole = {seen} // {groups.keys}")

    def _leaving(self) -> Place | None:
        """The result, if it is one tensor of the factors' dtype and shape that the copying unit can write."""
        a = self.attention
        if len(self.stored) != 1 or self.depth != self.columns or a.row is None:
            return None
        (place,) = self.stored.values()
        size = item_bytes(place.dtype)
        apart = [*(stride for dim, stride in enumerate(place.strides) if dim != a.column), *place.offset]
        if place.dtype != a.dtype or place.strides[a.column] != ONE or any(s.factor * size % LEAST for s in apart):
            return None
        return place

    def form(self) -> Form:
        rows = self.groups.rows
        tasks = times(ceiling(self.space.row_count, rows), total(self.space.batch).expression)
        if self.groups.stay and isinstance(tasks, int):
            tasks = min(tasks, self.processors)
        w = _Writer(self.kernel, self.buffers, (rows, self.groups.keys))
        functions = [self._fetch(), self._attend(), self._main()]
        library = "from triton.language.extra import libdevice\n" if "libdevice." in functions[1] else ""
        source = f'"""{self.about}\n\n{w.described()}"""\n\n{_HEAD}{library}\n\n' + "\n\n\n".join(functions) + "\n"
        return Form(source, tasks, 4, 1, self.groups.label)

    def _writer(self) -> _Writer:
        return _Writer(self.kernel, self.buffers, (_OWN, self.groups.keys))

    def _place(self, w: _Writer) -> dict[int, Coordinate]:
        """The batch that a program has, and the first of its queries, `begin`."""
        space, causal = self.space, self.attention.causal
        program = w.program()
        blocks = w.define("t", f"tl.cdiv({w.extent(space.row_count)}, {self.groups.rows})")
        at = w.decompose(Coordinate(w.define("p", f"{program} // {blocks}")), space.batch) if space.batch else {}
        number = f"{program} % {blocks}"
        if causal is not None:  # those that see the most keys begin first
            number = f"{blocks} - 1 - {number}"
        w.line(f"begin = ({number}) * {self.groups.rows}")
        if w.wide:
            w.line("begin = begin.to(tl.int32)")
        return at

    # -- fetching --

    def _fetch(self) -> str:
        groups = self.groups
        if groups.stay:
            return self._fetch_on()
        return f'''@gluon.jit
def fetch(qd, kd, vd, qs, ks, vs, qfull, kfull, vfull, kempty, vempty, begin, count):
    for w in gl.static_range({groups.count}):
        mbarrier.expect(qfull.index(w), qd.nbytes_per_cta)
        tma.async_load(qd, [begin + w * {_OWN}, 0], qfull.index(w), qs.index(w))
    place = 0
    phase = 1
    for i in range(0, count):
        j = (count - 1 - i) * {groups.keys}
        mbarrier.wait(kempty.index(place), phase)
        mbarrier.expect(kfull.index(place), kd.nbytes_per_cta)
        tma.async_load(kd, [j, 0], kfull.index(place), ks.index(place))
        mbarrier.wait(vempty.index(place), phase)
        mbarrier.expect(vfull.index(place), vd.nbytes_per_cta)
        tma.async_load(vd, [j, 0], vfull.index(place), vs.index(place))
        place += 1
        if place == {groups.stages}:
            place = 0
            phase ^= 1'''

    def _fetch_on(self) -> str:
        """For a program that stays: queries once those before are done with."""
        w, a, groups = self._writer(), self.attention, self.groups
        for line in ("place = 0", "phase = 1", "turn = 1"):
            w.line(line)
        at = self._turn(w)
        accesses = {"q": (a.query, a.row), "k": (a.pieces[0].keys, a.key), "v": (a.pieces[0].values, a.key)}
        for name, (access, outer) in accesses.items():
            line, column = self._origin(source_of(self.kernel, access, a.sizes).place, outer or 0, at)
            w.line(f"{name}line = {line}")
            w.line(f"{name}column = {column}")
        for line in (
            f"for w in gl.static_range({groups.count}):",
            "    mbarrier.wait(qempty.index(w), turn)",
            "    mbarrier.expect(qfull.index(w), qd.nbytes_per_cta)",
            f"    tma.async_load(qd, [qline + begin + w * {_OWN}, qcolumn], qfull.index(w), qs.index(w))",
            "turn ^= 1",
            "for i in range(0, count):",
            f"    j = (count - 1 - i) * {groups.keys}",
            "    mbarrier.wait(kempty.index(place), phase)",
            "    mbarrier.expect(kfull.index(place), kd.nbytes_per_cta)",
            "    tma.async_load(kd, [kline + j, kcolumn], kfull.index(place), ks.index(place))",
            "    mbarrier.wait(vempty.index(place), phase)",
            "    mbarrier.expect(vfull.index(place), vd.nbytes_per_cta)",
            "    tma.async_load(vd, [vline + j, vcolumn], vfull.index(place), vs.index(place))",
            "    place += 1",
            f"    if place == {groups.stages}:",
            "        place = 0",
            "        phase ^= 1",
        ):
            w.line(line)
        body = "\n".join(w.lines)
        return f"@gluon.jit\ndef fetch(qd, kd, vd, qs, ks, vs, qfull, kfull, vfull, kempty, vempty, qempty):\n{body}"

    # -- attending --

    def _attend(self) -> str:
        w, a = self._writer(), self.attention
        keys, columns = self.groups.keys, self.columns
        for name, n in (("SL", keys), ("AL", columns)):
            w.line(
                f"{name}: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], "
                f"instr_shape=[16, {n}, 16])"
            )
        w.line("PL: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=AL, k_width=2)")
        stay = self.groups.stay
        if stay:
            for line in ("place = 0", "phase = 0", "turn = 0"):
                w.line(line)
            batch = self._turn(w)
        else:
            batch = self._place(w) if a.reads or self.result is None or a.epilogue.steps else {}
        at = batch | self._rows(w)
        first = "place" if stay else "0"
        for line in (
            f"high = gl.full(({_OWN},), {LOWEST}, gl.float32, gl.SliceLayout(1, SL))",
            f"total = gl.zeros(({_OWN},), gl.float32, gl.SliceLayout(1, SL))",
            f"acc = gl.zeros(({_OWN}, {columns}), gl.float32, AL)",
            *([] if stay else ["place = 0", "phase = 0"]),
            "j = (count - 1) * " + str(keys),
            f"mbarrier.wait(qfull.index(WHICH), {'turn' if stay else 0})",
            "q = qs.index(WHICH)",
            f"mbarrier.wait(kfull.index({first}), {'phase' if stay else 0})",
            f"s = warpgroup_mma(q, ks.index({first}).permute((1, 0)), gl.zeros(({_OWN}, {keys}), gl.float32, SL), "
            "use_acc=False)",
            f"mbarrier.arrive(kempty.index({first}))",
        ):
            w.line(line)
        self._powers(w, at, not self.even)
        w.line(f"power = gl.convert_layout(e.to({self.float}), PL)")
        first = "1"
        if not self.even and not self._is_one_careful():
            self._turns(w, at, first, "count - whole", True)
            first = "tl.maximum(count - whole, 1)"
        self._turns(w, at, first, "count", False)
        for line in (
            "mbarrier.wait(vfull.index(place), phase)",
            "acc = warpgroup_mma(power, vs.index(place), acc)",
            *(["mbarrier.arrive(vempty.index(place))"] if stay else []),
            *(["total = gl.where(total == 0, 1.0, total)"] if a.safe else []),  # nothing was seen: 0 / 1
            "acc = acc / gl.convert_layout(total, gl.SliceLayout(1, AL))[:, None]",
        ):
            w.line(line)
        self._finish(w, batch)
        shared = "od, qs, ks, vs, qfull, kfull, vfull, kempty, vempty, begin, count, whole, WHICH: gl.constexpr"
        if stay:
            shared = shared.replace("begin, count, whole", "qempty")
            for line in (
                "mbarrier.arrive(qempty.index(WHICH))",
                "turn ^= 1",
                "place += 1",
                f"if place == {self.groups.stages}:",
                "    place = 0",
                "    phase ^= 1",
            ):
                w.line(line)
        body = "\n".join(w.lines).replace("tl.full((), ", "tl.cast(")  # a scalar: Gluon's `full` asks for a layout
        return f"@gluon.jit\ndef attend({', '.join([shared, *self.arguments])}):\n{body}"

    def _is_one_careful(self) -> bool:
        """Whether at most the last tile of keys has any that not all queries see."""
        causal, groups = self.attention.causal, self.groups
        if causal is None:
            return True
        return not groups.keys % groups.rows and not causal.offset % groups.keys and causal.certain

    def _rows(self, w: _Writer) -> dict[int, Coordinate]:
        """The queries of a group."""
        w.shape = (_OWN, self.groups.keys)
        row = w.define("m", f"begin + WHICH * {_OWN} + {w.range(0)}")
        count = self.space.row_count
        w.masks.pop(0, None)
        if count.known is None or count.factor % self.groups.rows:
            w.masks[0] = w.define("b", f"{row} < {w.extent(count)}")
        return w.decompose(Coordinate(row, frozenset({0})), self.space.rows)

    def _turns(self, w: _Writer, at: Mapping[int, Coordinate], first: str, last: str, careful: bool) -> None:
        """The tiles of keys from the `first`-th from the end on, before the `last`-th."""
        w.line(f"for i in range({first}, {last}):")
        w.level += 1
        for line in (
            f"j = (count - 1 - i) * {self.groups.keys}",
            "last = place",
            "before = phase",
            "place += 1",
            f"if place == {self.groups.stages}:",
            "    place = 0",
            "    phase ^= 1",
            "mbarrier.wait(kfull.index(place), phase)",
            "started = warpgroup_mma(q, ks.index(place).permute((1, 0)), "
            f"gl.zeros(({_OWN}, {self.groups.keys}), gl.float32, SL), use_acc=False, is_async=True)",
            "mbarrier.wait(vfull.index(last), before)",
            "running = warpgroup_mma(power, vs.index(last), acc, is_async=True)",
            "s = warpgroup_mma_wait(1, deps=[started])",
            "mbarrier.arrive(kempty.index(place))",
        ):
            w.line(line)
        self._powers(w, at, careful)
        for line in (
            "acc = warpgroup_mma_wait(0, deps=[running])",
            "mbarrier.arrive(vempty.index(last))",
            "acc = acc * gl.convert_layout(ratio, gl.SliceLayout(1, AL))[:, None]",
            f"power = gl.convert_layout(e.to({self.float}), PL)",
        ):
            w.line(line)
        w.level -= 1

    def _powers(self, w: _Writer, at: Mapping[int, Coordinate], careful: bool) -> None:
        a = self.attention
        w.shape, w.remembered, w.layout = (_OWN, self.groups.keys), {}, "SL"
        w.masks.pop(1, None)
        key = w.define("n", f"j + {w.range(1)}")
        if careful:
            w.masks[1] = w.define("b", f"{key} < {w.extent(self.space.keys)}")
        at = {**at, a.key: Coordinate(key, frozenset({1}))}
        score = Scores(w, a, at, "s", careful).text()
        if careful and (self.space.keys.known is None or self.space.keys.factor % self.groups.keys):
            score = w.define("x", f'gl.where({w.masks[1]}, {score}, float("-inf"))')
        if a.reads:  # as written: their scale may be anything
            scaled = score if a.scale == 1 else w.define("x", f"{score} * {a.scale!r}")
            w.line(f"new = gl.maximum(high, gl.max({scaled}, 1))")
            w.line(f"e = gl.exp2(({scaled} - new[:, None]) * {LOG2_E!r})")
            w.line(f"ratio = gl.exp2((high - new) * {LOG2_E!r})")
        else:
            factor = a.scale * LOG2_E
            w.line(f"new = gl.maximum(high, gl.max({score}, 1) * {factor!r})")
            w.line(f"e = gl.exp2({score} * {factor!r} - new[:, None])")
            w.line("ratio = gl.exp2(high - new)")
        w.line("total = total * ratio + gl.sum(e, 1)")
        w.line("high = new")

    def _finish(self, w: _Writer, batch: Mapping[int, Coordinate]) -> None:
        a = self.attention
        w.remembered, w.layout, w.result, w.masks = {}, "AL", self.result, {}
        w.shape = (_OWN, self.columns)
        if self.groups.stay and self.result is not None and a.row is not None:
            w.origin = self._origin(self.result, a.row, batch)
        at = {**batch, **self._rows(w)}
        w.shape = (_OWN, self.columns)
        column = w.define("c", w.range(1))
        if self.space.columns != self.columns:
            w.masks[1] = w.define("b", f"{column} < {self.space.columns}")
        at[a.column] = Coordinate(column, frozenset({1}))
        dtype = self.kernel.values[a.main.outputs[0].value].dtype
        w.finish(a.epilogue, w.define("x", rounded("acc", dtype)), at, self.stored)

    # -- beginning --

    def _main(self) -> str:
        w, a, groups = self._writer(), self.attention, self.groups
        stay = groups.stay
        at: dict[int, Coordinate] = {}
        if not stay:
            at = self._place(w)
            self._counts(w)
        if w.wide and not stay:
            w.line("count = tl.cast(count, tl.int32)")
            w.line("whole = tl.cast(whole, tl.int32)")
        blocks = {"q": (_OWN, self.depth), "k": (groups.keys, self.depth), "v": (groups.keys, self.columns)}
        keys, values = a.pieces[0].keys, a.pieces[0].values
        accesses = {"q": (a.query, a.row, a.depth), "k": (keys, a.key, a.depth), "v": (values, a.key, a.column)}
        for name, block in blocks.items():
            access, outer, inner = accesses[name]
            shape = f"[{block[0]}, {block[1]}]"
            w.line(f"l{name}: gl.constexpr = gl.NVMMASharedLayout.get_default_for({shape}, {self.float})")
            place = source_of(self.kernel, access, a.sizes).place
            w.line(f"{name}d = {self._descriptor(w, place, outer, inner, block, at, f'l{name}')}")
            many = groups.count if name == "q" else groups.stages
            w.line(f"{name}s = gl.allocate_shared_memory({self.float}, [{many}, {block[0]}, {block[1]}], l{name})")
        if self.result is not None:
            w.line(f"od = {self._descriptor(w, self.result, a.row, a.column, blocks['q'], at, 'lq')}")
        else:
            w.line("od = 0")
        self._barriers(w)
        shared = f"qs, ks, vs, qfull, kfull, vfull, kempty, vempty, {'qempty' if stay else 'begin, count'}"
        arguments = "".join(f", {argument}" for argument in self.arguments)
        whole = "" if stay else "whole, "
        workers = [f"(attend, (od, {shared}, {whole}{which}{arguments}))" for which in range(groups.count)]
        workers.append(f"(fetch, (qd, kd, vd, {shared}))")
        warps = [4] * (groups.count - 1) + [1]
        registers = [_ATTENDING] * (groups.count - 1) + [_FETCHING]
        w.line(f"gl.warp_specialize([{', '.join(workers)}], {warps}, {registers})")
        body = "\n".join(w.lines)
        return f"@gluon.jit\ndef {self.symbol}({', '.join(self.arguments)}):\n{body}"

    def _descriptor(
        self, w: _Writer, place: Place, outer: int | None, inner: int, block: tuple[int, int],
        at: Mapping[int, Coordinate], layout: str,
    ) -> str:
        sizes = self.attention.sizes
        if outer is None:
            raise ValueError("queries without a row")
        if self.groups.stay:
            length = place.strides[outer].factor
            lines = math.prod(size for size in self.kernel.values[place.value].shape if isinstance(size, int)) // length
            return (
                f"tma.make_tensor_descriptor(v{place.value}, [{lines}, {length}], [{length}, 1], "
                f"[{block[0]}, {block[1]}], {layout})"
            )
        fixed = {dim: point for dim, point in at.items() if dim < len(place.strides) and place.strides[dim].factor}
        lines = w.extent(Extent.of(sizes[outer]))
        lines = lines if lines.isdigit() else f"({lines}).to(tl.int32)"
        return (
            f"tma.make_tensor_descriptor(v{place.value} + ({w.offset(place, fixed).text}), [{lines}, {sizes[inner]}], "
            f"[{w.extent(place.strides[outer])}, 1], [{block[0]}, {block[1]}], {layout})"
        )

    def _barriers(self, w: _Writer) -> None:
        groups = self.groups
        counts = dict.fromkeys(("qfull", "qempty"), groups.count)
        counts |= dict.fromkeys(("kfull", "vfull", "kempty", "vempty"), groups.stages)
        for name, count in counts.items():
            w.line(f"{name} = mbarrier.allocate_mbarrier(batch={count})")
        w.line(f"for i in gl.static_range({groups.count}):")
        w.line("    mbarrier.init(qfull.index(i), count=1)")
        w.line("    mbarrier.init(qempty.index(i), count=1)")
        w.line(f"for i in gl.static_range({groups.stages}):")
        for name in ("kfull", "vfull"):
            w.line(f"    mbarrier.init({name}.index(i), count=1)")
        for name in ("kempty", "vempty"):
            w.line(f"    mbarrier.init({name}.index(i), count={groups.count})")
        w.line("fence_async_shared()")
