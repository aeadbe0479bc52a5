"""Chooses schedules of attention, and estimates whether it is faster than separate products."""

from __future__ import annotations

from typing import Literal

from msgspec import structs

from motet.compiler.codegen.cpu.attention.nest import AttentionNest, match
from motet.compiler.codegen.cpu.gemm.microkernel import registers
from motet.compiler.codegen.cpu.products.instructions import BFLOATS, BLOCK, ways_of
from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.schedule import AttentionSchedule
from motet.compiler.kernels.strides import ONE, StridedAccess, product_of
from motet.compiler.targets.cpu import CpuTarget, base_of

_FEW = 6  # rows for which a transposed copy of the keys does not pay
_TASKS = 32  # if there are enough rows
_FEWEST_ROWS, _MOST_ROWS = 48, 256  # of a task
_MOST_KEYS = 512  # of a block


def choose(c: AttentionNest, target: CpuTarget) -> AttentionSchedule | None:
    """The schedule that is expected to be fastest."""
    if any(size == 0 for size in c.attention.sizes):
        return None
    lanes = target.lanes(8 * item_bytes(c.computed))
    rows = guess(c.row_count)
    keys = _block_of_keys(c, lanes, target)
    few = c.row_count.known is not None and rows <= _FEW
    way = "vectors" if few else ways_for(c, target)[0]
    tile, score_vectors, value_vectors = _tile(c, rows, keys, lanes, target, few)
    if way == "tiles":
        tile, score_vectors, value_vectors = BLOCK if rows <= BLOCK else 2 * BLOCK, 2, 2
    return AttentionSchedule(
        lanes=lanes, rows=_rows_of_task(c, tile, keys), tile=tile, keys=keys, score_vectors=score_vectors,
        value_vectors=value_vectors, key_mode=_key_mode(c, few),
        pack_values=not few or not in_place(c, [each.values for each in c.ranges], c.attention.column), way=way,
    )


def ways_for(c: AttentionNest, target: CpuTarget) -> tuple[Literal["vectors", "dots", "tiles"], ...]:
    """The kinds of instructions for the products of `c`, fastest first."""
    ways = ways_of(target, BFLOATS) if c.attention.dtype == "bf16" else ()
    return (*(way for way in ways if way != "pairs"), "vectors")


def improves_on_base(kernel: Kernel, target: CpuTarget) -> bool:
    """Whether the instructions of `target` beyond those of its base level make the attention `kernel` faster."""
    c = match(kernel, target) if ways_of(target, BFLOATS) != ways_of(base_of(target), BFLOATS) else None
    schedule = None if c is None else choose(c, target)
    return schedule is not None and schedule.way != "vectors"


def for_few_rows(c: AttentionNest, plan: AttentionSchedule, target: CpuTarget) -> AttentionSchedule | None:
    """A schedule for at most as many rows as it has in a task, where the number of rows is not known when compiling;
    None if `plan` serves them as well."""
    values = [each.values for each in c.ranges]
    if c.row_count.known is not None or _key_mode(c, True) == "packed" or not in_place(c, values, c.attention.column):
        return None
    tile = min(2, plan.rows)  # two rows of sums hide the latency of additions, and one costs as much
    return structs.replace(
        plan, rows=min(_FEW, plan.rows) // tile * tile, tile=tile, key_mode=_key_mode(c, True), pack_values=False,
        way="vectors", score_vectors=_fitting(-(-plan.keys // plan.lanes), tile, target),
        value_vectors=_fitting(-(-c.columns // plan.lanes), tile, target),
    )


def in_place(c: AttentionNest, places: list[StridedAccess], dim: int) -> bool:
    """Whether all of `places` are contiguous along `dim`."""
    return all(place.strides[dim] == ONE for place in places)


def _key_mode(c: AttentionNest, few: bool) -> Literal["packed", "place", "along_depth"]:
    keys = [each.keys for each in c.ranges]
    if few and in_place(c, keys, c.attention.depth):
        return "along_depth"
    return "place" if few and in_place(c, keys, c.attention.key) else "packed"


def _block_of_keys(c: AttentionNest, lanes: int, target: CpuTarget) -> int:
    """Keys of a block, whose packed keys and values take a fifth of the second-level cache; all blocks are nearly
    equal."""
    most = target.l2 // 5 // ((c.depth + c.columns) * item_bytes(c.computed))
    most = max(2 * lanes, min(_MOST_KEYS, most) // lanes * lanes)
    known = c.key_count.known if len(c.ranges) == 1 else None
    if known is None:
        return min(most, 256)
    blocks = -(-known // most)
    each = -(-known // blocks)
    return each if blocks == 1 else -(-each // lanes) * lanes


def _tile(
    c: AttentionNest, rows: int, keys: int, lanes: int, target: CpuTarget, few: bool
) -> tuple[int, int, int]:
    """The rows of a register tile, and its vectors of keys and of columns, that take the fewest cycles."""
    if few:
        return rows, _fitting(-(-keys // lanes), rows, target), _fitting(-(-c.columns // lanes), rows, target)
    best: tuple[int, int, int, int] | None = None
    for tile in range(1, 15):
        scores = _best_panels(-(-keys // lanes), tile, target)
        values = _best_panels(-(-c.columns // lanes), tile, target)
        if scores is None or values is None:
            continue
        cycles = (scores[0] * c.depth + values[0] * keys) * -(-rows // tile)
        if best is None or (cycles, -tile) < best[:2]:
            best = (cycles, -tile, scores[1], values[1])
    assert best is not None
    return -best[1], best[2], best[3]


def _best_panels(needed: int, tile: int, target: CpuTarget) -> tuple[int, int] | None:
    """The cycles of one step along `needed` vectors by panels of the best width, and the width; None if a tile of one
    vector does not fit."""
    most = 2 if target.vector_registers <= 16 else 4
    fitting = [width for width in range(1, most + 1) if tile <= registers(target, width)]
    return min(((_panel_cycles(needed, tile, width), width) for width in fitting), default=None)


def _panel_cycles(needed: int, tile: int, width: int) -> int:
    """The cycles of one step along `needed` vectors in panels of `width`, twice: at least the latency that few sums
    expose, and a load for each operand."""
    whole, rest = divmod(needed, width)
    return sum(
        count * max(tile * vectors, tile + vectors + 1, 8) for count, vectors in ((whole, width), (1, rest)) if vectors
    )


def _fitting(needed: int, rows: int, target: CpuTarget) -> int:
    """As many vectors as `rows` rows leave registers for, of `needed`."""
    most = 2 if target.vector_registers <= 16 else 4
    return max([1, *(width for width in range(1, min(needed, most) + 1) if rows <= registers(target, width))])


def _rows_of_task(c: AttentionNest, tile: int, keys: int) -> int:
    """Rows that a task computes with one copy of keys and values: many, but so that there are enough tasks."""
    rows = guess(c.row_count)
    share = guess(product_of(c.outer)) * rows // _TASKS
    kept = c.key_count.known is not None and c.key_count.known <= keys
    most = max(_FEWEST_ROWS if kept else 2 * _FEWEST_ROWS, min(_MOST_ROWS, share))
    parts = -(-rows // most)
    each = -(-rows // parts)
    return -(-each // tile) * tile


def pays(kernel: Kernel, target: CpuTarget) -> bool:
    """Whether the attention `kernel` has code, and is expected to be faster than its separate parts."""
    found = match(kernel, target)
    return found is not None and choose(found, target) is not None
