"""Reads the attributes by which a program schedules an operation of linalg.

    linalg.matmul {loop.dims = ["x", "y", "z"], loop.schedule = ["x", {"y" = {unroll = 4}}, "z"]}
    linalg.matmul {loop.schedule = "{x: parallelize, y: , z: unroll=4}"}

A mapping of MLIR has no order, so that loops are an array, or text; `frontends/spellings.py` makes text of mappings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import all_operations
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.reader.reading import Unreadable
from motet.errors import CompileError, Location

SCHEDULE = "loop.schedule"
DIMS = "loop.dims"
SCHEDULED = "motet.scheduled"  # module attribute: the places of operations with a schedule


def written_schedule(operation: ir.Operation) -> str:
    """The attributes as JSON: `schedule`, text or a list of loops with their flags, `dims`, and `place`. Empty without
    `loop.schedule`. Raises Unreadable for attributes of another form."""
    if SCHEDULE not in operation.attributes:
        return ""
    dims = _plain(operation.attributes[DIMS]) if DIMS in operation.attributes else []
    if not isinstance(dims, list) or not all(isinstance(each, str) for each in dims):
        raise Unreadable(f'{DIMS}: expected an array of names, as ["x", "y"]')
    schedule = _plain(operation.attributes[SCHEDULE])
    if isinstance(schedule, list):
        schedule = [each for entry in schedule for each in _entries(entry)]
    elif not isinstance(schedule, str):
        raise Unreadable(f'{SCHEDULE}: expected text, or an array of loops, as ["i", {{"i#4" = {{unroll}}}}]')
    return json.dumps({"schedule": schedule, "dims": dims, "place": str(operation.location)})


def refuse_scheduled(function: ir.Operation, reason: str) -> None:
    """Raises CompileError if an operation of `function`, which has no loop nests because of `reason`, is scheduled."""
    for operation in all_operations(function):
        if SCHEDULE in operation.attributes:
            expected = "expected an operation on tensors with affine accesses"
            message = f"{SCHEDULE}: there is no loop nest: {reason}; {expected}"
            message = reason if reason.startswith("loop.") else message
            raise CompileError(message, source_place(str(operation.location)))


def mark_scheduled(module: ir.Module) -> None:
    """Remembers the places of operations with a schedule in an attribute of `module`, for `refuse_lost`."""
    places = [str(each.location) for each in all_operations(module) if SCHEDULE in each.attributes]
    if places:
        with module.context:
            module.operation.attributes[SCHEDULED] = ir.ArrayAttr.get([ir.StringAttr.get(each) for each in places])


def refuse_lost(module: ir.Module, kernels: Iterable[Kernel], generic: Iterable[ir.Operation]) -> None:
    """Raises CompileError for an operation with a schedule that passes have replaced: it is in none of `kernels`, nor
    in the functions `generic`, which have no loop nests."""
    if SCHEDULED not in module.operation.attributes:
        return
    kept = {json.loads(stage.written)["place"] for each in kernels for stage in each.stages if stage.written}
    kept |= {str(each.location) for f in generic for each in all_operations(f) if SCHEDULE in each.attributes}
    for attribute in ir.ArrayAttr(module.operation.attributes[SCHEDULED]):
        place = ir.StringAttr(attribute).value
        if place not in kept:
            why = "the compiler replaces this operation by others, or by accesses of its readers"
            raise CompileError(f"{SCHEDULE}: {why}; expected a product, a convolution, or linalg.generic",
                               source_place(place))


def source_place(location: str) -> Location | None:
    """The place in a source file that MLIR's text of a location names; None if it names none."""
    match = re.search(r'"([^"]*)":(\d+):(\d+)', location)
    return None if match is None else Location(match[1], int(match[2]), int(match[3]))


def _entries(entry: Any) -> list[list[Any]]:
    """The loop that an entry of the array describes: its label and its flags."""
    if isinstance(entry, str):
        return [[entry, {}]]
    if isinstance(entry, dict) and len(entry) == 1:
        return [[key, flags] for key, flags in entry.items()]
    raise Unreadable(f'{SCHEDULE}: expected one loop in each entry, as "i" or {{"i#4" = {{unroll}}}}')


def _plain(attribute: ir.Attribute) -> Any:
    """An attribute as a value of JSON; a unit attribute is None."""
    if isinstance(attribute, ir.DictAttr):
        return {each.name: _plain(each.attr) for each in attribute}
    if isinstance(attribute, ir.ArrayAttr):
        return [_plain(each) for each in attribute]
    if isinstance(attribute, ir.StringAttr | ir.BoolAttr | ir.IntegerAttr):
        return attribute.value
    if isinstance(attribute, ir.UnitAttr):
        return None
    raise Unreadable(f"{SCHEDULE}: expected text, numbers and unit attributes, not {attribute}")
