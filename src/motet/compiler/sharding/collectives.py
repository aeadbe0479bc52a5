"""Collectives over the devices of a mesh, as operations of single devices. Placement adds the transfers between them.

Each function takes the value of every device and returns those that they have afterwards. Reductions add in the order
of the groups, so that all devices of a group have the same numbers, bit for bit. A reduction of few bytes is computed
on every device; of more, each device reduces a share and sends it to the others, which moves the fewest bytes (Thakur,
Rabenseifner, Gropp: "Optimization of collective communication operations in MPICH", IJHPCA 19(1), 2005).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.shardings import Groups
from motet.compiler.sharding.emission import DeviceWriter
from motet.compiler.sharding.rules.rule import shape_of

FEW_BYTES = 16 << 10  # up to which a reduction is computed on every device
_ITEM = 8  # bits of a byte


def all_reduce(writer: DeviceWriter, values: Sequence[ir.Value], groups: Groups, kind: str) -> list[ir.Value]:
    """The reduction of a group's values on each of its devices."""
    found = list(values)
    for group in groups:
        own = [values[device] for device in group]
        along = _longest(own[0])
        few = along is None or (shape_of(own[0]) or [])[along] < len(group) or _bytes(own[0]) <= FEW_BYTES
        if along is None or few:
            for device in group:
                found[device] = writer.combine(own, kind, device)
            continue
        shares = _shares((shape_of(own[0]) or [])[along], len(group))
        parts = [
            _reduced_part(writer, own, group, device, (along, *shares[number]), kind)
            for number, device in enumerate(group)
        ]
        for device in group:
            found[device] = writer.concat(parts, device, along)
    return found


def reduce_scatter(
    writer: DeviceWriter, values: Sequence[ir.Value], groups: Groups, dimension: int, kind: str
) -> list[ir.Value]:
    """Part i of the reduction of a group's values on its device i."""
    found = list(values)
    for group in groups:
        own = [values[device] for device in group]
        step = (shape_of(own[0]) or [])[dimension] // len(group)
        for number, device in enumerate(group):
            place = (dimension, number * step, (number + 1) * step)
            found[device] = _reduced_part(writer, own, group, device, place, kind)
    return found


def all_gather(writer: DeviceWriter, values: Sequence[ir.Value], groups: Groups, dimension: int) -> list[ir.Value]:
    """All values of a group one after the other, on each of its devices."""
    found = list(values)
    for group in groups:
        own = [values[device] for device in group]
        for device in group:
            found[device] = writer.concat(own, device, dimension)
    return found


def all_to_all(
    writer: DeviceWriter, values: Sequence[ir.Value], groups: Groups, split: int, concat: int
) -> list[ir.Value]:
    """Part i of all values of a group, one after the other, on its device i."""
    found = list(values)
    for group in groups:
        step = (shape_of(values[group[0]]) or [])[split] // len(group)
        for number, device in enumerate(group):
            parts = [writer.along(values[source], source, split, number * step, (number + 1) * step)
                     for source in group]
            found[device] = writer.concat(parts, device, concat)
    return found


def broadcast(writer: DeviceWriter, values: Sequence[ir.Value], groups: Groups) -> list[ir.Value]:
    """The value of a group's first device on each of its devices; zeros on devices of no group."""
    found = [writer.zeros(value.type, device) for device, value in enumerate(values)]
    for group in groups:
        for device in group:
            found[device] = values[group[0]]
    return found


def permute(writer: DeviceWriter, values: Sequence[ir.Value], pairs: Groups) -> list[ir.Value]:
    """The value of a pair's first device on its second one; zeros on devices that get none."""
    sources = {target: source for source, target in pairs}
    return [
        values[sources[device]] if device in sources else writer.zeros(value.type, device)
        for device, value in enumerate(values)
    ]


def _reduced_part(
    writer: DeviceWriter, values: Sequence[ir.Value], group: Sequence[int], device: int, place: tuple[int, int, int],
    kind: str,
) -> ir.Value:
    """The reduction of one part, `place`, of all values of a group on a device; the parts are cut where they are."""
    dimension, begin, end = place
    parts = [writer.along(value, source, dimension, begin, end)
             for value, source in zip(values, group, strict=True)]
    return writer.combine(parts, kind, device)


def _longest(value: ir.Value) -> int | None:
    """The outermost dimension with most elements; None for tensors of rank 0."""
    shape = shape_of(value) or []
    return max(range(len(shape)), key=lambda place: (shape[place], -place)) if shape else None


def _shares(extent: int, count: int) -> list[tuple[int, int]]:
    return [(extent * number // count, extent * (number + 1) // count) for number in range(count)]


def _bytes(value: ir.Value) -> int:
    element = ir.RankedTensorType(value.type).element_type
    width = element.width if isinstance(element, ir.IntegerType | ir.FloatType) else 2 * 64
    return math.prod(shape_of(value) or []) * width // _ITEM
