"""Plans recurrent layers for GPUs: all iterations of a loop in one launch, a program for each independent recurrence.

Programs do not exchange anything, so that iterations need no barrier beyond that of a block. Weights that fit are kept
in registers for all iterations; the others are read in each iteration, from the first-level cache if that holds them.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.gpu.accesses import UnsupportedOnGpu
from motet.compiler.codegen.gpu.tasks import power_of_two
from motet.compiler.kernels.kernel import Access, Packing, Stage, item_bytes, known_product, row_major
from motet.compiler.kernels.packing import reorder_constants
from motet.compiler.kernels.recurrence import Recurrence
from motet.compiler.kernels.reduction import match_reductions
from motet.compiler.kernels.strides import place_of
from motet.compiler.targets.gpu import GpuTarget

_POINTS = 128  # of a program without columns
_KEPT = 32768  # elements of weights that a program keeps in registers
_PER_THREAD = 64  # of these
_WARPS = (4, 16)
_WIDE = 1 << 31
_LOADED = 1 << 18  # bytes that a program may read in each iteration instead

# Microseconds, as estimates: an iteration, its work for 1024 products, 1024 bytes of weights that are read again, and
# an iteration by launches of its own.
_ITERATION, _PRODUCTS, _BYTES, _LAUNCHES = 0.45, 0.0046, 0.008, 3.0

Tile = tuple[int, int]  # a stage and the number of its input


@dataclass(frozen=True)
class RecurrencePlan:
    """A recurrence with constants in the order in which they are read; `kept` are the inputs of reductions that stay in
    registers. `points` is the number of recurrences of a program, 1 if values have columns."""

    found: Recurrence
    packings: dict[int, Packing]
    kept: frozenset[Tile]
    points: int
    warps: int

    @property
    def programs(self) -> int:
        return -(-self.found.count // self.points)


def plan(found: Recurrence) -> RecurrencePlan:
    """Raises `UnsupportedOnGpu` for reductions whose order matters, and for tensors with too many elements."""
    for stage in found.kernel.stages:
        if stage.reductions and match_reductions(stage) is None:
            raise UnsupportedOnGpu("a reduction whose order matters in a loop")
    steps = max(1, found.length)
    if any((known_product(value.shape) or 0) * steps >= _WIDE for value in found.kernel.values):
        raise UnsupportedOnGpu("a loop over tensors with more than 2^31 elements")
    found, packings = _packed(found)
    if not any(found.column_of(value) is not None for value in found.producers):
        points = min(_POINTS, power_of_two(found.count))
        return RecurrencePlan(found, packings, frozenset(), points, max(1, points // 32))
    tiles = _tiles(found)
    kept: set[Tile] = set()
    total = 0
    for tile, elements in tiles.items():
        if total + elements <= _KEPT:
            kept.add(tile)
            total += elements
    work = max(total, *(elements for elements in tiles.values()), 1) if tiles else 1
    warps = min(_WARPS[1], max(_WARPS[0], power_of_two(-(-work // (32 * _PER_THREAD)))))
    return RecurrencePlan(found, packings, frozenset(kept), 1, warps)


def pays(planned: RecurrencePlan, target: GpuTarget) -> bool:
    """Whether one launch is expected to be faster than launches for each iteration."""
    tiles = _tiles(planned.found)
    loaded = sum(
        elements * _item(planned.found, tile) for tile, elements in tiles.items() if tile not in planned.kept
    )
    rounds = -(-planned.programs // target.processors)
    step = _ITERATION + _PRODUCTS * sum(tiles.values()) / 1024 + _BYTES * loaded / 1024
    return loaded <= _LOADED and rounds * step < _LAUNCHES


def _item(found: Recurrence, tile: Tile) -> int:
    return item_bytes(found.kernel.values[found.kernel.stages[tile[0]].inputs[tile[1]].value].dtype)


def _tiles(found: Recurrence) -> dict[Tile, int]:
    """The inputs of reductions that are the same in all iterations, with the elements that a program reads of them."""
    tiles: dict[Tile, int] = {}
    for s, stage in enumerate(found.kernel.stages):
        if not stage.reductions:
            continue
        for k, access in enumerate(stage.inputs):
            if access.value not in found.arguments or (s, k) in found.moving:
                continue
            own = _columns(found, stage)
            sizes = [power_of_two(int(stage.sizes[d])) for d in access.dims if d in own]
            tiles[s, k] = known_product(sizes) or 0
    return tiles


def _columns(found: Recurrence, stage: Stage) -> list[int]:
    """The loops of a stage that are no rows."""
    output = stage.outputs[0]
    rows = {
        entry.single for d, entry in enumerate(output.map) if found.row_of(output.value, d) is not None
    }
    return [d for d in range(len(stage.sizes)) if d not in rows]


def _packed(found: Recurrence) -> tuple[Recurrence, dict[int, Packing]]:
    """`found` with constant factors stored so that columns of the result are contiguous; the packings by value."""
    orders: dict[int, tuple[int, ...]] = {}
    for s, stage in enumerate(found.kernel.stages):
        for k, access in enumerate(stage.inputs):
            if stage.reductions and (s, k) not in found.moving and _is_turned(found, stage, access):
                rank = len(access.map)
                last = next(d for d, entry in enumerate(access.map) if _is_column(found, stage, entry.single))
                orders[access.value] = (*(d for d in row_major(rank) if d != last), last)
    kernel, packings = reorder_constants(found.kernel, orders)
    made = Recurrence(kernel, found.length, found.states, found.written, found.moving, found.rows, found.arguments)
    return made, packings


def _is_turned(found: Recurrence, stage: Stage, access: Access) -> bool:
    """Whether a constant is contiguous along the reduction, but has columns of the result."""
    value = found.kernel.values[access.value]
    if value.role != "constant" or access.padding is not None or access.value not in found.arguments:
        return False
    place = place_of(found.kernel, access, len(stage.sizes))
    if place is None:
        return False
    along = [d for d, stride in enumerate(place.strides) if stride.known == 1 and stage.sizes[d] != 1]
    columns = [entry for entry in access.map if _is_column(found, stage, entry.single)]
    return len(columns) == 1 and bool(along) and all(stage.iterators[d] == "reduction" for d in along)


def _is_column(found: Recurrence, stage: Stage, loop: int | None) -> bool:
    if loop is None or stage.iterators[loop] == "reduction" or stage.sizes[loop] == 1:
        return False
    return loop in _columns(found, stage)
