"""Writes convolutions whose images TMA loads (`tma_conv.py`) in Gluon; `persistent_text.py` does it for matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.compiler.codegen.gpu.conv.image_boxes import UNIT, Boxes, Image, tiles_of
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.triton.gemm.persistent_text import HEAD, REGISTERS, barrier_lines, indented, tile_function
from motet.compiler.codegen.triton.gemm.products import group_of
from motet.compiler.codegen.triton.text.gluon import GluonWriter
from motet.compiler.codegen.triton.text.scalars import storage_type, to_storage
from motet.compiler.codegen.triton.text.writer import Coordinate
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.strides import StridedAccess

_ALIGNMENT = 16  # bytes
_RANK = 5  # rank of the tensors that TMA moves


# -- epilogue ---------------------------------------------------------------------------------------


class ImageWriter(GluonWriter):
    """Writes the epilogue of a piece of a tile in the layout `L`. The lines `store`, if any, store a result through
    shared memory."""

    def __init__(self, kernel: Kernel, buffers: Sequence[int], shape: Sequence[int], store: Sequence[str]) -> None:
        super().__init__(kernel, buffers, shape)
        self.store = store

    def write(
        self, place: StridedAccess, at: Mapping[int, Coordinate], value: str, shape: Sequence[int] | None = None
    ) -> None:
        if not self.store:
            super().write(place, at, value, shape)
            return
        stored = self.define("y", to_storage(f"({value})", place.dtype))
        for line in ("tma.store_wait(0)", f"out.store({stored})", "fence_async_shared()", *self.store):
            self.line(line)


def can_store(image: Image, result: StridedAccess) -> bool:
    """Whether TMA can store the result box by box."""
    item = item_bytes(result.dtype)
    strides = [result.strides[d].factor for d, _ in image.pixels]
    return (
        image.are_rows and item == 2 and result.strides[image.filters.dim].factor == 1 and len(strides) < _RANK
        and not any(stride * item % _ALIGNMENT for stride in strides) and not any(part.factor for part in result.offset)
    )


def coordinates(
    w: ImageWriter, image: Image, boxes: Boxes, pixel: str, axis: int
) -> tuple[dict[int, Coordinate], str]:
    """The image coordinates of the pixels of a tile, and the mask of those that exist."""
    at: dict[int, Coordinate] = {}
    masks: list[str] = []
    unit, inside = w.define("u", f"{pixel} // {UNIT}"), w.define("r", f"{pixel} % {UNIT}")
    for position, ((dim, size), side) in reversed(list(enumerate(zip(image.pixels, boxes.shape, strict=True)))):
        count = -(-size // side)
        box, low = (f"({unit} % {count})", f"{inside} % {side}") if position else (unit, inside)
        point = w.define("i", f"{box} * {side} + {low}")
        if position:
            unit, inside = w.define("u", f"{unit} // {count}"), w.define("r", f"{inside} // {side}")
        at[dim] = Coordinate(point, frozenset({axis}))
        if size % side or not position:
            masks.append(f"({point} < {size})")
    return at, " & ".join(masks)


def stores(image: Image, boxes: Boxes) -> list[str]:
    """The lines that store the boxes of a piece."""
    lines: list[str] = []
    for number in range(boxes.m // UNIT):
        corner = _corner_of(image, boxes, f"(m_at // {UNIT} + {number})")
        point = ", ".join([*(corner[d] for d, _ in image.pixels), "n_at"])
        lines.append(f"tma.async_store(c, [{point}], out_boxes.index({number}))")
    return lines


# -- the program -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TmaConvText:
    """The text of a program; `w` holds the lines of a piece's epilogue, `result` is the access that TMA stores."""

    w: ImageWriter
    c: ContractionLaunch
    image: Image
    boxes: Boxes
    result: StridedAccess | None

    @property
    def pixel_widths(self) -> tuple[int, ...]:
        """The parts of a tile along its pixels."""
        return (self.boxes.m,) if self.image.are_rows else self.boxes.widths

    @property
    def filter_widths(self) -> tuple[int, ...]:
        return self.boxes.widths if self.image.are_rows else (self.boxes.m,)

    @property
    def fetched(self) -> list[str]:
        """The arguments of the producer warps."""
        pixels, filters = range(len(self.pixel_widths)), range(len(self.filter_widths))
        return [
            "image", *(f"filters{i}" for i in filters), *(f"boxes{i}" for i in pixels), *(f"flat{i}" for i in filters),
            "full", "empty", "rows", "columns",
        ]

    @property
    def multiplied(self) -> list[str]:
        """The arguments of the consumer warps, except those of the program."""
        rights = [f"right{i}" for i in range(len(self.boxes.widths))]
        return ["c", "out", "out_boxes", "left", *rights, "full", "empty", "rows", "columns"]

    def module(self, symbol: str, about: str) -> str:
        arguments = [f"v{value}" for value in self.w.buffers]
        body = self.w.text()
        library = "from triton.language.extra import libdevice\n" if "libdevice." in body else ""
        given = ", ".join(["acc", "m_at", "n_at", "c", "out", "out_boxes", "L: gl.constexpr", *arguments])
        functions = [
            f"@gluon.jit\ndef finish({given}):\n{body}", tile_function(group_of(self.boxes.m, self.boxes.n)),
            self._fetch(), self._multiply(arguments), self._main(symbol, arguments),
        ]
        return f'"""{about}\n\n{self.w.described()}"""\n\n{HEAD}{library}\n\n' + "\n\n\n".join(functions) + "\n"

    def _fetch(self) -> str:
        image, boxes = self.image, self.boxes
        first = f"pm * {boxes.m // UNIT}" if image.are_rows else f"pn * {boxes.n // UNIT}"
        units = [(part, width // UNIT, own) for part, width in enumerate(self.pixel_widths)
                 for own in range(width // UNIT)]
        corners: list[str] = []
        loads: list[str] = []
        for number, (part, count, own) in enumerate(units):
            at = _corner_of(image, boxes, f"({first} + {number})")
            point: list[str] = []
            for a, axis in enumerate(image.axes):
                corners.append(f"at{number}_{a} = {'0' if axis.out < 0 else at[axis.out]} + {-axis.low}")
                point.append(f"at{number}_{a}" + ("" if axis.kernel < 0 else f" + by{a}"))
            to = f"boxes{part}.index(place * {count} + {own})"
            loads.append(f"tma.async_load(image, [{', '.join([*point, 'channel'])}], full.index(place), {to})")
        for i, width in enumerate(self.filter_widths):
            column = f"pn * {boxes.n} + {sum(boxes.widths[:i])}" if image.are_rows else f"pm * {width}"
            at = f"{column}, window, channel" if image.filters.channel == 1 else f"window, channel, {column}"
            loads.append(f"tma.async_load(filters{i}, [{at}], full.index(place), flat{i}.index(place))")
        sizes = [f"{len(units)} * image.nbytes_per_cta"]
        sizes += [f"filters{i}.nbytes_per_cta" for i in range(len(self.filter_widths))]
        return f'''@gluon.jit
def fetch({", ".join(self.fetched)}):
    place = 0
    phase = 1
    for number in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
        pm, pn = tile(number, rows, columns)
{indented(corners, 2)}
        for turn in range(0, {image.turns}):
            channel = turn % {image.chunks} * {UNIT}
            window = turn // {image.chunks}
{indented(self._steps(), 3)}
            mbarrier.wait(empty.index(place), phase)
            mbarrier.expect(full.index(place), {" + ".join(sizes)})
{indented(loads, 3)}
            place += 1
            if place == {boxes.stages}:
                place = 0
                phase ^= 1'''

    def _steps(self) -> list[str]:
        """The lines that compute by how much a window point shifts boxes along each axis."""
        rest, names = "window", dict[int, str]()
        for position, (dim, size) in reversed(list(enumerate(self.image.places))):
            names[dim] = f"{rest} % {size}" if position else rest
            rest = f"({rest} // {size})"
        return [
            f"by{a} = {names[axis.kernel]} * {axis.dilation}"
            for a, axis in enumerate(self.image.axes) if axis.kernel >= 0
        ]

    def _multiply(self, arguments: Sequence[str]) -> str:
        image, boxes = self.image, self.boxes
        across = image.filters.channel != 1  # filters are channels × filters in memory, pixels are pixels × channels
        left = "left.index(place)" + (".permute((1, 0))" if across and not image.are_rows else "")
        layouts: list[str] = []
        begin: list[str] = []
        iteration: list[str] = []
        end: list[str] = []
        for i, width in enumerate(boxes.widths):
            right = f"right{i}.index(place)" + ("" if across and image.are_rows else ".permute((1, 0))")
            layouts.append(
                f"layout{i}: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], "
                f"warps_per_cta=[{boxes.warps}, 1], instr_shape=[16, {width}, 16])"
            )
            zeros = f"gl.zeros(({boxes.m}, {width}), {storage_type(self.c.sum)}, layout{i})"
            begin.append(f"r{i} = warpgroup_mma_init({zeros})")
            iteration.append(f"r{i} = warpgroup_mma({left}, {right}, r{i}, use_acc=turn > 0, is_async=True)")
            end += self._pieces(f"acc{i}", width, sum(boxes.widths[:i]), arguments)
        count = len(boxes.widths)
        running, ended, done = ([f"{name}{i}" for i in range(count)] for name in ("r", "t", "acc"))
        iteration.append(f"{', '.join(ended)} = {_waited(count, running)}")
        iteration += [f"r{i} = warpgroup_mma_init(t{i})" for i in range(count)]
        return f'''@gluon.jit
def multiply({", ".join([*self.multiplied, *arguments])}):
{indented([*layouts, *self._layout()], 1)}
    place = 0
    phase = 0
    for number in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
        pm, pn = tile(number, rows, columns)
{indented(begin, 2)}
        last = 0
        for turn in range(0, {image.turns}):
            mbarrier.wait(full.index(place), phase)
{indented(iteration, 3)}
            mbarrier.arrive(empty.index(last), pred=turn > 0)
            last = place
            place += 1
            if place == {boxes.stages}:
                place = 0
                phase ^= 1
        {", ".join(done)} = {_waited(0, running)}
        mbarrier.arrive(empty.index(last))
{indented(end, 2)}
    tma.store_wait(0)'''

    def _layout(self) -> list[str]:
        """The layout in which threads store pieces: along rows of pixels."""
        if self.result is not None:
            return []
        return [f"lines: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [{self.boxes.warps}, 1], [1, 0])"]

    def _pieces(self, name: str, width: int, begin: int, arguments: Sequence[str]) -> list[str]:
        """The lines that split part `name` of a tile, `width` columns from `begin` on, along N, and run the epilogue on
        its pieces."""
        names, m = [name], self.boxes.m
        lines: list[str] = []
        while width > UNIT:
            width //= 2
            for each in names:
                lines.append(f"{each}0, {each}1 = {each}.reshape(({m}, 2, {width})).permute((0, 2, 1)).split()")
            names = [f"{each}{half}" for each in names for half in (0, 1)]
        for number, each in enumerate(names):
            layout = f"{each}.type.layout"
            if self.result is None:
                each, layout = f"gl.convert_layout({each}, lines)", "lines"
            column = f"pn * {self.boxes.n} + {begin + number * width}"
            given = [each, f"pm * {m}", column, "c", "out", "out_boxes", layout, *arguments]
            lines.append(f"finish({', '.join(given)})")
        return lines

    def _main(self, symbol: str, arguments: Sequence[str]) -> str:
        stages = self.boxes.stages
        rows, columns = tiles_of(self.image, self.boxes)
        lines = [*self._images(), *self._filters(), *self._results()]
        lines += [
            *barrier_lines(stages, 1),
            f"rows = {rows}",
            f"columns = {columns}",
        ]
        pixels, filters = ([f"{name}{i}" for i in range(len(widths))] for name, widths in (
            ("pixels", self.pixel_widths), ("sides", self.filter_widths)
        ))
        factors = [*pixels, *filters] if self.image.are_rows else [*filters, *pixels]
        given = ["c", "out", "out_boxes", *factors, "full", "empty", "rows", "columns", *arguments]
        workers = f"(multiply, ({', '.join(given)})), (fetch, ({', '.join(self.fetched)}))"
        lines.append(f"gl.warp_specialize([{workers}], [1], [{REGISTERS}])")
        return f"@gluon.jit\ndef {symbol}({', '.join(arguments)}):\n{indented(lines, 1)}"

    def _images(self) -> list[str]:
        """The descriptor of the image, and the ring buffer's slots for boxes, also as rows of pixels."""
        image, kind = self.image, storage_type(self.c.factor)
        sides = dict(zip((d for d, _ in image.pixels), self.boxes.shape, strict=True))
        block = [*(1 if axis.out < 0 else sides[axis.out] for axis in image.axes), UNIT]
        shape = [*(axis.image for axis in image.axes), image.channels]
        strides = [*(axis.step for axis in image.axes), 1]
        lines = [
            f"li: gl.constexpr = {_shared(block, kind)}",
            f"image = tma.make_tensor_descriptor(v{image.value}, {shape}, {strides}, {block}, li)",
        ]
        for i, width in enumerate(self.pixel_widths):
            count = self.boxes.stages * width // UNIT
            lines += [
                f"boxes{i} = gl.allocate_shared_memory({kind}, {[count, *block]}, li)",
                f"lp{i}: gl.constexpr = {_shared([width, UNIT], kind)}",
                f"pixels{i} = boxes{i}.reinterpret({kind}, {[self.boxes.stages, width, UNIT]}, lp{i})",
            ]
        return lines

    def _filters(self) -> list[str]:
        """The descriptors of the filters, as points × channels × filters or filters × points × channels, so that
        channels beyond the last one read as zeros, and the ring buffer's slots for them, also as matrices."""
        image, filters, kind, stages = self.image, self.image.filters, storage_type(self.c.factor), self.boxes.stages
        lines: list[str] = []
        for i, width in enumerate(self.filter_widths):
            if filters.channel == 1:
                block, flat = [width, 1, UNIT], [width, UNIT]
                shape, strides = [filters.count, image.window, image.channels], [filters.filter, filters.place, 1]
            else:
                block, flat = [1, UNIT, width], [UNIT, width]
                shape, strides = [image.window, image.channels, filters.count], [filters.place, filters.channel, 1]
            lines += [
                f"lf{i}: gl.constexpr = {_shared(block, kind)}",
                f"filters{i} = tma.make_tensor_descriptor(v{filters.value}, {shape}, {strides}, {block}, lf{i})",
                f"flat{i} = gl.allocate_shared_memory({kind}, {[stages, *block]}, lf{i})",
                f"ls{i}: gl.constexpr = {_shared(flat, kind)}",
                f"sides{i} = flat{i}.reinterpret({kind}, {[stages, *flat]}, ls{i})",
            ]
        return lines

    def _results(self) -> list[str]:
        image, boxes, result = self.image, self.boxes, self.result
        if result is None:
            return ["c = 0", "out = 0", "out_boxes = 0"]
        kind, block = storage_type(result.dtype), [*boxes.shape, UNIT]
        shape = [*(size for _, size in image.pixels), image.filters.count]
        strides = [*(result.strides[d].factor for d, _ in image.pixels), 1]
        return [
            f"lc: gl.constexpr = {_shared(block, kind)}",
            f"c = tma.make_tensor_descriptor(v{result.value}, {shape}, {strides}, {block}, lc)",
            f"out_boxes = gl.allocate_shared_memory({kind}, {[boxes.m // UNIT, *block]}, lc)",
            f"lo: gl.constexpr = {_shared([boxes.m, UNIT], kind)}",
            f"out = out_boxes.reinterpret({kind}, {[boxes.m, UNIT]}, lo)",
        ]


def _shared(shape: Sequence[int], kind: str) -> str:
    """The layout of a block in shared memory."""
    return f"gl.NVMMASharedLayout.get_default_for({list(shape)}, {kind})"


def _waited(count: int, names: Sequence[str]) -> str:
    """A wait until at most `count` products are in progress, with the values that depend on them."""
    return f"warpgroup_mma_wait({count}, deps=[{', '.join(names)}])"


def _corner_of(image: Image, boxes: Boxes, unit: str) -> dict[int, str]:
    """The first pixel of a box, by dimension."""
    at: dict[int, str] = {}
    for position, ((dim, size), side) in reversed(list(enumerate(zip(image.pixels, boxes.shape, strict=True)))):
        count = -(-size // side)
        at[dim] = f"{unit} % {count} * {side}" if position else f"{unit} * {side}"
        unit = f"({unit} // {count})"
    return at
