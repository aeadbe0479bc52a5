"""Convolutions on Hopper whose images the copy engine reads: what `ring.py` is for matrices.

    y[n, h, w, f] = sum over i, j, c of x[n, h + i, w + j, c] * k[i, j, c, f]

The pixels of a tile are boxes of images, 64 each, along lines as long as the engine is quick about, else as much of
each of n, h and w as leaves least over at the borders. For every place i, j of the window and every 64 channels the
engine brings the boxes, moved by the place, as lines of channels, which is how tensor cores take them; outside of the
image it brings zeros, which is the padding. So no thread calculates an address. Pixels are the product's rows, or its
columns where what lies side by side in the result are pixels. Around it are a ring and warps that fetch, as in
`ring.py`. Source: NVIDIA, CUTLASS, "Implicit GEMM Convolution".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from motet.compiler.codegen.cpu.extents import Place, memory_strides
from motet.compiler.codegen.kernel import Access, Kernel, item_bytes
from motet.compiler.codegen.triton.products import Contraction, finish, group_of, stay
from motet.compiler.codegen.triton.program import Form
from motet.compiler.codegen.triton.ring_text import HEAD, REGISTERS
from motet.compiler.codegen.triton.scalars import storage_type, to_storage
from motet.compiler.codegen.triton.writer import Coordinate, Writer
from motet.compiler.targets.gpu import GpuTarget

_HOPPER = 90
_UNIT = 64  # pixels of a box, channels of a turn, and columns of the pieces in which results leave
_LINE = 128  # bytes of a unit of channels
_ALIGNMENT = 16  # bytes
_PLACES = (4, 2)  # most and least of a ring
_FORMS = 4
_RANK = 5  # of what the engine moves
_SHORT = {1: 2.0, 2: 1.6, 4: 1.6, 8: 1.4}  # times as long take turns whose boxes are so long along lines
_RATE = 2048  # products of 16-bit floats in a cycle
_CACHE_BYTES = 64  # that one processor reads from the second-level cache in a cycle
_BEGIN = 8500  # cycles until a program multiplies
_GATHERED = 1.25  # times as long as `tiles.py` thinks take programs whose threads read images
_ROWS_OF_PIXELS = (
    (128, (256,)), (128, (128, 64)), (128, (128,)), (256, (128,)), (256, (64,)), (128, (64,)), (64, (256,)),
)
_COLUMNS_OF_PIXELS = (
    (128, (256,)), (128, (128, 64)), (128, (128,)), (256, (128,)), (64, (256,)), (64, (128, 64)), (64, (128,)),
)
_FACTORS = ("f16", "bf16")


@dataclass(frozen=True)
class Axis:
    """An axis of an image as it lies in memory. The stage's dimension `pixel` walks along it by ones, `place`, of the
    window, by `step`; the first element that is read is `first`."""

    extent: int
    stride: int
    first: int = 0
    pixel: int | None = None
    place: int | None = None
    step: int = 1


@dataclass(frozen=True)
class Filters:
    """The other factor. Its strides are those from place to place of the window, from channel to channel and from
    filter to filter, which one of the last two is 1; `dim` is the stage's dimension of the filters."""

    value: int
    dim: int
    count: int
    place: int
    channel: int
    filter: int


@dataclass(frozen=True)
class Image:
    """A convolution whose image the engine can read. `axes` are all but the channels', the outermost first, `pixels`
    and `places` the stage's dimensions with their sizes, places as the filters have them."""

    value: int
    axes: tuple[Axis, ...]
    pixels: tuple[tuple[int, int], ...]
    places: tuple[tuple[int, int], ...]
    channels: int
    filters: Filters
    are_rows: bool  # the pixels, of the product

    @property
    def window(self) -> int:
        return math.prod(size for _, size in self.places)

    @property
    def turns(self) -> int:
        """Turns of the ring for a tile."""
        return self.window * self.chunks

    @property
    def chunks(self) -> int:
        return -(-self.channels // _UNIT)


@dataclass(frozen=True)
class Boxes:
    """Tiles of `m` rows and `widths` columns, `stages` places in the ring; pixels are boxes of `shape`."""

    shape: tuple[int, ...]
    m: int
    widths: tuple[int, ...]
    stages: int

    @property
    def n(self) -> int:
        return sum(self.widths)

    @property
    def warps(self) -> int:
        """Those that multiply, which is what a form asks for."""
        return 8 if self.m >= 128 else 4

    @property
    def label(self) -> str:
        return f"images {'x'.join(map(str, self.shape))} {self.m}x{self.n}x{_UNIT} stages={self.stages}"


# -- matching --------------------------------------------------------------------------------------


def image_of(c: Contraction, target: GpuTarget) -> Image | None:
    """The contraction as a convolution whose image the engine can read; None where it cannot."""
    stage, kernel = c.task.stage, c.task.kernel
    sizes = [size for size in stage.sizes if isinstance(size, int)]
    if target.architecture != _HOPPER or not target.is_cuda or c.task.epilogue is None or len(c.task.stored) != 1:
        return None
    if c.batch or c.factor not in _FACTORS or len(sizes) != len(stage.sizes) or len(stage.inputs) != 2:
        return None
    if any(kernel.values[access.value].dtype != c.factor for access in stage.inputs):
        return None
    for own, other in (stage.inputs, stage.inputs[::-1]):
        found = _axes(kernel, own, stage.iterators, sizes)
        if found is not None and other.padding is None:
            are_rows = c.left.place.value == own.value
            place = (c.right if are_rows else c.left).place
            return _image(own.value, *found, sizes, place, are_rows)
    return None


def _axes(
    kernel: Kernel, access: Access, iterators: Sequence[str], sizes: Sequence[int]
) -> tuple[tuple[Axis, ...], int] | None:
    """The axes of an image, and the dimension of its channels, which lie side by side."""
    value = kernel.values[access.value]
    shape = [size for size in value.shape if isinstance(size, int)]
    if access.padding not in (None, 0) or not 1 < value.rank <= _RANK or len(shape) != value.rank:
        return None
    strides = [stride.factor for stride in memory_strides(value)]
    found: list[Axis] = []
    for axis in value.order[:-1]:
        entry = access.map[axis]
        dims = [(d, by) for d, by in enumerate(entry.coefficients) if by and sizes[d] > 1]
        pixels = [d for d, by in dims if iterators[d] != "reduction" and by == 1]
        places = [(d, by) for d, by in dims if iterators[d] == "reduction"]
        if len(pixels) + len(places) != len(dims) or len(pixels) > 1 or len(places) > 1:
            return None
        place, step = places[0] if places else (None, 1)
        found.append(Axis(shape[axis], strides[axis], entry.constant, pixels[0] if pixels else None, place, step))
    channel = access.map[value.order[-1]]
    if channel.single is None or channel.constant or iterators[channel.single] != "reduction":
        return None
    item = item_bytes(value.dtype)
    if any(axis.stride * item % _ALIGNMENT for axis in found) or strides[value.order[-1]] != 1:
        return None
    if not any(axis.pixel is not None and axis.place is not None for axis in found):
        return None
    return tuple(found), channel.single


def _image(
    value: int, axes: tuple[Axis, ...], channel: int, sizes: Sequence[int], filters: Place, are_rows: bool
) -> Image | None:
    strides = {d: stride.factor for d, stride in enumerate(filters.strides) if stride.factor and sizes[d] > 1}
    pixels = [(axis.pixel, sizes[axis.pixel]) for axis in axes if axis.pixel is not None]
    places = [(axis.place, sizes[axis.place]) for axis in axes if axis.place is not None]
    inside = {channel, *(d for d, _ in places)}
    own = [d for d in strides if d not in inside]
    if len(own) != 1 or own[0] in dict(pixels) or inside - strides.keys():
        return None
    if any(part.factor for part in filters.offset):
        return None
    places.sort(key=lambda place: strides[place[0]], reverse=True)
    if any(strides[outer] != strides[inner] * size for (outer, _), (inner, size) in pairwise(places)):
        return None
    across, along = strides[channel], strides[own[0]]
    place = strides[places[-1][0]]
    item = item_bytes(filters.dtype)
    if 1 not in (across, along) or any(stride * item % _ALIGNMENT for stride in (place, max(across, along))):
        return None
    found = Filters(filters.value, own[0], sizes[own[0]], place, across, along)
    return Image(value, axes, tuple(pixels), tuple(places), sizes[channel], found, are_rows)


# -- boxes -----------------------------------------------------------------------------------------


def image_forms(c: Contraction, target: GpuTarget) -> tuple[float, list[Form]]:
    """Forms, the best first, and the cycles that it would take, as `tiles.py` would say; none for what is no such
    convolution. Raises `Unsupported`."""
    image = image_of(c, target)
    if image is None:
        return math.inf, []
    result = next(iter(c.task.stored.values()))
    shapes = _ROWS_OF_PIXELS if image.are_rows else _COLUMNS_OF_PIXELS
    found = [
        boxes for shape in _shapes(image) for m, widths in shapes
        for boxes in _fitting(shape, m, widths, item_bytes(result.dtype) if image.are_rows else 4, target)
    ]
    found.sort(key=lambda boxes: image_cycles(image, boxes, target))
    forms = [_form(c, image, boxes, target) for boxes in found[:_FORMS]]
    unsure = image.are_rows or not found
    return (math.inf if unsure else image_cycles(image, found[0], target) / _GATHERED), forms


def _shapes(image: Image) -> list[tuple[int, ...]]:
    """Shapes of boxes, for each length along lines that which leaves least over."""
    sizes = [size for _, size in image.pixels]
    sides = [1 << i for i in range(_UNIT.bit_length())]
    best: dict[int, tuple[int, ...]] = {}
    for shape in product(sides, repeat=len(sizes)):
        least = best.get(shape[-1], shape)
        is_first = shape[-1] not in best
        if math.prod(shape) == _UNIT and (is_first or _padded(sizes, shape) < _padded(sizes, least)):
            best[shape[-1]] = shape
    return list(best.values())


def _padded(sizes: Sequence[int], shape: Sequence[int]) -> int:
    """Pixels in all boxes."""
    return math.prod(-(-size // side) * side for size, side in zip(sizes, shape, strict=True))


def _fitting(shape: tuple[int, ...], m: int, widths: tuple[int, ...], item: int, target: GpuTarget) -> list[Boxes]:
    """The ring with most places that has room; results of `item` bytes leave through shared memory too."""
    for stages in range(_PLACES[0], _PLACES[1] - 1, -1):
        if stages * (m + sum(widths)) * _LINE + m * _UNIT * item + 2048 <= target.shared:
            return [Boxes(shape, m, widths, stages)]
    return []


def image_cycles(image: Image, boxes: Boxes, target: GpuTarget) -> float:
    """What a convolution takes on the busiest processor; fitted to what an H200 took for some 40 of them."""
    rows, columns = _tiles(image, boxes)
    waves = -(-rows * columns // target.processors)
    arithmetic = boxes.m * boxes.n * _UNIT / _RATE
    reading = (boxes.m + boxes.n) * _LINE / _CACHE_BYTES
    step = max(1.04 * arithmetic, 0.93 * reading) + 0.1 * min(arithmetic, reading) + 20
    ending = boxes.m * boxes.n * (4 if image.are_rows else 14) / _CACHE_BYTES + 500  # the engine stores, or threads do
    return _BEGIN + waves * (image.turns * step * _SHORT.get(boxes.shape[-1], 1.0) + ending)


def _pixels(image: Image, boxes: Boxes) -> int:
    return _padded([size for _, size in image.pixels], boxes.shape)


# -- what is done to a tile ------------------------------------------------------------------------


class ImageWriter(Writer):
    """Writes what is done to a piece of a tile, in the layout `L`; a result goes by the lines `store` where there are
    some, through shared memory."""

    def __init__(self, kernel: Kernel, buffers: Sequence[int], shape: Sequence[int], store: Sequence[str]) -> None:
        super().__init__(kernel, buffers, shape)
        self.store = store

    def range(self, axis: int) -> str:
        inside = ", ".join(":" if a == axis else "None" for a in range(len(self.shape)))
        return f"gl.arange(0, {self.shape[axis]}, gl.SliceLayout({1 - axis}, L))[{inside}]"

    def write(
        self, place: Place, at: Mapping[int, Coordinate], value: str, shape: Sequence[int] | None = None
    ) -> None:
        if not self.store:
            super().write(place, at, value, shape)
            return
        stored = self.define("y", to_storage(f"({value})", place.dtype))
        for line in ("tma.store_wait(0)", f"out.store({stored})", "fence_async_shared()", *self.store):
            self.line(line)


def _form(c: Contraction, image: Image, boxes: Boxes, target: GpuTarget) -> Form:
    task, filters = c.task, image.filters
    result = next(iter(task.stored.values()))
    leaves = _leaves(image, result)
    w = ImageWriter(task.kernel, task.buffers, (boxes.m, _UNIT), _stores(image, boxes) if leaves else ())
    wide = ".to(tl.int64)" if w.wide else ""
    points = [w.define(name, f"({name}_at + {w.range(axis)}){wide}") for axis, name in enumerate("mn")]
    axis = 0 if image.are_rows else 1
    at, mask = _coordinates(w, image, boxes, points[axis], axis)
    at[filters.dim] = Coordinate(points[1 - axis], frozenset({1 - axis}))
    w.masks[axis] = w.define("b", mask)
    if filters.count % (boxes.n if image.are_rows else boxes.m):
        w.masks[1 - axis] = w.define("b", f"{points[1 - axis]} < {filters.count}")
    finish(w, c, "acc", at)
    rows, columns = _tiles(image, boxes)
    text = _Text(w, c, image, boxes, result if leaves else None)
    return Form(
        text.module(task.symbol, task.about), stay(rows * columns, target.processors), boxes.warps, boxes.stages,
        boxes.label,
    )


def _tiles(image: Image, boxes: Boxes) -> tuple[int, int]:
    pixels, filters = _pixels(image, boxes), image.filters.count
    m, n = (pixels, filters) if image.are_rows else (filters, pixels)
    return -(-m // boxes.m), -(-n // boxes.n)


def _leaves(image: Image, result: Place) -> bool:
    """Whether the engine can store the result, box by box."""
    item = item_bytes(result.dtype)
    strides = [result.strides[d].factor for d, _ in image.pixels]
    return (
        image.are_rows and item == 2 and result.strides[image.filters.dim].factor == 1 and len(strides) < _RANK
        and not any(stride * item % _ALIGNMENT for stride in strides) and not any(part.factor for part in result.offset)
    )


def _coordinates(
    w: ImageWriter, image: Image, boxes: Boxes, pixel: str, axis: int
) -> tuple[dict[int, Coordinate], str]:
    """Where in the image the pixels of a tile are, and which of them are there at all."""
    at: dict[int, Coordinate] = {}
    masks: list[str] = []
    unit, inside = w.define("u", f"{pixel} // {_UNIT}"), w.define("r", f"{pixel} % {_UNIT}")
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


def _corner(image: Image, boxes: Boxes, unit: str) -> dict[int, str]:
    """The first pixel of the box of a number, by dimension."""
    at: dict[int, str] = {}
    for position, ((dim, size), side) in reversed(list(enumerate(zip(image.pixels, boxes.shape, strict=True)))):
        count = -(-size // side)
        at[dim] = f"{unit} % {count} * {side}" if position else f"{unit} * {side}"
        unit = f"({unit} // {count})"
    return at


def _stores(image: Image, boxes: Boxes) -> list[str]:
    """Lines that store the boxes of a piece."""
    lines: list[str] = []
    for number in range(boxes.m // _UNIT):
        corner = _corner(image, boxes, f"(m_at // {_UNIT} + {number})")
        point = ", ".join([*(corner[d] for d, _ in image.pixels), "n_at"])
        lines.append(f"tma.async_store(c, [{point}], out_boxes.index({number}))")
    return lines


# -- the program -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Text:
    """The text of a program; `w` has the lines of what is done to a piece, `result` is what the engine stores."""

    w: ImageWriter
    c: Contraction
    image: Image
    boxes: Boxes
    result: Place | None

    @property
    def pixel_widths(self) -> tuple[int, ...]:
        """The parts of a tile along pixels."""
        return (self.boxes.m,) if self.image.are_rows else self.boxes.widths

    @property
    def filter_widths(self) -> tuple[int, ...]:
        return self.boxes.widths if self.image.are_rows else (self.boxes.m,)

    @property
    def fetched(self) -> list[str]:
        """What the warps that fetch are given."""
        pixels, filters = range(len(self.pixel_widths)), range(len(self.filter_widths))
        return [
            "image", *(f"filters{i}" for i in filters), *(f"boxes{i}" for i in pixels), *(f"flat{i}" for i in filters),
            "full", "empty", "rows", "columns",
        ]

    @property
    def multiplied(self) -> list[str]:
        """What the warps that multiply are given, but for the arguments of the program."""
        rights = [f"right{i}" for i in range(len(self.boxes.widths))]
        return ["c", "out", "out_boxes", "left", *rights, "full", "empty", "rows", "columns"]

    def module(self, symbol: str, about: str) -> str:
        arguments = [f"v{value}" for value in self.w.buffers]
        body = "\n".join(self.w.lines).replace("tl.full((), ", "tl.cast(")  # Gluon's `full` asks for a layout
        library = "from triton.language.extra import libdevice\n" if "libdevice." in body else ""
        given = ", ".join(["acc", "m_at", "n_at", "c", "out", "out_boxes", "L: gl.constexpr", *arguments])
        functions = [
            f"@gluon.jit\ndef finish({given}):\n{body}", _tile_function(group_of(self.boxes.m, self.boxes.n)),
            self._fetch(), self._multiply(arguments), self._main(symbol, arguments),
        ]
        return f'"""{about}\n\n{self.w.described()}"""\n\n{HEAD}{library}\n\n' + "\n\n\n".join(functions) + "\n"

    def _fetch(self) -> str:
        image, boxes = self.image, self.boxes
        first = f"pm * {boxes.m // _UNIT}" if image.are_rows else f"pn * {boxes.n // _UNIT}"
        units = [(part, width // _UNIT, own) for part, width in enumerate(self.pixel_widths)
                 for own in range(width // _UNIT)]
        corners: list[str] = []
        loads: list[str] = []
        for number, (part, count, own) in enumerate(units):
            at = _corner(image, boxes, f"({first} + {number})")
            point: list[str] = []
            for a, axis in enumerate(image.axes):
                corners.append(f"at{number}_{a} = {'0' if axis.pixel is None else at[axis.pixel]} + {axis.first}")
                point.append(f"at{number}_{a}" + ("" if axis.place is None else f" + by{a}"))
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
{_indented(corners, 2)}
        for turn in range(0, {image.turns}):
            channel = turn % {image.chunks} * {_UNIT}
            window = turn // {image.chunks}
{_indented(self._steps(), 3)}
            mbarrier.wait(empty.index(place), phase)
            mbarrier.expect(full.index(place), {" + ".join(sizes)})
{_indented(loads, 3)}
            place += 1
            if place == {boxes.stages}:
                place = 0
                phase ^= 1'''

    def _steps(self) -> list[str]:
        """Lines that say by how much a place of the window moves boxes along each axis."""
        rest, names = "window", dict[int, str]()
        for position, (dim, size) in reversed(list(enumerate(self.image.places))):
            names[dim] = f"{rest} % {size}" if position else rest
            rest = f"({rest} // {size})"
        return [
            f"by{a} = {names[axis.place]} * {axis.step}"
            for a, axis in enumerate(self.image.axes) if axis.place is not None
        ]

    def _multiply(self, arguments: Sequence[str]) -> str:
        image, boxes = self.image, self.boxes
        across = image.filters.channel != 1  # filters lie as channels × filters, pixels as pixels × channels
        left = "left.index(place)" + (".permute((1, 0))" if across and not image.are_rows else "")
        layouts: list[str] = []
        begin: list[str] = []
        turn: list[str] = []
        end: list[str] = []
        for i, width in enumerate(boxes.widths):
            right = f"right{i}.index(place)" + ("" if across and image.are_rows else ".permute((1, 0))")
            layouts.append(
                f"layout{i}: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], "
                f"warps_per_cta=[{boxes.warps}, 1], instr_shape=[16, {width}, 16])"
            )
            zeros = f"gl.zeros(({boxes.m}, {width}), {storage_type(self.c.sum)}, layout{i})"
            begin.append(f"r{i} = warpgroup_mma_init({zeros})")
            turn.append(f"r{i} = warpgroup_mma({left}, {right}, r{i}, use_acc=turn > 0, is_async=True)")
            end += self._pieces(f"acc{i}", width, sum(boxes.widths[:i]), arguments)
        count = len(boxes.widths)
        running, ended, done = ([f"{name}{i}" for i in range(count)] for name in ("r", "t", "acc"))
        turn.append(f"{_left(ended)} = {_waited(count, running)}")
        turn += [f"r{i} = warpgroup_mma_init(t{i})" for i in range(count)]
        return f'''@gluon.jit
def multiply({", ".join([*self.multiplied, *arguments])}):
{_indented([*layouts, *self._layout()], 1)}
    place = 0
    phase = 0
    for number in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
        pm, pn = tile(number, rows, columns)
{_indented(begin, 2)}
        last = 0
        for turn in range(0, {image.turns}):
            mbarrier.wait(full.index(place), phase)
{_indented(turn, 3)}
            mbarrier.arrive(empty.index(last), pred=turn > 0)
            last = place
            place += 1
            if place == {boxes.stages}:
                place = 0
                phase ^= 1
        {_left(done)} = {_waited(0, running)}
        mbarrier.arrive(empty.index(last))
{_indented(end, 2)}
    tma.store_wait(0)'''

    def _layout(self) -> list[str]:
        """The layout in which threads store pieces: along lines of pixels."""
        if self.result is not None:
            return []
        return [f"lines: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [{self.boxes.warps}, 1], [1, 0])"]

    def _pieces(self, name: str, width: int, begin: int, arguments: Sequence[str]) -> list[str]:
        """The lines that take part `name` of a tile, `width` columns from `begin` on, apart along N, and finish its
        pieces."""
        names, m = [name], self.boxes.m
        lines: list[str] = []
        while width > _UNIT:
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
        rows, columns = _tiles(self.image, self.boxes)
        lines = [*self._images(), *self._filters(), *self._results()]
        lines += [
            f"full = mbarrier.allocate_mbarrier(batch={stages})",
            f"empty = mbarrier.allocate_mbarrier(batch={stages})",
            f"for i in gl.static_range({stages}):",
            "    mbarrier.init(full.index(i), count=1)",
            "    mbarrier.init(empty.index(i), count=1)",
            "fence_async_shared()",
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
        return f"@gluon.jit\ndef {symbol}({', '.join(arguments)}):\n{_indented(lines, 1)}"

    def _images(self) -> list[str]:
        """The descriptor of the image, and the ring's places for boxes, which are lines of pixels as well."""
        image, kind = self.image, storage_type(self.c.factor)
        sides = dict(zip((d for d, _ in image.pixels), self.boxes.shape, strict=True))
        block = [*(1 if axis.pixel is None else sides[axis.pixel] for axis in image.axes), _UNIT]
        shape = [*(axis.extent for axis in image.axes), image.channels]
        strides = [*(axis.stride for axis in image.axes), 1]
        lines = [
            f"li: gl.constexpr = {_shared(block, kind)}",
            f"image = tma.make_tensor_descriptor(v{image.value}, {shape}, {strides}, {block}, li)",
        ]
        for i, width in enumerate(self.pixel_widths):
            count = self.boxes.stages * width // _UNIT
            lines += [
                f"boxes{i} = gl.allocate_shared_memory({kind}, {[count, *block]}, li)",
                f"lp{i}: gl.constexpr = {_shared([width, _UNIT], kind)}",
                f"pixels{i} = boxes{i}.reinterpret({kind}, {[self.boxes.stages, width, _UNIT]}, lp{i})",
            ]
        return lines

    def _filters(self) -> list[str]:
        """The descriptors of the filters, as places × channels × filters or filters × places × channels, so that there
        are zeros beyond the channels, and the ring's places for them, which are matrices as well."""
        image, filters, kind, stages = self.image, self.image.filters, storage_type(self.c.factor), self.boxes.stages
        lines: list[str] = []
        for i, width in enumerate(self.filter_widths):
            if filters.channel == 1:
                block, flat = [width, 1, _UNIT], [width, _UNIT]
                shape, strides = [filters.count, image.window, image.channels], [filters.filter, filters.place, 1]
            else:
                block, flat = [1, _UNIT, width], [_UNIT, width]
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
        kind, block = storage_type(result.dtype), [*boxes.shape, _UNIT]
        shape = [*(size for _, size in image.pixels), image.filters.count]
        strides = [*(result.strides[d].factor for d, _ in image.pixels), 1]
        return [
            f"lc: gl.constexpr = {_shared(block, kind)}",
            f"c = tma.make_tensor_descriptor(v{result.value}, {shape}, {strides}, {block}, lc)",
            f"out_boxes = gl.allocate_shared_memory({kind}, {[boxes.m // _UNIT, *block]}, lc)",
            f"lo: gl.constexpr = {_shared([boxes.m, _UNIT], kind)}",
            f"out = out_boxes.reinterpret({kind}, {[boxes.m, _UNIT]}, lo)",
        ]


def _shared(shape: Sequence[int], kind: str) -> str:
    """The layout of a block in shared memory."""
    return f"gl.NVMMASharedLayout.get_default_for({list(shape)}, {kind})"


def _left(names: Sequence[str]) -> str:
    return ", ".join(names)


def _waited(count: int, names: Sequence[str]) -> str:
    """Products behind a wait until at most `count` of them are under way."""
    return f"warpgroup_mma_wait({count}, deps=[{', '.join(names)}])"


def _tile_function(group: int) -> str:
    """Which tile a number stands for: groups of rows of tiles go over their columns together."""
    return f'''@gluon.jit
def tile(number, rows, columns):
    first = number // ({group} * columns) * {group}
    height = tl.minimum(rows - first, {group})
    rest = number % ({group} * columns)
    return first + rest % height, rest // height'''


def _indented(lines: Sequence[str], level: int) -> str:
    return "\n".join("    " * level + line for line in lines)
