"""Schedules: the choices for a kernel on a target, as data that is written to files and read back.

    a product of 512x512x512, x86-64-v4
    {"class": "contraction", "lanes": 16, "rows": 8, "vectors": 3, "tile_rows": 4, "panels": 1, "b_mode": "packed"}

Each class of kernels has one schedule type. A back end chooses a schedule by heuristics, checks a given one (`Reason`),
and generates code from a kernel and a schedule; the same two give the same code. Derived properties (the grid of tasks,
layouts of packed constants, scratch memory) are not part of a schedule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from motet.compiler.kernels.microkernel_code import Microkernel
from motet.decoding import convert


class _Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="class"):
    """`class` in JSON is the tag of the struct."""


class ContractionSchedule(_Schedule, frozen=True, tag="contraction"):
    """A sum of products by packed panels and register tiles, on a CPU.

    A register tile has `rows` rows by `vectors` vectors of `lanes` elements. A task has `tile_rows` register tiles
    along rows and `panels` panels of columns, each as wide as a tile, and processes `depth_block` steps of K at a time,
    None for all at once. `group` outer iterations form one task.

    `b_mode`: the right operand is `packed` when compiling, packed to `scratch` by the task, read in `place`, or
    multiplied `along_k`: a tile then has `vectors` columns, and each of its sums is a vector. With `packed_columns`, a
    constant is packed as panels that wide, each of several tiles, so that targets with tiles of different widths read
    the same bytes; 0 stands for the width of a tile.
    """

    lanes: int
    rows: int
    vectors: int
    tile_rows: int
    panels: int
    b_mode: Literal["packed", "scratch", "place", "along_k"]
    depth_block: int | None = None
    pack_a: bool = False
    group: int = 1
    keeps: bool = False  # a `scratch` panel is kept for the next tasks that a thread takes at the same time
    shared: bool = False  # `scratch` panels are packed once for all tasks, in a separate phase
    pack_panels: int = 1  # per task of that phase,
    pack_steps: int = 0  # and the steps of K
    ahead: int = 0  # cache lines of the next panel that a tile prefetches in four steps of K
    unroll: int = 224  # maximum vector multiply-adds in one iteration of the innermost loop
    packed_columns: int = 0

    @property
    def width(self) -> int:
        """The columns of one panel."""
        return self.vectors if self.b_mode == "along_k" else self.vectors * self.lanes

    @property
    def packed_width(self) -> int:
        """The columns of one panel of a packed constant, a multiple of `width`."""
        return self.packed_columns or self.width


class LineProductSchedule(_Schedule, frozen=True):
    """A product of packed lines of numbers along K, on a CPU.

    `way` selects the instructions: `tiles` AMX, `dots` those for sums of products, `pairs` products of 16-bit numbers.
    A register tile has `rows` rows (for AMX, the rows of one or two tiles) and `blocks` blocks of 16 columns. A task
    has `tile_rows` register tiles and `panels` times `blocks` blocks, and `group` outer iterations. `in_place` means
    that the left operand is not packed; `depth_block` is the number of steps of K at a time, None for all.
    """

    way: Literal["tiles", "dots", "pairs"]
    rows: int
    blocks: int
    tile_rows: int
    panels: int
    group: int = 1
    in_place: bool = False
    depth_block: int | None = None

    @property
    def width(self) -> int:
        """The columns of a register tile."""
        return 16 * self.blocks


class IntegerProductSchedule(LineProductSchedule, frozen=True, tag="integer-product"):
    """A product of 8-bit integers accumulated as i32; `dots` are those of VNNI."""


class BfloatProductSchedule(LineProductSchedule, frozen=True, tag="bfloat-product"):
    """A product of bf16 numbers summed in f32; `dots` are those of AVX-512 BF16, and there are no `pairs`."""


class AttentionSchedule(_Schedule, frozen=True, tag="attention"):
    """Two products with a softmax between them, on a CPU. A task has `rows` queries, in tiles of `tile`, and processes
    `keys` keys at a time. Tiles have `score_vectors` vectors of `lanes` keys, and `value_vectors` vectors of columns.

    `key_mode`: keys are `packed` by the task, read in `place`, or multiplied `along_depth`, as sums of lanes. Values
    are packed with `pack_values`, else read in place. `way` selects the instructions of both products: multiply-adds of
    `vectors`, or for bf16 numbers `dots` of AVX-512 BF16 or `tiles` of AMX.
    """

    lanes: int
    rows: int
    tile: int
    keys: int
    score_vectors: int
    value_vectors: int
    key_mode: Literal["packed", "place", "along_depth"] = "packed"
    pack_values: bool = True
    way: Literal["vectors", "dots", "tiles"] = "vectors"

    @property
    def width(self) -> int:
        """The keys of one tile's vectors."""
        return self.lanes * self.score_vectors


class BlockProductSchedule(_Schedule, frozen=True, tag="block-product"):
    """A product by weights of 4 or 8 bits, on a CPU. With `streams`, a register tile widens the weights that it reads
    in registers, and has all rows; otherwise a task widens `depth_block` steps of a panel to scratch memory for all of
    its tiles. The other fields are those of `ContractionSchedule`."""

    lanes: int
    rows: int
    vectors: int
    tile_rows: int
    panels: int
    streams: bool
    depth_block: int | None = None
    pack_a: bool = False
    group: int = 1

    @property
    def width(self) -> int:
        """The columns of one panel."""
        return self.vectors * self.lanes


class DirectSchedule(_Schedule, frozen=True, tag="direct"):
    """A convolution of a channels-last image, or of a copy of that layout, on a CPU: tiles of `tile_rows` pixels by
    `vectors` vectors of `lanes` filters; a task has `block` output rows (a divisor of all), of which it computes one of
    `pieces` pieces, and one panel of filters. `depth_block` channels of a panel stay in the first-level cache for all
    pixels; None: a tile processes all of K at once."""

    lanes: int
    tile_rows: int
    vectors: int
    block: int
    depth_block: int | None = None
    pieces: int = 1

    @property
    def width(self) -> int:
        """The filters of one panel."""
        return self.lanes * self.vectors


class DynamicConvolutionSchedule(_Schedule, frozen=True, tag="dynamic"):
    """A convolution along axes of dynamic extents, of a padded copy of its image, on a CPU: tiles of at most
    `tile_rows` pixels of one row by `vectors` vectors of `lanes` filters; a task has `tiles` such tiles of a row."""

    lanes: int
    tile_rows: int
    vectors: int
    tiles: int

    @property
    def width(self) -> int:
        """The filters of one panel."""
        return self.lanes * self.vectors


class ConvolutionSchedule(_Schedule, frozen=True, tag="convolution"):
    """A convolution that may copy image rows first, on a CPU. For channels-last results, a tile is `tile_rows` pixels
    by `vectors` vectors of `lanes` filters, and a task has `panels` panels of so many filters; otherwise a tile is
    `tile_rows` filters by `vectors` vectors of pixels, and a task has `panels` tiles of filters. A task has `block`
    output rows (a divisor of all)."""

    lanes: int
    tile_rows: int
    vectors: int
    block: int
    panels: int = 1

    @property
    def width(self) -> int:
        """The filters, or pixels, of one tile's vectors."""
        return self.lanes * self.vectors


class DepthwiseSchedule(_Schedule, frozen=True, tag="depthwise"):
    """A depthwise convolution of a channels-last image, on a CPU: tiles of at most `pixels` pixels by `vectors` vectors
    of `lanes` channels; tasks of `block` output rows and `panels` panels of so many channels."""

    lanes: int
    vectors: int
    pixels: int
    block: int
    panels: int

    @property
    def width(self) -> int:
        """The channels of one panel."""
        return self.lanes * self.vectors


class DynamicDepthwiseSchedule(_Schedule, frozen=True, tag="dynamic-depthwise"):
    """A depthwise convolution along axes of dynamic extents, on a CPU: tiles of at most `pixels` pixels of a row by
    `vectors` vectors of `lanes` channels. A task has one row."""

    lanes: int
    vectors: int
    pixels: int


class PlanesSchedule(_Schedule, frozen=True, tag="planes"):
    """A reduction over windows of planes whose columns are contiguous, on a CPU: tiles of `rows` rows by `vectors`
    vectors of `lanes` columns; tasks of `block` rows of the result (a divisor of all)."""

    lanes: int
    vectors: int
    rows: int
    block: int


class InterleaveSchedule(_Schedule, frozen=True, tag="interleave"):
    """Rows whose elements come from several tensors in turn, on a CPU, by vectors of `lanes` elements."""

    lanes: int


class LoopPhase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The next `stages` stages of a kernel, on a CPU, in vectors of `lanes` elements: with `by_rows` together row by
    row, else one stage as a loop nest. Long rows are split into strips of `strip` elements, None: not split. A task has
    `grain` rows or strips, and more if there would be over 64 tasks."""

    stages: int
    lanes: int
    grain: int
    strip: int | None = None
    by_rows: bool = False


class LoopsSchedule(_Schedule, frozen=True, tag="loops"):
    """Element-wise work, reductions and data movement as loops, on a CPU: a sequence of parallel sections."""

    phases: list[LoopPhase]


class NestLoop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A loop of a nest over dimension `dim`: over `tile` elements of what the enclosing loop of `dim` steps by, None
    for the whole dimension. It steps by the tile of the next loop of `dim` inside, else by one.

    The iterations are tasks (`parallel`), lanes of vectors (`vectorize`), or copies of the body: `unroll` of them, 0
    for all, None for a loop that is not unrolled. `tensorize` names the microkernel that replaces this loop and those
    inside. With `split_reduction`, the iterations of a loop along a reduction are tasks that leave partial results,
    which are combined afterwards.
    """

    dim: str
    tile: int | None = None
    parallel: bool = False
    vectorize: bool = False
    unroll: int | None = None
    tensorize: str = ""
    split_reduction: bool = False

    @property
    def is_task(self) -> bool:
        """Whether the iterations run at the same time."""
        return self.parallel or self.split_reduction

    @property
    def label(self) -> str:
        """The loop in text and in errors: `i`, or `i#4`."""
        return self.dim if self.tile is None else f"{self.dim}#{self.tile}"


class NestCopy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A copy in scratch memory of what one iteration of the loop labelled `at` accesses of `value`. Rows of the copy
    have `padding` additional elements."""

    value: str
    at: str
    padding: int = 0


class NestFusion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A stage without a nest: the elements that one iteration of the loop labelled `at` of another stage's nest reads
    (a producer) or completes (a consumer) are computed in that iteration."""

    stage: int
    at: str


class NestRegion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The elements `begin` to `end` of dimension `dim`, None for the last, which have a nest for what is inside."""

    dim: str
    begin: int
    end: int | None
    nest: Nest


class Nest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Loops, outermost first, then either the body of the stage or `regions` of one dimension. `packs` are copies of
    operands, `buffers` of results."""

    loops: list[NestLoop]
    regions: list[NestRegion] = []
    packs: list[NestCopy] = []
    buffers: list[NestCopy] = []


class StageNest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The nest of a stage, by its number in the kernel."""

    stage: int
    nest: Nest


class NestSchedule(_Schedule, frozen=True, tag="nest"):
    """Loop nests written by a user or found by a search, on a CPU. Every stage of the kernel has either a nest, run in
    the order of stages, or a fusion. Dimensions and values have the names of `loop_names.py`. `microkernels` are those
    that loops name."""

    nests: list[StageNest]
    fused: list[NestFusion] = []
    microkernels: list[Microkernel] = []


class LaunchForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The form of one launch, by the label that tunings use; `number` distinguishes forms of equal labels. `warps` of a
    block, `stages` of a loop in flight, and blocks of a `cluster` must match the form's; None matches any."""

    form: str
    number: int = 0
    warps: int | None = None
    stages: int | None = None
    cluster: int | None = None


class LaunchesSchedule(_Schedule, frozen=True, tag="launches"):
    """A kernel for GPUs: the forms of its launches, in order."""

    launches: list[LaunchForm]


KernelSchedule = (
    ContractionSchedule | IntegerProductSchedule | BfloatProductSchedule | BlockProductSchedule | AttentionSchedule
    | DirectSchedule | DynamicConvolutionSchedule | ConvolutionSchedule | DepthwiseSchedule | DynamicDepthwiseSchedule
    | PlanesSchedule | InterleaveSchedule | LoopsSchedule | NestSchedule | LaunchesSchedule
)

_CLASSES: dict[str, type[_Schedule]] = {str(each.__struct_config__.tag): each for each in get_args(KernelSchedule)}


@dataclass(frozen=True)
class Reason:
    """Why a schedule is not legal: `field` is `value`, but must be `allowed`."""

    field: str
    value: object
    allowed: str

    def __str__(self) -> str:
        return f"{self.field}={msgspec.json.encode(self.value).decode()}: expected {self.allowed}"


def in_range(field: str, value: int, least: int, most: int, why: str = "") -> list[Reason]:
    """A reason unless `least <= value <= most`."""
    return [] if least <= value <= most else [Reason(field, value, f"{least} to {most}{why and f' ({why})'}")]


def lanes_reason(lanes: int, most: int) -> list[Reason]:
    """A reason unless `lanes` elements form a vector: a power of two, at least two."""
    allowed = [1 << i for i in range(1, most.bit_length())]
    return [] if lanes in allowed else [Reason("lanes", lanes, f"one of {', '.join(map(str, allowed))}")]


def encode_schedule(schedule: KernelSchedule) -> dict[str, Any]:
    """`schedule` as JSON values."""
    return msgspec.to_builtins(schedule)


def decode_schedule(content: object) -> KernelSchedule:
    """The schedule described by JSON values. Raises ValueError, naming the field, if they describe none."""
    try:
        return convert(content, KernelSchedule)
    except msgspec.ValidationError as error:
        raise ValueError(_explained(str(error), content)) from None


def _explained(message: str, content: object) -> str:
    """msgspec's message with the field in front."""
    given = str(content.get("class")) if isinstance(content, dict) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    if (unknown := re.search("unknown field `([^`]*)`", message)) is not None:
        known = _CLASSES[given]
        fields = ", ".join(known.__struct_fields__)
        return f"{unknown[1]}: class {given} has no such field; expected {fields}"
    text, _, place = message.partition(" - at ")
    field = place.strip("`").removeprefix("$").removeprefix(".")
    if field == "class" or "Invalid value" in text:
        return f"class={given}: expected one of {', '.join(_CLASSES)}"
    if "missing required field `class`" in text:
        return f"class is missing: expected one of {', '.join(_CLASSES)}"
    text = re.sub(r"`", "", text[:1].lower() + text[1:])
    return f"{field}: {text}" if field else text

