"""Finds extents of kernels' arguments and results that are equal in every call: kernels have one symbol for them.

    %1 = call @kernel_1(%0, %x)     // %0 is the result of a kernel that keeps the extents of %x: axes 2 of both are h
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.layout import callee
from motet.compiler.kernels.reader.extents import ExtentPlace
from motet.compiler.scheduling.shapes import Shapes
from motet.errors import CompileError


def equal_extents(
    functions: Sequence[ir.Operation], shapes_of: Callable[[ir.Operation], Shapes]
) -> dict[str, list[list[ExtentPlace]]]:
    """For each kernel the groups of dynamic extents, of which the first is an argument's, that are the same expression
    in each call from `functions`, whose extents `shapes_of` gives."""
    seen: dict[str, list[dict[ExtentPlace, str]]] = {}
    for function in functions:
        try:
            shapes = shapes_of(function)
        except CompileError:
            return {}  # extents that depend on data, which is reported where they are needed
        for entry in function.regions[0].blocks[0].operations:
            if entry.operation.name == "func.call":
                seen.setdefault(callee(entry.operation), []).append({
                    ExtentPlace(number, axis, which == "result"): str(extent)
                    for which, values in (("argument", entry.operation.operands), ("result", entry.operation.results))
                    for number, value in enumerate(values)
                    for axis, extent in enumerate(shapes.of(value))
                    if ir.RankedTensorType(value.type).is_dynamic_dim(axis)
                })
    return {name: _groups(calls) for name, calls in seen.items()}


def _groups(calls: Sequence[Mapping[ExtentPlace, str]]) -> list[list[ExtentPlace]]:
    groups: dict[tuple[str, ...], list[ExtentPlace]] = {}
    for place in calls[0]:
        groups.setdefault(tuple(call[place] for call in calls), []).append(place)
    return [group for group in groups.values() if len(group) > 1 and not group[0].is_result]
