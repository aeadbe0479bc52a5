"""Checks a manifest beyond its types: every index, reference, expression and static size.

What passes can be run without further checks; what depends on symbols is checked when their values are known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import LIMIT, OPERATORS
from motet.artifact.plans import check_code, check_plans
from motet.artifact.schema import (
    STATUS_BYTES,
    Command,
    Expr,
    ExtentValue,
    Manifest,
    Schedule,
    ScheduleBuffer,
    Signature,
    TensorSpec,
    Variant,
)
from motet.artifact.states import check_states
from motet.errors import ArtifactError

_DEPTH = 64
MAXIMUM_RANK = 64
MAXIMUM_BYTES = 1 << 56  # of a tensor
_MAXIMUM_STREAMS = 1 << 16
_LEAST_PIECE = 1 << 16


def validate(manifest: Manifest, where: str) -> None:
    """Raises ArtifactError, prefixed with `where`, for the first error."""
    signatures: dict[str, Signature] = {}
    for signature in manifest.functions:
        if signature.name in signatures:
            raise ArtifactError(f"{where}: function {signature.name!r} stands there twice")
        signatures[signature.name] = signature
        _check_signature(signature, f"{where}: function {signature.name!r}")
    for name, signature in manifest.regions.items():
        _check_signature(signature, f"{where}: region {name!r}")
    for signature in manifest.functions:
        _check_values(signature, signatures, f"{where}: function {signature.name!r}")
    check_states(signatures, where)
    check_plans(manifest, where)
    for index, parameter in enumerate(manifest.parameters):
        place = f"{where}: parameter {index} ({parameter.key!r})"
        _check_dtype(parameter.dtype, place)
        bounded = all(0 <= extent < LIMIT for extent in parameter.shape)
        if len(parameter.shape) > MAXIMUM_RANK or not bounded:
            raise ArtifactError(f"{place}: shape {parameter.shape}")
    for variant in manifest.variants:
        _check_variant(variant, manifest, signatures, f"{where}: variant {variant.target!r}")
    check_code(manifest, where)
    for name, member in manifest.members.items():
        if member.piece and member.piece < _LEAST_PIECE:
            raise ArtifactError(f"{where}: member {name!r}: hashed in pieces of {member.piece} bytes; expected 0, for "
                                f"the whole, or {_LEAST_PIECE} and more")
    external = manifest.external_parameters
    beside = external is None or ("/" not in external and external not in ("", ".", ".."))
    if not beside or external not in {None, *manifest.members}:
        raise ArtifactError(f"{where}: external parameters {external!r}: not the name of a member")


def _check_constraints(signature: Signature, where: str) -> None:
    symbols = {symbol.name for symbol in signature.symbols}
    for number, constraint in enumerate(signature.constraints):
        for expression in (constraint.left, constraint.right):
            check_expression(expression, symbols, f"{where}: constraint {number}")


def _check_signature(signature: Signature, where: str) -> None:
    _check_constraints(signature, where)
    names = [symbol.name for symbol in signature.symbols]
    if len(set(names)) != len(names):
        raise ArtifactError(f"{where}: a symbol stands there twice: {', '.join(names)}")
    for group, specs in (("input", signature.inputs), ("result", signature.results)):
        for index, spec in enumerate(specs):
            place = f"{where}: {group} {index}"
            _check_dtype(spec.dtype, place)
            if len(spec.shape) > MAXIMUM_RANK:
                raise ArtifactError(f"{place}: {len(spec.shape)} axes; at most {MAXIMUM_RANK} expected")
            for extent in spec.shape:
                check_expression(extent, names, place)
            if spec.destination is None:
                continue
            if group == "input" or not 0 <= spec.destination < len(signature.inputs):
                raise ArtifactError(f"{place}: destination {spec.destination}: no such input")
            target = signature.inputs[spec.destination]
            if (target.shape, target.dtype) != (spec.shape, spec.dtype):
                raise ArtifactError(f"{place}: shape and dtype differ from its destination's")
    for symbol in signature.symbols:
        place = f"{where}: symbol {symbol.name!r}"
        if not 0 <= symbol.input < len(signature.inputs):
            raise ArtifactError(f"{place}: input {symbol.input}: no such input")
        shape = signature.inputs[symbol.input].shape
        if not 0 <= symbol.axis < len(shape) or shape[symbol.axis] != symbol.name:
            raise ArtifactError(f"{place}: not axis {symbol.axis} of input {symbol.input}")


def _check_values(signature: Signature, signatures: Mapping[str, Signature], where: str) -> None:
    """Checks that inputs that represent values come last and are empty, and that the functions that compute them take
    the inputs before them and return numbers."""
    given = [number for number, spec in enumerate(signature.inputs) if spec.value is None]
    symbols = {(symbol.input, symbol.axis): symbol.name for symbol in signature.symbols}
    for number, spec in enumerate(signature.inputs):
        value, place = spec.value, f"{where}: input {number}"
        if value is None:
            continue
        if given and given[-1] > number:
            raise ArtifactError(f"{place}: stands for a value; expected to come behind all that calls give")
        if value.result == 0 and (
            spec.dtype != "i8" or len(spec.shape) != 2 or spec.shape != [symbols.get((number, 0)), 0]
        ):
            raise ArtifactError(f"{place}: stands for a value; expected a tensor of nx0xi8")
        function = signatures.get(value.function)
        if function is None or any(each.value is not None for each in function.inputs):
            raise ArtifactError(f"{place}: value of {value.function!r}: no such function of values")
        taken = [(each.shape, each.dtype) for each in signature.inputs[:number]]
        if [(each.shape, each.dtype) for each in function.inputs] != taken[: len(function.inputs)]:
            raise ArtifactError(f"{place}: value of {value.function!r}, whose inputs are not those before it")
        results = function.results
        if not results or results[0].dtype != "i64" or any(each.destination is not None for each in results):
            raise ArtifactError(f"{place}: value of {value.function!r}, whose first result is not a tensor of i64")
        if value.result:
            _check_carried(spec, value, results, place)
            continue
        shape = results[0].shape
        if len(shape) != 1 or not isinstance(shape[0], int) or not 0 <= value.index < shape[0]:
            raise ArtifactError(f"{place}: value {value.index} of {value.function!r}: it returns {shape}")


def _check_carried(spec: TensorSpec, value: ExtentValue, results: Sequence[TensorSpec], place: str) -> None:
    """Checks that an input that is a result of a function of values has the type of this result."""
    kind = results[value.result] if 0 < value.result < len(results) else None
    if kind is None or (kind.dtype, kind.shape) != (spec.dtype, spec.shape):
        raise ArtifactError(f"{place}: result {value.result} of {value.function!r}: no such result of the same type")


def _check_variant(
    variant: Variant, manifest: Manifest, signatures: dict[str, Signature], where: str
) -> None:
    for name in variant.objects:
        if name not in manifest.members:
            raise ArtifactError(f"{where}: object {name!r}: no such member")
    # A variant has code for all functions, or for the regions of plans, that may run on its family.
    known = manifest.regions if manifest.devices else signatures
    strange = set(variant.schedules) - set(known) if manifest.devices else set(variant.schedules) ^ set(known)
    if strange:
        raise ArtifactError(f"{where}: has schedules for {_listing(variant.schedules)}; expected {_listing(known)}")
    for name, schedule in variant.schedules.items():
        _check_schedule(schedule, known[name], len(manifest.parameters), f"{where}: schedule {name!r}")


def _check_schedule(schedule: Schedule, signature: Signature, parameters: int, where: str) -> None:
    symbols = [symbol.name for symbol in signature.symbols]
    check_expression(schedule.arena, symbols, f"{where}: arena")
    for size in (schedule.least, schedule.serial):
        if size is not None:
            check_expression(size, (), f"{where}: memory")
    if not 0 <= schedule.scratch < LIMIT:
        raise ArtifactError(f"{where}: {schedule.scratch} bytes of scratch")
    counts = {
        "input": len(signature.inputs), "result": len(signature.results), "parameter": parameters,
        "status": len(schedule.checks),
    }
    for index, buffer in enumerate(schedule.buffers):
        _check_buffer(buffer, schedule, symbols, counts, f"{where}: buffer {index}")
    for index, command in enumerate(schedule.commands):
        _check_command(command, index, len(schedule.buffers), symbols, f"{where}: command {index}")


def _check_buffer(
    buffer: ScheduleBuffer, schedule: Schedule, symbols: Collection[str], counts: dict[str, int], where: str
) -> None:
    check_expression(buffer.bytes, symbols, f"{where}: bytes")
    check_expression(buffer.offset, symbols, f"{where}: offset")
    if len(buffer.shape) > MAXIMUM_RANK:
        raise ArtifactError(f"{where}: {len(buffer.shape)} axes; at most {MAXIMUM_RANK} expected")
    for extent in buffer.shape:
        check_expression(extent, symbols, f"{where}: shape")
    if buffer.kind == "status" and (buffer.bytes, buffer.offset) != (STATUS_BYTES, 0):
        raise ArtifactError(f"{where}: status of {buffer.bytes} bytes at {buffer.offset}; expected {STATUS_BYTES} at 0")
    if buffer.kind != "arena":
        if not 0 <= buffer.index < counts[buffer.kind]:
            raise ArtifactError(f"{where}: {buffer.kind} {buffer.index}: there are {counts[buffer.kind]}")
    elif isinstance(buffer.bytes, int) and isinstance(buffer.offset, int) and isinstance(schedule.arena, int):
        check_range(buffer.offset, buffer.bytes, schedule.arena, f"{where}: arena")


def _check_command(command: Command, index: int, buffers: int, symbols: Collection[str], where: str) -> None:
    for buffer in command.buffers:
        if not 0 <= buffer < buffers:
            raise ArtifactError(f"{where}: buffer {buffer}: there are {buffers}")
    for earlier in (*command.after, *command.waits):
        if not 0 <= earlier < index:
            raise ArtifactError(f"{where}: after command {earlier}; expected an earlier one")
    if not 0 <= command.reads <= len(command.buffers):
        raise ArtifactError(f"{where}: reads {command.reads} buffers; there are {len(command.buffers)}")
    if not 0.0 <= command.seconds < float(LIMIT):
        raise ArtifactError(f"{where}: {command.seconds} seconds")
    if not 0 <= command.stream < _MAXIMUM_STREAMS:
        raise ArtifactError(f"{where}: stream {command.stream}; expected less than {_MAXIMUM_STREAMS}")
    check_expression(command.tasks, symbols, f"{where}: tasks")
    for size in command.sizes:
        check_expression(size, symbols, f"{where}: sizes")
    if command.op == "copy" and len(command.buffers) != 2:
        raise ArtifactError(f"{where}: copy of {len(command.buffers)} buffers; expected source and target")
    if command.op == "dispatch" and not command.kernel:
        raise ArtifactError(f"{where}: dispatch without a kernel")


def check_range(offset: int, size: int, available: int, where: str) -> None:
    """Raises ArtifactError unless bytes `[offset, offset + size)` are within `[0, available)`."""
    if offset < 0 or size < 0 or offset + size > available:
        raise ArtifactError(f"{where}: bytes {offset} to {offset + size}; there are {available}")


def check_expression(expression: Expr, symbols: Collection[str], where: str, depth: int = 0) -> None:
    """Raises ArtifactError unless the expression is well formed over `symbols`."""
    if type(expression) is int:
        if (not 0 <= expression < LIMIT and depth == 0) or abs(expression) >= LIMIT:
            raise ArtifactError(f"{where}: {expression} is out of range")
        return
    if isinstance(expression, str):
        if expression not in symbols:
            raise ArtifactError(f"{where}: symbol {expression!r}; there are: {_listing(symbols)}")
        return
    if depth >= _DEPTH:
        raise ArtifactError(f"{where}: an expression deeper than {_DEPTH}")
    if not isinstance(expression, list) or len(expression) != 3 or expression[0] not in OPERATORS:
        raise ArtifactError(f"{where}: {expression!r}; expected [operator, left, right]")
    check_expression(expression[1], symbols, where, depth + 1)
    check_expression(expression[2], symbols, where, depth + 1)


def _check_dtype(dtype: str, where: str) -> None:
    if dtype not in DTYPES:
        raise ArtifactError(f"{where}: dtype {dtype!r}; expected one of {', '.join(DTYPES)}")


def _listing(names: Collection[str]) -> str:
    return ", ".join(names) or "none"
