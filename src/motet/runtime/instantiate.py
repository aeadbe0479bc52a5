"""Instantiates schedules: evaluates the work of a function on one device for given values of the symbols."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.artifact.agreement import Agreement, Evaluated
from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import evaluate, evaluate_all, show, symbols_of
from motet.artifact.schema import STATUS_BYTES, Command, Schedule, ScheduleBuffer, Signature, TensorSpec
from motet.artifact.validation import check_range
from motet.errors import ArtifactError, CallError
from motet.runtime.checks import Statuses
from motet.runtime.device import Reference, Work

_BANDWIDTH = 1e10  # estimated bytes per second of one thread
ALIGNMENT = 64  # of every buffer in an arena, bytes


@dataclass(frozen=True)
class Shape:
    """A tensor's concrete extents, numpy dtype and size."""

    extents: tuple[int, ...]
    dtype: np.dtype[Any]
    bytes: int


@dataclass(frozen=True)
class Concrete:
    """`work` refers to externals in this order: the inputs, the results, the arena (`arena` bytes), then the parameters
    with the indices `parameters`. `scratch` is in bytes per thread. The `statuses` of commands that may fail, if there
    are any, are the last bytes of the arena or, if `apart`, an external after all others, which the caller clears and
    reads."""

    inputs: list[Shape]
    results: list[Shape]
    work: list[Work]
    arena: int
    scratch: int
    parameters: list[int]
    statuses: Statuses | None = None
    apart: bool = False

    @property
    def externals(self) -> int:
        own = self.apart and self.statuses is not None
        return len(self.inputs) + len(self.results) + 1 + len(self.parameters) + own


def make_concrete(
    signature: Signature,
    schedule: Schedule,
    symbols: Mapping[str, int],
    parameter_bytes: Callable[[int], int],
    where: str,
    agreement: Agreement | None = None,
    apart: bool = False,
) -> Concrete:
    """Evaluate `schedule`. Raises CallError for unsuitable extents, and ArtifactError for ranges out of bounds and for
    contradictions to the code's `agreement`."""
    check_constraints(signature, symbols, where)
    inputs = [shape_of(spec, symbols, f"{where}: {spec.name}") for spec in signature.inputs]
    results = [shape_of(spec, symbols, f"{where}: {spec.name}") for spec in signature.results]
    arena = evaluate(schedule.arena, symbols)
    statuses = None
    if schedule.checks:
        statuses = Statuses(where, schedule.checks, 0 if apart else -(-arena // ALIGNMENT) * ALIGNMENT)
        arena = arena if apart else statuses.offset + statuses.bytes
    parameters = list(dict.fromkeys(buffer.index for buffer in schedule.buffers if buffer.kind == "parameter"))
    sizes = [shape.bytes for shape in (*inputs, *results)] + [arena, *map(parameter_bytes, parameters)]
    arena_number = len(inputs) + len(results)
    first = {"input": 0, "result": len(inputs), "arena": arena_number, "status": arena_number}
    if apart and statuses is not None:
        first["status"] = len(sizes)
        sizes.append(statuses.bytes)

    def refer(buffer: ScheduleBuffer, place: str) -> Reference:
        if buffer.kind == "parameter":
            external = first["arena"] + 1 + parameters.index(buffer.index)
        else:
            external = first[buffer.kind] + (0 if buffer.kind in ("arena", "status") else buffer.index)
        offset, size = evaluate(buffer.offset, symbols), evaluate(buffer.bytes, symbols)
        if buffer.kind == "status" and statuses is not None:
            offset = statuses.offset + STATUS_BYTES * buffer.index
        check_range(offset, size, sizes[external], f"{place}: {buffer.kind} {buffer.index}")
        return Reference(external, offset, size)

    references = [refer(buffer, f"{where}: buffer {index}") for index, buffer in enumerate(schedule.buffers)]
    work = [
        _work(command, references, symbols, f"{where}: command {index}")
        for index, command in enumerate(schedule.commands)
    ]
    if agreement is not None:
        places = [(each.external, each.offset, each.offset + each.bytes) for each in references]
        launches = [(each.tasks, each.sizes) for each in work]
        agreement.check(signature, schedule, Evaluated(sizes, parameters, places, launches), where)
    return Concrete(inputs, results, work, arena, schedule.scratch, parameters, statuses, apart)


def _work(command: Command, buffers: Sequence[Reference], symbols: Mapping[str, int], where: str) -> Work:
    references = tuple(buffers[index] for index in command.buffers)
    seconds = command.seconds or sum(reference.bytes for reference in references) / _BANDWIDTH
    if command.op == "copy":
        source, target = references
        if source.bytes != target.bytes:
            raise ArtifactError(f"{where}: copy of {source.bytes} bytes to {target.bytes}")
        return Work(
            "copy", references, after=tuple(command.after), stream=command.stream, waits=tuple(command.waits),
            seconds=seconds, source=command.source,
        )
    tasks = max(0, evaluate(command.tasks, symbols))
    return Work(
        "launch", references, command.kernel, tasks, evaluate_all(command.sizes, symbols), tuple(command.after),
        command.stream, tuple(command.waits), seconds, command.source,
    )


def shape_of(spec: TensorSpec, symbols: Mapping[str, int], where: str) -> Shape:
    """The concrete shape of `spec`. Raises CallError if an extent is negative or too large."""
    extents = evaluate_all(spec.shape, symbols)
    dtype = DTYPES[spec.dtype]
    size = math.prod(extents) * dtype.itemsize
    if any(extent < 0 for extent in extents) or size >= 1 << 62:
        raise CallError(f"{where}: shape {'x'.join(map(str, extents))} for {dict(symbols)}")
    return Shape(extents, dtype, size)


def check_constraints(signature: Signature, symbols: Mapping[str, int], where: str) -> None:
    """Raises CallError if a call's extents violate a constraint of the function; names the operation, both numbers, and
    the inputs from which they are derived."""
    for constraint in signature.constraints:
        left, right = evaluate(constraint.left, symbols), evaluate(constraint.right, symbols)
        if _FULFILLED[constraint.relation](left, right):
            continue
        text = constraint.text or f"{show(constraint.left)} and {show(constraint.right)} must be equal"
        used = symbols_of(constraint.left) | symbols_of(constraint.right)
        named = [
            f"axis {symbol.axis} of {signature.inputs[symbol.input].name} is {symbols[symbol.name]}"
            for symbol in signature.symbols
            if symbol.name in used and signature.inputs[symbol.input].value is None
        ]
        numbers = [] if constraint.relation == "true" else [f"{left} and {right}"]
        raise CallError(f"{where}: {text}: " + "; ".join([*numbers, *([", ".join(named)] if named else [])]))


_FULFILLED: dict[str, Callable[[int, int], bool]] = {
    "equal": lambda left, right: left == right,
    "at-most": lambda left, right: left <= right,
    "multiple": lambda left, right: left % right == 0 if right else left == 0,
    "stretch": lambda left, right: left in (right, 1),
    "broadcast": lambda left, right: left == right or 1 in (left, right),
    "true": lambda left, _: left != 0,
}
