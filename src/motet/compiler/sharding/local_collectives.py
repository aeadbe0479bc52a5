"""Writes the collectives of a program (`ir/shardings.py`), after checking that devices and extents fit."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.shardings import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    CONCAT,
    DIMENSION,
    PERMUTE,
    REDUCE_SCATTER,
    REDUCTION,
    SPLIT,
    groups_of,
    number_of,
)
from motet.compiler.sharding import collectives
from motet.compiler.sharding.emission import DeviceWriter, operation_of
from motet.compiler.sharding.rules.rule import shape_of
from motet.errors import CompileError


def write_collective(writer: DeviceWriter, op: ir.Operation, values: Sequence[ir.Value]) -> list[ir.Value]:
    """The values of all devices after a collective. Raises CompileError for devices that the mesh does not have or
    that are in no group, and for extents that they do not divide."""
    groups = groups_of(op)
    _check_devices(op, groups, len(values))
    if op.name == PERMUTE:
        return collectives.permute(writer, values, groups)
    if op.name == BROADCAST:
        return collectives.broadcast(writer, values, groups)
    if op.name == ALL_GATHER:
        return collectives.all_gather(writer, values, groups, number_of(op, DIMENSION))
    if op.name == ALL_TO_ALL:
        _check_divides(op, number_of(op, SPLIT), groups)
        return collectives.all_to_all(writer, values, groups, number_of(op, SPLIT), number_of(op, CONCAT))
    kind = ir.StringAttr(op.attributes[REDUCTION]).value
    try:
        operation_of(ir.RankedTensorType(op.results[0].type).element_type, kind)
    except ValueError as error:
        raise CompileError(f"{op.name}: {error}", locate(op.location)) from None
    if op.name == REDUCE_SCATTER:
        _check_divides(op, number_of(op, DIMENSION), groups)
        return collectives.reduce_scatter(writer, values, groups, number_of(op, DIMENSION), kind)
    assert op.name == ALL_REDUCE
    return collectives.all_reduce(writer, values, groups, kind)


def _check_devices(op: ir.Operation, groups: list[list[int]], devices: int) -> None:
    seen: set[int] = set()
    for group in groups:
        for device in group:
            if not 0 <= device < devices:
                raise CompileError(f"{op.name}: device {device} is not there; expected numbers from 0 to "
                                   f"{devices - 1}, of the mesh's {devices} devices", locate(op.location))
            if device in seen and op.name != PERMUTE:
                raise CompileError(f"{op.name}: device {device} is in two groups; expected each in one",
                                   locate(op.location))
            seen.add(device)
    left = [] if op.name in (BROADCAST, PERMUTE) else [device for device in range(devices) if device not in seen]
    if left:
        raise CompileError(f"{op.name}: devices {', '.join(map(str, left))} are in no group; expected each in one",
                           locate(op.location))


def _check_divides(op: ir.Operation, dimension: int, groups: list[list[int]]) -> None:
    extent = (shape_of(op.operands[0]) or [])[dimension]
    for group in groups:
        if extent % len(group):
            raise CompileError(f"{op.name}: dimension {dimension} has {extent} elements, which {len(group)} devices do "
                               "not divide; expected a multiple", locate(op.location))
