"""Loads vectors whose elements are not neighbours in ascending order. The first `active` lanes exist (None: all)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I32, Builder, Index
from motet.compiler.codegen.cpu.emit.float_lanes import Value


def descending(f: Builder, address: Value, kind: Any, count: int, active: Index | None) -> Value:
    """Load elements that are in memory before `address`, in descending order."""
    first = f.at(address, 1 - count, kind)
    order = ir.Constant(ir.VectorType(I32, count), list(reversed(range(count))))
    if active is None:
        loaded = f.load_vector(first, kind, count)
    else:
        mask = f.lane_mask(active, count)
        loaded = f.masked_load(first, kind, count, f.shuffle_vector(mask, mask, order))
    return f.shuffle_vector(loaded, loaded, order)


def interleaved(f: Builder, address: Value, kind: Any, count: int, stride: int, lanes: int | None = None) -> Value:
    """Load every `stride`-th element by contiguous loads and shuffles, `count` of them, in a vector of `lanes` (None:
    `count`). Nothing after the last element is read: the last load ends with it, or is masked if one vector is more
    than they span."""
    lanes = lanes or count
    span = (count - 1) * stride + 1
    pick = ir.VectorType(I32, lanes)
    result: Value = None
    done = 0
    for start in [*range(0, span - lanes, lanes), max(0, span - lanes)]:
        if span < lanes:
            part = f.masked_load(address, kind, lanes, f.lane_mask(span, lanes))
        else:
            part = f.load_vector(f.at(address, start, kind), kind, lanes)
        mine = [lane for lane in range(done, count) if lane * stride < start + lanes]
        if result is None:
            result = f.shuffle_vector(
                part, part, ir.Constant(pick, [lane * stride if lane in mine else 0 for lane in range(lanes)])
            )
        else:
            order = [lanes + lane * stride - start if lane in mine else lane for lane in range(lanes)]
            result = f.shuffle_vector(result, part, ir.Constant(pick, order))
        done += len(mine)
    return result


# Parameters: what a load of lanes is.
def strided(
    f: Builder, address: Value, kind: Any, count: int, active: Index | None, stride: Index
) -> Value:
    """Load lane by lane; a lane that does not exist reads the first element."""
    result: Value = ir.Constant(ir.VectorType(kind, count), ir.Undefined)
    for lane in range(count):
        at: Index = f.imul(lane, stride)
        if active is not None and lane:
            exists = f.icmp_signed("<", f.index(lane), f.index(active))
            at = f.select(exists, f.index(at), f.index(0))
        value = f.load_vector(f.at(address, at, kind), kind, 1)
        result = f.insert_element(result, value, ir.Constant(I32, lane))
    return result
