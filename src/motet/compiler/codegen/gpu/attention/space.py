"""Maps the loops of an attention to programs and tiles, and chooses tile sizes for a target."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.gpu.accesses import source_of
from motet.compiler.codegen.gpu.tasks import Loop, power_of_two, total
from motet.compiler.kernels.attention.description import Attention
from motet.compiler.kernels.kernel import Access, item_bytes
from motet.compiler.kernels.strides import ONE, Extent
from motet.compiler.targets.gpu import GpuTarget

LEAST = 16  # minimum side of a tile
_FEW = 64  # rows that one tile holds entirely
_SHORT, _LONG = 1024, 1 << 20  # keys of a short sequence, and the assumed number if it is unknown
_ONE = 128  # keys that one tile holds entirely
_ALIGNED = 16  # bytes; the alignment of tensors read through descriptors


@dataclass(frozen=True)
class AttentionTile:
    """A tile of `rows` queries by `keys` keys. Keys and values are loaded by TMA with `descriptors`, else through
    pointers; if `specialised`, by separate warps."""

    rows: int
    keys: int
    warps: int
    stages: int
    descriptors: bool = False
    specialised: bool = False

    @property
    def label(self) -> str:
        how = "specialised" if self.specialised else "descriptors" if self.descriptors else "pointers"
        return f"{self.rows}x{self.keys} {how} warps={self.warps} stages={self.stages}"


@dataclass(frozen=True)
class AttentionSpace:
    """How the loops of an attention are mapped: `batch` to programs, `rows` to the first axis of tiles."""

    attention: Attention
    batch: tuple[Loop, ...]
    rows: tuple[Loop, ...]

    @property
    def merged(self) -> bool:
        """Whether the rows are queries of several heads."""
        return len(self.rows) > 1

    @property
    def keys(self) -> Extent:
        return Extent.of(self.attention.sizes[self.attention.key])

    @property
    def depth(self) -> int:
        return _static(self.attention, self.attention.depth)

    @property
    def columns(self) -> int:
        return _static(self.attention, self.attention.column)

    @property
    def row_count(self) -> Extent:
        return total(self.rows)


def _static(attention: Attention, dim: int) -> int:
    size = attention.sizes[dim]
    return size if isinstance(size, int) else 0


def space_of(attention: Attention) -> AttentionSpace:
    loops = {dim: (Extent.of(size), dim) for dim, size in enumerate(attention.sizes)}
    own = [loops[attention.row]] if attention.row is not None else []
    shared = [loops[dim] for dim in attention.group]
    together = total([*shared, *own]).known
    if together is not None and together <= _FEW:
        return AttentionSpace(attention, tuple(loops[d] for d in attention.batch), (*shared, *own))
    return AttentionSpace(attention, (*(loops[d] for d in attention.batch), *shared), tuple(own))


def choose_tiles(space: AttentionSpace, target: GpuTarget) -> list[AttentionTile]:
    """Tiles for the shapes and the target, best first, then smaller ones."""
    rows = max(LEAST, power_of_two(space.row_count.known or 1 << 20))
    width = max(power_of_two(space.depth), power_of_two(space.columns), LEAST)
    found = [tile for tile in _tiles(space, width, target) if tile.rows <= rows or tile.rows == LEAST]
    room = [tile for tile in found if _shared(space, tile, width) <= target.shared]
    return room or [AttentionTile(LEAST, LEAST, 4, 1)]


def _tiles(space: AttentionSpace, width: int, target: GpuTarget) -> list[AttentionTile]:
    """The tiles, from measurements on an H200 in bf16. Loads through descriptors wait until these are created, which
    does not pay for short sequences and for heads of 64."""
    if target.xpu is not None:
        return _xpu_tiles(space, target)
    if space.attention.dtype == "f32":
        side = 64 if width <= 64 else 32
        return [
            AttentionTile(side, 32, 4, 2), AttentionTile(side, 32, 4, 1), AttentionTile(32, 32, 4, 1),
            AttentionTile(16, 32, 4, 1), AttentionTile(16, 16, 4, 1)
        ]
    hopper = target.is_cuda and isinstance(target.architecture, int) and target.architecture >= 90
    small = [
        AttentionTile(64, 32, 4, 2), AttentionTile(32, 64, 4, 2), AttentionTile(16, 64, 4, 3),
        AttentionTile(16, 32, 4, 2), AttentionTile(16, 16, 4, 1)
    ]
    long = (space.keys.known or _LONG) > _SHORT
    if hopper:
        usual = [AttentionTile(64, 64, 4, 3), AttentionTile(128, 64, 8, 3)]
        if width <= 128 and 64 < (space.keys.known or _LONG) <= _ONE:
            usual = [AttentionTile(64, 128, 4, 2), *usual]
        elif not long and (space.keys.known or 0) % 64:
            usual = [AttentionTile(64, 32, 4, 4), *usual]
        elif width <= 64 and long:
            wide = [AttentionTile(128, 64, 4, 3), AttentionTile(128, 64, 8, 3)]
            usual = [*(wide if space.attention.causal is None else wide[::-1]), *usual]
        elif width <= 128 and long and describable(space):
            usual = [AttentionTile(64, 64, 4, 3, descriptors=True), *usual]
        return [*usual, AttentionTile(64, 64, 4, 2), *small]
    return [
        *([AttentionTile(128, 64, 4, 2)] if width <= 64 else []), AttentionTile(128, 64, 8, 2),
        AttentionTile(64, 64, 4, 2), *small
    ]


def _xpu_tiles(space: AttentionSpace, target: GpuTarget) -> list[AttentionTile]:
    """Tiles for Intel's GPUs, by the registers that they spill: less fits if loads have masks, and without a matrix
    engine every work-item keeps whole rows of both operands of a product."""
    if multiplies_by_threads(space, target):
        return [AttentionTile(32, 16, 4, 1), AttentionTile(16, 16, 4, 1)]
    whole = not any((extent.known or 1) % 64 for extent in (space.row_count, space.keys))
    large = [AttentionTile(64, 64, 4, 2), AttentionTile(64, 32, 4, 2)] if whole else []
    return [*large, AttentionTile(32, 32, 4, 2), AttentionTile(16, 32, 4, 1), AttentionTile(16, 16, 4, 1)]


def multiplies_by_threads(space: AttentionSpace, target: GpuTarget) -> bool:
    """Whether an Intel GPU computes the products without a matrix engine."""
    if target.xpu is None:
        return False
    return not target.xpu.matrix_engine or (space.attention.dtype == "f32" and target.precision == "ieee")


def _shared(space: AttentionSpace, tile: AttentionTile, width: int) -> int:
    size = item_bytes(space.attention.dtype)
    return (2 * tile.stages * tile.keys + tile.rows) * width * size + 2048


def describable(space: AttentionSpace) -> bool:
    """Whether the layouts of keys and values allow TMA to load tiles of them."""
    a = space.attention
    return a.whole is not None and (
        lies_flat(a, a.whole.keys, a.key, a.depth) and lies_flat(a, a.whole.values, a.key, a.column)
    )


def lies_flat(a: Attention, access: Access, outer: int, inner: int) -> bool:
    """Whether `access`, over loops `outer` and `inner`, is a matrix with a layout that TMA supports."""
    place = source_of(a.kernel, access, a.sizes)
    size = item_bytes(place.dtype)
    others = [stride for dim, stride in enumerate(place.strides) if dim != inner]
    steps = [part.factor * size for part in (*others, *place.offset)]
    return place.strides[inner] == ONE and place.strides[outer].factor > 0 and not any(s % _ALIGNED for s in steps)
