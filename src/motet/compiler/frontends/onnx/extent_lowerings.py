"""Writes operators on dynamic extents that the torch-mlir wheel lowers wrongly, in the dialect `torch`.

Split into parts of different extents; Einsum over no elements, where the wheel divides by extents; Slice of declared
extents; initial states of recurrent layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from motet.compiler.frontends.onnx.operator_demands import einsum_axes
from motet.compiler.frontends.onnx.tensors import as_torch, kind_of, replace, replace_all
from motet.compiler.frontends.onnx.torch_operands import (
    ExtentOperand,
    NodeOperands,
    OperandAxis,
    assert_that,
    builtin,
    filled,
    numbers,
    sized,
    write,
)
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import zero_attribute
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.sizes import constant_index, on_indices

_PARTS = "torch.onnx.split"  # before operator set 13


def _split(node: NodeOperands) -> None:
    """Asserts that equal parts fit. Parts that an attribute gives become slices where an extent is dynamic: the wheel
    takes them for equal ones."""
    data, given = node.operands[0], node.op.attributes
    if not data.rank:
        return  # of unknown rank, like the result of an If; a later step refuses what cannot be lowered
    place = OperandAxis(data, node.attribute("axis", 0) % data.rank)
    if _PARTS in given:
        if DYNAMIC in data.kind.extents:
            _divide(node, place.axis, [ir.IntegerAttr(part).value for part in ir.ArrayAttr(given[_PARTS])])
    elif place.is_dynamic and numbers(node, 1) is None and "torch.onnx.num_outputs" in given:
        _even_split(place, node.attribute("num_outputs", 1))


def _divide(node: NodeOperands, axis: int, parts: Sequence[int]) -> None:
    data, kinds = node.operands[0], [kind_of(result) for result in node.op.results]
    if len(kinds) != len(parts) or any(kind is None for kind in kinds):
        return
    found: list[ir.Value | None] = []
    for number, kind in enumerate(kinds):
        value = _slice_along(data, axis, sum(parts[:number]), parts[number])
        found.append(create("tensor.cast", kind.builtin, [value]) if kind and kind.builtin != value.type else value)
    replace_all(node.op, found)


def _slice_along(data: ExtentOperand, axis: int, first: int, count: int | OperandAxis) -> ir.Value:
    """`count` elements of `data` from `first` along `axis`."""
    sizes, offsets = list(data.kind.extents), [0] * data.rank
    sizes[axis], offsets[axis] = (count if isinstance(count, int) else count.extent), first
    dynamic = [
        count.size if each == axis and not isinstance(count, int) else OperandAxis(data, each).size
        for each, extent in enumerate(sizes) if extent == DYNAMIC
    ]
    return ir.Operation.create(
        "tensor.extract_slice", results=[ir.RankedTensorType.get(sizes, data.kind.scalar)],
        operands=[builtin(data), *dynamic], attributes={
            "static_offsets": ir.DenseI64ArrayAttr.get(offsets), "static_sizes": ir.DenseI64ArrayAttr.get(sizes),
            "static_strides": ir.DenseI64ArrayAttr.get([1] * data.rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, len(dynamic), 0]),
        },
    ).results[0]  # fmt: skip


def _even_split(place: OperandAxis, count: int) -> None:
    """Asserts that the extent is large enough for `count` parts, which all but the last have the rounded-up size."""
    size = sized(place.size)
    others = sized(on_indices("arith.ceildivsi", size.value, constant_index(count))) * (count - 1)
    assert_that((others <= size).value, f"the first {count - 1} of {count} equal parts must be within {place}")


def _slice(node: NodeOperands) -> None:
    """Asserts that a slice has as many elements as the model declares; no later stage checks this."""
    data, result = node.operands[0], kind_of(node.op.results[0])
    starts, ends, axes, steps = (numbers(node, number) for number in (1, 2, 3, 4))
    absent = [number for number in (3, 4) if node.operand(number) is None]
    if result is None or starts is None or ends is None:
        return
    axes = list(range(len(starts))) if 3 in absent else axes
    steps = [1] * len(starts) if 4 in absent else steps
    for start, end, axis, step in zip(starts, ends, axes or (), steps or (), strict=False):
        place, declared = OperandAxis(data, axis % data.rank), result.extents[axis % data.rank]
        if place.is_dynamic and declared != DYNAMIC and step:
            said = f"{place} must have {declared} of the elements that are asked for"
            assert_that(write("==", _taken(place.size, start, end, step), declared), said)


def _taken(extent: ir.Value, start: int, end: int, step: int) -> ir.Value:
    """The number of elements that a slice takes of `extent` elements."""
    zero, one = constant_index(0), constant_index(1)
    lowest, highest = (zero, extent) if step > 0 else (constant_index(-1), on_indices("arith.subi", extent, one))

    def edge(place: int, lowest: ir.Value) -> ir.Value:
        value = constant_index(place) if place >= 0 else on_indices("arith.addi", extent, constant_index(place))
        return on_indices("arith.minsi", on_indices("arith.maxsi", value, lowest), highest)

    first, last = edge(start, zero), edge(end, lowest)
    span = on_indices("arith.subi", last, first) if step > 0 else on_indices("arith.subi", first, last)
    places = on_indices("arith.addi", span, constant_index(abs(step) - 1))
    return on_indices("arith.maxsi", on_indices("arith.floordivsi", places, constant_index(abs(step))), zero)


def _einsum(node: NodeOperands) -> None:
    """Zeros for sums over no elements, for the wheel's lowering divides by extents."""
    given, result = node.op.attributes, kind_of(node.op.results[0])
    if "torch.onnx.equation" not in given or result is None or all(0 not in each.extents for each in node.operands):
        return
    equation, _, result_term = ir.StringAttr(given["torch.onnx.equation"]).value.partition("->")
    terms, places = equation.split(","), dict[str, OperandAxis]()
    for operand in node.operands:
        for axis, letter in enumerate(einsum_axes(terms[operand.number], operand.rank)):
            if operand.extents[axis] != 1:
                places.setdefault(letter, OperandAxis(operand, axis))
    letters = einsum_axes(result_term, len(result.extents))
    zeros = filled([places.get(letter) for letter in letters], result.scalar, zero_attribute(result.scalar))
    replace(node.op, create("tensor.cast", result.builtin, [zeros]))


def _recurrent(node: NodeOperands) -> None:
    """Casts initial states to a row for each sequence, so that the loop over the steps carries states of unchanging
    extents."""
    batch = 0 if node.attribute("layout", 0) else 1
    rows = OperandAxis(node.operands[0], batch)
    for number in (5, 6):
        state = node.operand(number)
        if state is None or state.rank != 3:
            continue
        if OperandAxis(state, batch).is_dynamic or rows.is_dynamic:
            node.op.operands[number] = as_torch(_slice_along(state, batch, 0, rows), state.kind.element)


RULES: dict[str, Callable[[NodeOperands], None]] = {
    "Einsum": _einsum, **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent), "Slice": _slice, "Split": _split,
}  # fmt: skip
