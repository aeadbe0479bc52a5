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
_LANES = 32  # of a warp
_WIDE = 1 << 31
_LOADED = 1 << 18  # bytes that a program may read in each iteration instead

# Microseconds, as estimates: an iteration, its work for 1024 products, 1024 bytes of weights that are read again, and
# an iteration by launches of its own.
_ITERATION, _PRODUCTS, _BYTES, _LAUNCHES = 0.45, 0.0046, 0.008, 3.0

Part = tuple[int, int]  # the offset and the number of some columns of a value
Tile = tuple[int, int, Part]  # a stage, the number of its input, and the columns of its result


@dataclass(frozen=True)
class Registers:
    """How programs use registers: those of a program and of a thread that weights are kept in, and the fewest and most
    warps. With `columns`, lanes and warps are columns before they are elements of a reduction, so that a thread
    sums without others (in Gluon)."""

    kept: int
    per_thread: int
    fewest: int
    most: int
    columns: bool = False


# Fewer warps wait less for each other: on an H200, an LSTM of 84 in f32 takes 3.5 µs an iteration with 16 warps that
# read weights from the first-level cache, 1.5 with 8 that keep them, and 0.8 with warps along columns.
_CUDA = Registers(kept=65536, per_thread=192, fewest=1, most=8, columns=True)
_OTHERS = Registers(kept=32768, per_thread=64, fewest=4, most=16)


@dataclass(frozen=True)
class RecurrencePlan:
    """A recurrence with constants in the order in which they are read. `parts` are the columns of the results of
    reductions that are computed, by stage; `kept` the inputs of reductions that stay in registers. `points` is the
    number of recurrences of a program, 1 if values have columns; `across` the warps along columns, 0 if the compiler
    chooses."""

    found: Recurrence
    packings: dict[int, Packing]
    parts: dict[int, list[Part]]
    kept: frozenset[Tile]
    points: int
    warps: int
    across: int = 0

    @property
    def programs(self) -> int:
        return -(-self.found.count // self.points)


def plan(found: Recurrence, target: GpuTarget) -> RecurrencePlan:
    """Raises `UnsupportedOnGpu` for reductions whose order matters, and for tensors with too many elements."""
    for stage in found.kernel.stages:
        if stage.reductions and match_reductions(stage) is None:
            raise UnsupportedOnGpu("a reduction whose order matters in a loop")
    steps = max(1, found.length)
    if any((known_product(value.shape) or 0) * steps >= _WIDE for value in found.kernel.values):
        raise UnsupportedOnGpu("a loop over tensors with more than 2^31 elements")
    found, packings = _packed(found)
    parts = _parts(found)
    if not any(found.column_of(value) is not None for value in found.producers):
        points = min(_POINTS, power_of_two(found.count))
        return RecurrencePlan(found, packings, parts, frozenset(), points, max(1, points // _LANES))
    registers = _CUDA if target.family == "cuda" else _OTHERS
    kept: set[Tile] = set()
    total = 0
    for tile, elements in _tiles(found, parts).items():
        wanted = elements * max(1, _item(found, tile) // 4)
        if total + wanted <= registers.kept:
            kept.add(tile)
            total += wanted
    columns = max(power_of_two(all_columns(found, value)[1]) for value in _made(found))
    across = max(1, columns // _LANES) if registers.columns else 0
    warps = max(registers.fewest, power_of_two(-(-total // (_LANES * registers.per_thread))), across)
    warps = min(registers.most, warps)
    return RecurrencePlan(found, packings, parts, frozenset(kept), 1, warps, min(across, warps))


def pays(planned: RecurrencePlan, target: GpuTarget) -> bool:
    """Whether one launch is expected to be faster than launches for each iteration."""
    tiles = _tiles(planned.found, planned.parts)
    loaded = sum(
        elements * _item(planned.found, tile) for tile, elements in tiles.items() if tile not in planned.kept
    )
    rounds = -(-planned.programs // target.processors)
    step = _ITERATION + _PRODUCTS * sum(tiles.values()) / 1024 + _BYTES * loaded / 1024
    return loaded <= _LOADED and rounds * step < _LAUNCHES


def all_columns(found: Recurrence, value: int) -> Part:
    """All columns of a value."""
    column = found.column_of(value)
    return (0, 1) if column is None else (0, int(found.kernel.values[value].shape[column]))


def part_read(found: Recurrence, stage: Stage, access: Access, part: Part) -> tuple[Part, bool]:
    """The part of a value that `part` of a stage's result reads, and whether it is read along a reduction."""
    column = found.column_of(access.value)
    if column is None:
        return (0, 1), False
    entry = access.map[column]
    terms = [(d, coefficient) for d, coefficient in entry.terms if stage.sizes[d] != 1]
    if len(terms) != 1 or terms[0][1] != 1:
        raise UnsupportedOnGpu("single columns of a value in a loop")
    loop = terms[0][0]
    if stage.iterators[loop] == "reduction":
        return (entry.constant, int(stage.sizes[loop])), True
    return (part[0] + entry.constant, part[1]), False


def _parts(found: Recurrence) -> dict[int, list[Part]]:
    """The parts of the results of reductions from which an iteration's results are computed, by stage."""
    parts: dict[int, list[Part]] = {}
    read, producers = {state.read for state in found.states}, found.producers
    waiting = [(value, all_columns(found, value)) for value in _made(found)]
    while waiting:
        value, part = waiting.pop()
        if value in read:
            continue
        s = producers[value]
        stage = found.kernel.stages[s]
        if stage.reductions:
            if part in parts.setdefault(s, []):
                continue
            parts[s].append(part)
        waiting += [
            (access.value, part_read(found, stage, access, part)[0])
            for access in (*stage.inputs, *(init for init in stage.inits if isinstance(init, Access)))
            if access.value in producers
        ]
    return parts


def _made(found: Recurrence) -> list[int]:
    """The values that an iteration makes for others."""
    return [*(state.made for state in found.states), *(each.value for each in found.written)]


def _item(found: Recurrence, tile: Tile) -> int:
    return item_bytes(found.kernel.values[found.kernel.stages[tile[0]].inputs[tile[1]].value].dtype)


def _tiles(found: Recurrence, parts: dict[int, list[Part]]) -> dict[Tile, int]:
    """The inputs of reductions that are the same in all iterations, with the elements that a program reads of them."""
    tiles: dict[Tile, int] = {}
    for s, each in parts.items():
        stage = found.kernel.stages[s]
        for k, access in enumerate(stage.inputs):
            if access.value not in found.arguments or (s, k) in found.moving:
                continue
            read = {d for d in access.dims if d in _columns(found, stage)}
            depth = known_product([int(stage.sizes[d]) for d in read if stage.iterators[d] == "reduction"]) or 0
            wide = any(stage.iterators[d] != "reduction" for d in read)
            for part in each:
                tiles[s, k, part] = -(-depth // 8) * 8 * (power_of_two(part[1]) if wide else 1)
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
