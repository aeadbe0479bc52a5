"""Writes results whose few contiguous elements come from vectors along another dimension.

    y[w, c] = x[c, w] for c < 3:    vectors x[0, w …], x[1, w …], x[2, w …]  →  y[w, 0] y[w, 1] y[w, 2] y[w + 1, 0] …

Changes of an image's layout with few channels and pixel shuffles are of this form.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from motet.compiler.codegen.cpu.conv.shuffles import alternating
from motet.compiler.codegen.cpu.emit.addressing import Lanes
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.emit.compute_types import storage_type, to_storage, widen
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.rows.nest_writer import NestWriter


def write_interleaved(writer: NestWriter, at: Sequence[Index], other: int, first: Index, end: Index) -> None:
    """Write all points of the vector dimension for `other`, along which vectors run here, in `[first, end)`."""
    f, lanes = writer.f, writer.lanes
    whole = f.isub(end, f.irem(f.isub(end, first), lanes))
    f.loop(first, whole, lanes, lambda i, _: _block(writer, at, other, i, None))
    f.loop(whole, end, lanes, lambda i, _: _block(writer, at, other, i, f.isub(end, i)))


def _block(writer: NestWriter, at: Sequence[Index], other: int, start: Index, active: Index | None) -> None:
    f, nest, along = writer.f, writer.nest, writer.along or 0
    output, count = nest.outputs[0], nest.sizes[along].factor
    lanes = Lanes(other, writer.lanes, active)
    parts: list[Value] = []
    point = list(at)
    point[other] = start
    for number in range(count):
        point[along] = number
        (value,) = writer.once(point, lanes, {}, writer.initial(point, lanes), False)
        parts.append(to_storage(f, widen(f, value, writer.lanes), output.dtype))
    point[along] = 0
    kind, address = storage_type(output.dtype), f.address(output, point)
    for number, vector in enumerate(alternating(f, parts)):
        place = f.at(address, number * writer.lanes, kind)
        if active is None:
            f.store_vector(vector, place, kind)
        else:
            left = f.isub(f.imul(active, count), number * writer.lanes)
            mask = f.lane_mask(left if isinstance(left, ir.Value) else max(0, left), writer.lanes)
            f.masked_store(vector, place, kind, writer.lanes, mask)
