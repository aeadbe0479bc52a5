"""Legality checks for schedules of attention."""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.codegen.cpu.attention.nest import AttentionNest
from motet.compiler.codegen.cpu.attention.plan import in_place, ways_for
from motet.compiler.codegen.cpu.products.instructions import BLOCK
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.schedule import AttentionSchedule, Reason, in_range, lanes_reason
from motet.compiler.targets.cpu import CpuTarget

_MOST = 1 << 16
_MOST_SCRATCH = 64 << 20  # bytes of one thread


def check(c: AttentionNest, schedule: AttentionSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `c` on `target`; an empty list if it is."""
    if any(size == 0 for size in c.attention.sizes):
        return [Reason("class", "attention", "loops: an extent is 0")]
    ways = ways_for(c, target)
    if schedule.way not in ways:
        return [Reason("way", schedule.way, " or ".join(ways))]
    reasons = [*lanes_reason(schedule.lanes, target.lanes(8 * item_bytes(c.computed))), *_tile(schedule, target)]
    reasons += _layouts(c, schedule)
    if not reasons:
        numbers = schedule.rows * (c.depth + c.columns + 64) + schedule.keys * (c.depth + c.columns + schedule.tile)
        if numbers * item_bytes(c.computed) > _MOST_SCRATCH:
            text = f"fewer: scratch memory of a thread has at most {_MOST_SCRATCH} bytes"
            reasons.append(Reason("rows", schedule.rows, text))
    return reasons


def _tile(s: AttentionSchedule, target: CpuTarget) -> Iterator[Reason]:
    yield from in_range("tile", s.tile, 1, target.vector_registers)
    yield from in_range("score_vectors", s.score_vectors, 1, target.vector_registers)
    yield from in_range("value_vectors", s.value_vectors, 1, target.vector_registers)
    yield from in_range("keys", s.keys, 1, _MOST)
    yield from in_range("rows", s.rows, 1, _MOST)
    if s.way == "tiles":
        if s.tile not in (BLOCK, 2 * BLOCK):
            yield Reason("tile", s.tile, f"{BLOCK} or {2 * BLOCK}")
        yield from in_range("score_vectors", s.score_vectors, 1, 2, "AMX has eight tiles")
        yield from in_range("value_vectors", s.value_vectors, 1, 2, "AMX has eight tiles")
    if s.tile > 0 and s.rows % s.tile:
        yield Reason("rows", s.rows, f"a multiple of tile={s.tile}")


def _layouts(c: AttentionNest, s: AttentionSchedule) -> Iterator[Reason]:
    keys = [each.keys for each in c.ranges]
    if s.way != "vectors" and (s.key_mode != "packed" or not s.pack_values):
        yield Reason("way", s.way, "vectors: the products of bf16 numbers need packed keys and values")
    if s.key_mode == "along_depth" and not in_place(c, keys, c.attention.depth):
        yield Reason("key_mode", s.key_mode, "packed: the numbers of a key are not contiguous")
    if s.key_mode == "place" and not in_place(c, keys, c.attention.key):
        yield Reason("key_mode", s.key_mode, "packed: keys are not contiguous")
    if not s.pack_values and not in_place(c, [each.values for each in c.ranges], c.attention.column):
        yield Reason("pack_values", False, "true: the numbers of a value are not contiguous")
