"""Products whose results meet, around a ring, as Gluon programs. `multi_rings.py` says which rings there are."""

from __future__ import annotations

from collections.abc import Sequence

from motet.artifact.expressions import product
from motet.compiler.codegen.gpu.gemm.launch import leaving
from motet.compiler.codegen.gpu.gemm.multi_matching import Joined, split_stages
from motet.compiler.codegen.gpu.gemm.multi_rings import Fit, TmaOperands
from motet.compiler.codegen.gpu.gemm.operand_layout import Matrix
from motet.compiler.codegen.gpu.gemm.tiles import stored_as
from motet.compiler.codegen.gpu.tasks import ceiling, total
from motet.compiler.codegen.triton.gemm.descriptors import describe, short
from motet.compiler.codegen.triton.gemm.multi_sums import Sums, ended, ended_at_once, settled
from motet.compiler.codegen.triton.gemm.persistent_text import (
    HEAD,
    REGISTERS,
    WAIT,
    RingWriter,
    barrier_lines,
    tile_function,
)
from motet.compiler.codegen.triton.gemm.products import group_of, stay
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.scalars import storage_type
from motet.compiler.codegen.triton.text.writer import Coordinate, symbol_name
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.targets.gpu import GpuTarget


def form(j: Joined, factors: TmaOperands, fit: Fit, target: GpuTarget) -> Form:
    """The form for one ring buffer. Raises `Unsupported`."""
    task, last, ring = j.task, j.products[-1], fit.ring
    text = _Text(j, factors, fit, leaving(last))
    tiles = product((ceiling(total(last.m), ring.m), ceiling(total(last.n), fit.width)))
    grid = stay(tiles, target.processors)
    return Form(text.module(task.symbol, task.about), grid, ring.warps, ring.stages, fit.label)


class _RingSums(Sums, RingWriter):
    """Writes the epilogue of sums in the layout of tensor cores."""

    def __init__(
        self, kernel: Kernel, buffers: Sequence[int], shape: Sequence[int], result: Matrix | None, outs: int
    ) -> None:
        RingWriter.__init__(self, kernel, buffers, shape, result, outs)
        self.sums = set()


class _Text:
    """Writes the functions of a program, one method for each."""

    def __init__(self, j: Joined, factors: TmaOperands, fit: Fit, result: Matrix | None) -> None:
        self.j, self.factors, self.fit, self.result = j, factors, fit, result
        self.ring, self.last = fit.ring, j.products[-1]
        self.stages = split_stages(j)
        self.kept: dict[int, dict[int, str]] = {}  # by product, the values kept of it and their dtypes
        self.parts_at_once = len(j.products) if fit.at_once else 1
        self.w = self._writer((self.ring.m, self.ring.piece))
        self.arguments = [*(f"v{value}" for value in self.w.buffers), *map(symbol_name, self.w.kernel.symbols)]
        self.shared = ["lefts", *(f"rights{i}" for i in range(self.parts_at_once)), "full", "empty", "rows", "columns"]

    def _writer(self, shape: tuple[int, int]) -> _RingSums:
        return _RingSums(self.j.task.kernel, self.j.task.buffers, shape, self.result, self.ring.outs)

    def module(self, symbol: str, about: str) -> str:
        others = 0 if self.fit.at_once else len(self.j.products) - 1
        functions = [self._keep(number) for number in range(others)]
        functions += [self._finish(), tile_function(group_of(self.ring.m, self.fit.width))]
        functions += [self._fetch(True), self._fetch(False), self._multiply(), self._main(symbol)]
        body = "\n\n\n".join(functions)
        library = "from triton.language.extra import libdevice\n" if "libdevice." in body else ""
        return f'"""{about}\n\n{self.w.described()}"""\n\n{HEAD}{library}\n\n{body}\n'

    # -- epilogue of sums --------------------------------------------------------------------------

    def _points(self, w: RingWriter) -> list[dict[int, Coordinate]]:
        """The coordinates of a piece of `shape`, in the dimensions of each product."""
        wide = ".to(tl.int64)" if w.wide else ""
        row, column = (w.define(name, f"({name}_at + {w.range(axis)}){wide}") for axis, name in enumerate("mn"))
        counts = total(self.last.m), total(self.last.n)
        w.masks = {
            axis: w.define("b", f"{point} < {w.extent(count)}")
            for axis, point, count, block in ((0, row, counts[0], self.ring.m), (1, column, counts[1], self.fit.width))
            if count.known is None or count.factor % block
        }
        return [
            w.decompose(Coordinate(row, frozenset({0})), c.m) | w.decompose(Coordinate(column, frozenset({1})), c.n)
            for c in self.j.products
        ]

    def _finish(self) -> str:
        """The function that runs the epilogue of a piece and stores its results."""
        w, j = self.w, self.j
        points = self._points(w)
        if self.fit.at_once:
            names = self._sums()
            ended_at_once(w, j, names, points)
        else:
            kept = {value: (f"y{position}", dtype) for position, (value, dtype) in enumerate(self._kept())}
            names = [*(name for name, _ in kept.values()), "acc0"]
            ended(w, j, "acc0", points, kept, self.stages.rest)
        given = ", ".join([*names, "m_at", "n_at", "c", "out", "L: gl.constexpr", *self.arguments])
        return f"@gluon.jit\ndef finish({given}):\n{w.text()}"

    def _keep(self, number: int) -> str:
        """The function that computes the kept values of a product's sum."""
        w = self._writer((self.ring.m, self.fit.width))
        points = self._points(w)
        made = settled(w, self.j, self.stages, number, "acc0", points, {})
        self.kept[number] = {value: dtype for value, (_, dtype) in made.items()}
        w.line(f"return {', '.join(name for name, _ in made.values())}")
        given = ", ".join(["acc0", "m_at", "n_at", "L: gl.constexpr", *self.arguments])
        return f"@gluon.jit\ndef keep{number}({given}):\n{w.text()}"

    def _kept(self) -> list[tuple[int, str]]:
        """The values kept of all sums but the last, with their dtypes."""
        return [each for number in sorted(self.kept) for each in self.kept[number].items()]

    # -- warps -------------------------------------------------------------------------------------

    def _sums(self) -> list[str]:
        return [f"acc{number}" for number in range(self.parts_at_once)]

    def _loops(self) -> list[tuple[int, ...]]:
        """The products computed by each loop along K."""
        count = range(len(self.j.products))
        return [tuple(count)] if self.fit.at_once else [(number,) for number in count]

    def _depth(self, number: int) -> str:
        return short(self.w, total(self.j.products[number].k))

    def _fetch(self, left: bool) -> str:
        """A producer warp that loads one side's operands, in the order in which slots are used."""
        matrices = self.factors.lefts if left else self.factors.rights
        shared = left and self.fit.at_once  # by all products
        making: list[str] = []
        for number, matrix in enumerate(matrices[:1] if shared else matrices):
            place = "lefts" if left else f"rights{number if self.fit.at_once else 0}"
            size = (self.ring.m, self.ring.k) if left else (self.ring.k, self.fit.width)
            making.append(self._described(f"m{number}", matrix, size, place))
        at = (f"pm * {self.ring.m}", "k") if left else ("k", f"pn * {self.fit.width}")
        corner = self._corner(matrices[0], *at)
        loops: list[str] = []
        for members in self._loops():
            parts = [f"m{number}" for number in (members[:1] if shared else members)]
            places = ["lefts"] if left else [f"rights{position}" for position in range(len(members))]
            loops += [
                f"for k in range(0, {self._depth(members[0])}, {self.ring.k}):",
                "    mbarrier.wait(empty.index(place), phase)",
                f"    mbarrier.expect(full.index(place), {' + '.join(f'{part}.nbytes_per_cta' for part in parts)})",
                *(f"    tma.async_load({part}, {corner}, full.index(place), {each}.index(place))"
                  for part, each in zip(parts, places, strict=True)),
                *_indented(self._onwards()),
            ]
        name = "fetch_left" if left else "fetch_right"
        return "\n".join([
            "@gluon.jit", f"def {name}({', '.join([*self.shared, *self.arguments])}):",
            *_indented([*making, WAIT, "place = 0", "phase = 1", *self._tiles(loops)]),
        ])

    def _multiply(self) -> str:
        """The function of the consumer warps."""
        kind, step = storage_type(self.last.sum), 32 // item_bytes(stored_as(self.last.factor))
        making = [
            f"layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[{self.ring.warps}, 1], "
            f"instr_shape=[16, {self.fit.width}, {step}])",
            "c = 0" if self.result is None
            else self._described("c", self.result, (self.ring.m, self.ring.piece), "outs"),
            WAIT,
        ]
        loops: list[str] = []
        for members in self._loops():
            sums = [f"r{position}" for position in range(len(members))]
            zeros = f"warpgroup_mma_init(gl.zeros(({self.ring.m}, {self.fit.width}), {kind}, layout))"
            loops += [f"{each} = {zeros}" for each in sums]
            loops += ["last = 0", f"for k in range(0, {self._depth(members[0])}, {self.ring.k}):"]
            loops += _indented(self._iteration(sums))
            accumulators = ", ".join(f"acc{position}" for position in range(len(members)))
            loops += [
                f"{accumulators} = warpgroup_mma_wait(0, deps=[{', '.join(sums)}])",
                "mbarrier.arrive(empty.index(last))",
            ]
            number = members[0]
            if not self.fit.at_once and number + 1 < len(self.j.products):
                before = sum(len(self.kept[each]) for each in range(number))
                names = ", ".join(f"y{before + position}" for position in range(len(self.kept[number])))
                given = ["acc0", f"pm * {self.ring.m}", f"pn * {self.fit.width}", "acc0.type.layout", *self.arguments]
                loops.append(f"{names} = keep{number}({', '.join(given)})")
        loops += self._pieces()
        return "\n".join([
            "@gluon.jit", f"def multiply({', '.join(['outs', *self.shared, *self.arguments])}):",
            *_indented([*making, "place = 0", "phase = 0", *self._tiles(loops), "tma.store_wait(0)"]),
        ])

    def _iteration(self, sums: Sequence[str]) -> list[str]:
        """The lines that process one slot, while the products of the previous one are in progress."""
        left = "lefts.index(place)" + (".permute((1, 0))" if self.factors.lefts[0].across else "")
        across = ".permute((1, 0))" if self.factors.rights[0].across else ""
        every = ", ".join(sums)
        done = ", ".join(f"t{position}" for position in range(len(sums)))
        return [
            "mbarrier.wait(full.index(place), phase)",
            *(f"{each} = warpgroup_mma({left}, rights{position}.index(place){across}, {each}, use_acc=k > 0, "
              "is_async=True)" for position, each in enumerate(sums)),
            f"{done} = warpgroup_mma_wait({len(sums)}, deps=[{every}])",
            *(f"{each} = warpgroup_mma_init(t{position})" for position, each in enumerate(sums)),
            "mbarrier.arrive(empty.index(last), pred=k > 0)",
            "last = place",
            *self._onwards(),
        ]

    def _pieces(self) -> list[str]:
        """The lines that split a tile along N and finish its pieces."""
        wholes = self._sums() if self.fit.at_once else [*(f"y{p}" for p in range(len(self._kept()))), "acc0"]
        lines: list[str] = []
        pieces, size = [wholes], self.fit.width
        while size > self.ring.piece:
            size //= 2
            for names in pieces:
                lines += [
                    f"{each}_0, {each}_1 = {each}.reshape(({self.ring.m}, 2, {size})).permute((0, 2, 1)).split()"
                    for each in names
                ]
            pieces = [[f"{each}_{half}" for each in names] for names in pieces for half in (0, 1)]
        for position, names in enumerate(pieces):
            out = f"outs.index({position % self.ring.outs})" if self.result is not None else "outs"
            at = [f"pm * {self.ring.m}", f"pn * {self.fit.width} + {position * size}"]
            lines.append(f"finish({', '.join([*names, *at, 'c', out, f'{names[-1]}.type.layout', *self.arguments])})")
        return lines

    def _tiles(self, body: Sequence[str]) -> list[str]:
        return [
            "for number in range(gl.program_id(0), rows * columns, gl.num_programs(0)):",
            *_indented(["pm, pn = tile(number, rows, columns)", *body]),
        ]

    def _onwards(self) -> list[str]:
        return ["place += 1", f"if place == {self.ring.stages}:", "    place = 0", "    phase ^= 1"]

    # -- the whole program -------------------------------------------------------------------------

    def _described(self, name: str, matrix: Matrix, size: tuple[int, int], places: str) -> str:
        lines = (size[1], size[0]) if matrix.across else size
        return f"{name} = tma.make_tensor_descriptor({describe(self.w, matrix, {}, lines)}, {places}.layout)"

    def _corner(self, matrix: Matrix, first: str, second: str) -> str:
        return f"[{second}, {first}]" if matrix.across else f"[{first}, {second}]"

    def _main(self, symbol: str) -> str:
        ring, kind = self.ring, storage_type(stored_as(self.last.factor))
        lines = _places("lefts", kind, ring.stages, (ring.m, ring.k), self.factors.lefts[0])
        for number in range(self.parts_at_once):
            lines += _places(f"rights{number}", kind, ring.stages, (ring.k, self.fit.width), self.factors.rights[0])
        if self.result is None:
            lines.append("outs = 0")
        else:
            lines += _places(
                "outs", storage_type(self.result.place.dtype), ring.outs, (ring.m, ring.piece), self.result
            )
        given = ", ".join([*self.shared, *self.arguments])
        lines += [
            *barrier_lines(ring.stages, 2),
            f"rows = tl.cdiv({short(self.w, total(self.last.m))}, {ring.m})",
            f"columns = tl.cdiv({short(self.w, total(self.last.n))}, {self.fit.width})",
            f"gl.warp_specialize([(multiply, (outs, {given})), (fetch_left, ({given})), (fetch_right, ({given}))], "
            f"[1, 1], [{REGISTERS}, {REGISTERS}])",
        ]
        return "\n".join(["@gluon.jit", f"def {symbol}({', '.join(self.arguments)}):", *_indented(lines)])


def _places(name: str, kind: str, count: int, size: tuple[int, int], matrix: Matrix) -> list[str]:
    """The lines that allocate buffers for `count` tiles of `size` of a matrix."""
    shape = ", ".join(map(str, size[::-1] if matrix.across else size))
    return [
        f"{name}_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([{shape}], {kind})",
        f"{name} = gl.allocate_shared_memory({kind}, [{count}, {shape}], {name}_layout)",
    ]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
