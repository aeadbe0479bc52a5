"""Loops and branches: their bodies become those of ONNX's Loop, Scan and If, and read the values around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.openvino.bodies import write_body
from motet.compiler.frontends.openvino.operation import (
    NoLowering,
    OpenvinoOperation,
    constant_value,
    dtype_of,
    extents_of,
)
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules

if TYPE_CHECKING:
    import onnx


@dataclass
class _Ports:
    """How the operands of a loop reach its body's parameters, and the body's results the loop's."""

    sliced: list[Any] = field(default_factory=list[Any])
    merged: list[Any] = field(default_factory=list[Any])
    invariant: list[Any] = field(default_factory=list[Any])
    final: list[Any] = field(default_factory=list[Any])
    joined: list[Any] = field(default_factory=list[Any])


def _ports(op: OpenvinoOperation) -> _Ports:
    found = _Ports()
    groups = {"Slice": found.sliced, "Merged": found.merged, "Invariant": found.invariant}
    for each in op.node.get_input_descriptions():
        groups[type(each).__name__.removesuffix("InputDescription")].append(each)
    for each in op.node.get_output_descriptions():
        (found.joined if hasattr(each, "part_size") else found.final).append(each)
    for each in (*found.sliced, *found.joined):
        if each.part_size != 1 or abs(each.stride) != 1:
            raise NoLowering(f"slices of {each.part_size} by steps of {each.stride}; expected one element at a time")
    return found


def _graph(w: GraphWriter, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> onnx.GraphProto:
    import onnx

    return onnx.helper.make_graph(w.nodes, w.names.fresh(f"{w.stem}/body"), inputs, outputs)


def _info(name: str, output: Any, dropped: int | None = None) -> onnx.ValueInfoProto:
    """A value of the type of a body's parameter or result, without the axis `dropped`."""
    import onnx

    extents = extents_of(output)
    if extents is not None and dropped is not None:
        del extents[dropped]
    named = None if extents is None else [f"{name}.{axis}" if e is None else e for axis, e in enumerate(extents)]
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(dtype_of(output)), named)


def _tensor_iterator(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    """A Scan where all slices cover whole axes. Its slices lack the axis that the body's have."""
    ports, body = _ports(op), op.node.get_function()
    if not ports.sliced or any(_direction(each) is None for each in (*ports.sliced, *ports.joined)):
        return _loop_of(op, w, ports, None)
    inner = w.body()
    given, inputs, operands = _states(op, inner, ports, body)
    for each in ports.sliced:
        parameter = body.get_parameters()[each.body_parameter_index].output(0)
        axis = each.axis % len(extents_of(parameter) or [])
        slice_ = w.names.fresh(f"{w.stem}/slice")
        inputs.append(_info(slice_, parameter, axis))
        given[each.body_parameter_index] = inner.unsqueeze(slice_, axis)
        operands.append(op.inputs[each.input_index])
    results, outer = write_body(body, inner, given), _results(body)
    outputs = [_copied(inner, results[each.body_value_index], outer[each.body_value_index]) for each in ports.merged]
    for each in ports.joined:
        axis = each.axis % len(extents_of(outer[each.body_value_index]) or [])
        squeezed = inner.squeeze(results[each.body_value_index], axis)
        outputs.append(_info(squeezed, outer[each.body_value_index], axis))
    lasts = _lasts(ports)
    outputs += [_copied(inner, results[place], outer[place]) for place in lasts]
    ranks = [len(extents_of(body.get_parameters()[each.body_parameter_index].output(0)) or [])
             for each in ports.sliced]
    scanned = [each.axis % rank for each, rank in zip(ports.sliced, ranks, strict=True)]
    produced = [each.axis % len(extents_of(outer[each.body_value_index]) or []) for each in ports.joined]
    attributes: dict[str, Any] = {
        "body": _graph(inner, inputs, outputs), "num_scan_inputs": len(ports.sliced), "scan_input_axes": scanned,
        "scan_input_directions": [_direction(each) for each in ports.sliced],
    }
    if ports.joined or lasts:
        attributes["scan_output_axes"] = [*produced, *(0 for _ in lasts)]
        attributes["scan_output_directions"] = [*(_direction(each) for each in ports.joined), *(0 for _ in lasts)]
    made = w.add_all("Scan", len(outputs), *operands, **attributes)
    return _collect(op, w, ports, lasts, made, made[len(ports.merged) :])


def _direction(each: Any) -> int | None:
    """0 for slices from the first element to the last, 1 for the other direction, None for a part of the axis."""
    if each.stride > 0:
        return 0 if each.start == 0 and each.end == -1 else None
    return 1 if each.start == -1 and each.end == 0 else None


def _states(op: OpenvinoOperation, inner: GraphWriter, ports: _Ports, body: Any) -> tuple[
    dict[int, str], list[onnx.ValueInfoProto], list[str]
]:
    """The names of the body's parameters that are carried or read from around the loop, the carried ones as inputs of
    the body, and their first values."""
    given = {each.body_parameter_index: op.inputs[each.input_index] for each in ports.invariant}
    inputs: list[onnx.ValueInfoProto] = []
    operands: list[str] = []
    for each in ports.merged:
        name = inner.names.fresh(f"{inner.stem}/carried")
        inputs.append(_info(name, body.get_parameters()[each.body_parameter_index].output(0)))
        given[each.body_parameter_index] = name
        operands.append(op.inputs[each.input_index])
    return given, inputs, operands


def _results(body: Any) -> list[Any]:
    return [result.input_value(0) for result in body.get_results()]


def _copied(w: GraphWriter, name: str, output: Any) -> onnx.ValueInfoProto:
    """A result of a body, which a node of the body must compute."""
    return _info(w.add("Identity", name), output)


def _lasts(ports: _Ports) -> list[int]:
    """The numbers of the body's results that the loop returns from its last iteration, and that are not carried."""
    carried = {each.body_value_index for each in ports.merged}
    return list(dict.fromkeys(each.body_value_index for each in ports.final if each.body_value_index not in carried))


def _collect(
    op: OpenvinoOperation, w: GraphWriter, ports: _Ports, lasts: list[int], made: list[str], scanned: list[str]
) -> list[str]:
    """The loop's results by their numbers, of the carried values `made` and what iterations produced, `scanned`."""
    found = [""] * op.results
    carried = {each.body_value_index: made[number] for number, each in enumerate(ports.merged)}
    for each, name in zip(ports.joined, scanned, strict=False):
        found[each.output_index] = name
    last = dict(zip(lasts, scanned[len(ports.joined) :], strict=True))
    for each in ports.final:
        if each.iteration != -1:
            raise NoLowering(f"the result of iteration {each.iteration}; expected that of the last")
        name = carried.get(each.body_value_index)
        if name is None:
            name = w.add("Gather", last[each.body_value_index], w.ints(-1), axis=0)
        found[each.output_index] = name
    return found


def _loop(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    return _loop_of(op, w, _ports(op), list(op.node.get_special_body_ports()))


def _loop_of(op: OpenvinoOperation, w: GraphWriter, ports: _Ports, special: Sequence[int] | None) -> list[str]:
    """ONNX's Loop. `special` are the numbers of the body's parameter that counts iterations and of its result that is
    the condition; a TensorIterator has neither, and as many iterations as OpenVINO finds."""
    import onnx

    body = op.node.get_function()
    counter, condition = special or (-1, -1)
    inner = w.body()
    given, inputs, operands = _states(op, inner, ports, body)
    step, going = (w.names.fresh(f"{w.stem}/{name}") for name in ("iteration", "going"))
    if counter >= 0:
        given[counter] = _counted(inner, step, body.get_parameters()[counter].output(0))
    for each in ports.sliced:
        given[each.body_parameter_index] = _sliced(op, inner, each, step)
    results, outer = write_body(body, inner, given), _results(body)
    lasts = _lasts(ports)
    ahead = inner.reshape(results[condition], []) if condition >= 0 else inner.constant(True, np.bool_)
    outputs = [inner.add("Identity", ahead)]
    outputs_info = [onnx.helper.make_tensor_value_info(outputs[0], onnx.TensorProto.BOOL, [])]
    for place in (*(each.body_value_index for each in (*ports.merged, *ports.joined)), *lasts):
        outputs_info.append(_copied(inner, results[place], outer[place]))
    first = [onnx.helper.make_tensor_value_info(step, onnx.TensorProto.INT64, []),
             onnx.helper.make_tensor_value_info(going, onnx.TensorProto.BOOL, [])]
    trips, start = _trips(op, w, special, ends=constant_value(outer[condition]) if condition >= 0 else np.array(True))
    made = w.add_all("Loop", len(outputs_info) - 1, trips, start, *operands,
                     body=_graph(inner, [*first, *inputs], outputs_info))
    scanned = made[len(ports.merged) :]
    joined = [_merged(w, name, each, extents_of(outer[each.body_value_index]) or [])
              for name, each in zip(scanned, ports.joined, strict=False)]
    return _collect(op, w, ports, lasts, made, [*joined, *scanned[len(joined) :]])


def _counted(w: GraphWriter, step: str, parameter: Any) -> str:
    value = step if dtype_of(parameter) == np.int64 else w.cast(step, dtype_of(parameter))
    return w.unsqueeze(value, 0) if extents_of(parameter) == [1] else value


def _trips(
    op: OpenvinoOperation, w: GraphWriter, special: Sequence[int] | None, ends: np.ndarray | None
) -> tuple[str, str]:
    """The number of iterations and the condition before the first, as ONNX's Loop takes them."""
    if special is None:
        count = int(op.node.get_num_iterations())
        if count < 0:
            raise NoLowering("as many iterations as a call decides; expected a known number")
        return w.ints(count), ""
    count, start = op.value(0), op.value(1)
    number = None if count is None else int(count.reshape(-1)[0])
    if number == -1:
        trips = ""
    else:
        trips = w.ints(number) if number is not None else w.reshape(w.cast(op.inputs[0], np.int64), [])
    always = start is not None and bool(start.all()) and ends is not None and bool(ends.all())
    return trips, "" if always and trips else w.reshape(op.inputs[1], [])


def _sliced(op: OpenvinoOperation, w: GraphWriter, each: Any, step: str) -> str:
    """The slice of an operand for iteration `step`."""
    places = w.unsqueeze(step, 0)
    if each.stride < 0:
        places = w.add("Neg", places)
    if each.start:
        places = w.add("Add", places, w.ints([each.start]))
    return w.add("Gather", op.inputs[each.input_index], places, axis=int(each.axis))


def _merged(w: GraphWriter, stacked: str, each: Any, extents: list[int | None]) -> str:
    """The parts [T, …, 1, …] of all iterations, joined along their axis."""
    rank = len(extents)
    axis = each.axis % rank
    parts = w.squeeze(stacked, axis + 1)
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    joined = w.transpose(parts, order)
    return w.slice(joined, axis, -1, -(2**62), -1) if each.stride < 0 else joined


def _if(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    if op.inputs[0] not in w.constants:
        _expect_known_extents(op)
    bodies = {"then": op.node.get_then_body(), "else": op.node.get_else_body()}
    graphs: dict[str, onnx.GraphProto] = {}
    for number, (name, body) in enumerate(bodies.items()):
        inner = w.body()
        given = {each.body_parameter_index: op.inputs[each.input_index]
                 for each in op.node.get_input_descriptions(number)}
        results, outer = write_body(body, inner, given), _results(body)
        ordered = sorted(op.node.get_output_descriptions(number), key=lambda each: each.output_index)
        outputs = [_copied(inner, results[each.body_value_index], outer[each.body_value_index]) for each in ordered]
        graphs[name] = _graph(inner, [], outputs)
    condition = op.inputs[0] if op.extents(0) == [] else w.reshape(op.inputs[0], [])
    return w.add_all("If", op.results, condition, then_branch=graphs["then"], else_branch=graphs["else"])


def _expect_known_extents(op: OpenvinoOperation) -> None:
    """Raises NoLowering if a result's extents, which the branch that is taken decides, are dynamic."""
    for number, output in enumerate(op.node.outputs()):
        extents = extents_of(output)
        if extents is None or None in extents:
            shown = "of unknown rank" if extents is None else "x".join("?" if e is None else str(e) for e in extents)
            raise NoLowering(
                f"result {number} has dynamic extents, {shown}, which the branch decides; expected extents that are "
                "numbers: reshape the model"
            )


RULES: Rules = {"TensorIterator": _tensor_iterator, "Loop": _loop, "If": _if}
