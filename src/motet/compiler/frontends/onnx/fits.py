"""Asserts the requirements of ONNX operators on dynamic extents: parts of Split, letters of Einsum, indices, declared
results. Einsum of a tensor without elements becomes zeros, for the wheel's lowering divides by extents."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from motet.compiler.frontends.onnx.places import (
    AT_MOST,
    ExtentOperand,
    NodeOperands,
    OperandAxis,
    assert_any,
    assert_equal,
    assert_that,
    builtin,
    compare,
    filled,
    numbers,
    on_indices,
)
from motet.compiler.frontends.onnx.tensors import kind_of, replace, replace_all
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import zero_attribute
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.sizes import constant_index

_NUMBER = "torch.onnx.num_outputs"
_PARTS = "torch.onnx.split"  # before operator set 13
OF_SAME_SHAPE = ("Abs", "Cast", "Exp", "Identity", "Log", "Neg", "Not", "Relu", "Sigmoid", "Sqrt", "Tanh")


def _split(node: NodeOperands) -> None:
    """Asserts that the parts add up to the extent. Parts that an attribute gives become slices where an extent is
    dynamic: the wheel takes them for equal ones."""
    if not node.operands[0].rank:
        return  # of unknown rank, like the result of an If; a later step refuses what cannot be lowered
    place = OperandAxis(node.operands[0], node.attribute("axis", 0) % node.operands[0].rank)
    parts = _parts(node)
    if parts is not None and place.is_dynamic:
        assert_any([(place.size, constant_index(sum(parts)))], f"{place} must be equal to the sum of the parts")
    if parts is not None and _PARTS in node.op.attributes and DYNAMIC in node.operands[0].kind.extents:
        _divide(node, place.axis, parts)
    elif place.is_dynamic and parts is None and _NUMBER in node.op.attributes:
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
    each = on_indices("arith.ceildivsi", place.size, constant_index(count))
    others = on_indices("arith.muli", each, constant_index(count - 1))
    said = f"the first {count - 1} of {count} equal parts must be within {place}"
    assert_that(compare(AT_MOST, others, place.size), said)


def _parts(node: NodeOperands) -> list[int] | None:
    """The constant extents that a Split names; None if it names none, or if they are dynamic."""
    given = node.op.attributes
    if _PARTS in given:
        return [ir.IntegerAttr(part).value for part in ir.ArrayAttr(given[_PARTS])]
    return numbers(node, 1)


def _slice(node: NodeOperands) -> None:
    """Asserts that a slice has as many numbers of each kind, and as many elements as the model declares; no later stage
    checks this."""
    data, result = node.operands[0], kind_of(node.op.results[0])
    vectors = [operand for operand in node.operands[1:] if operand.rank == 1]
    for other in vectors[1:]:
        assert_equal(OperandAxis(vectors[0], 0), OperandAxis(other, 0))
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
            assert_any([(_taken(place.size, start, end, step), constant_index(declared))], said)


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


def _declared(node: NodeOperands) -> None:
    """Asserts that the operand has the extents that the model declares for the result."""
    result = kind_of(node.op.results[0])
    if not node.operands or result is None or len(result.extents) != node.operands[0].rank:
        return
    for axis, declared in enumerate(result.extents):
        place = OperandAxis(node.operands[0], axis)
        if place.is_dynamic and declared != DYNAMIC:
            assert_any([(place.size, constant_index(declared))], f"{place} must be {declared}, as is declared")


def _reshape(node: NodeOperands) -> None:
    """Asserts that the operand has as many elements as the declared result; later stages would take a part of them."""
    data, result = node.operands[0], kind_of(node.op.results[0])
    if result is None or DYNAMIC in result.extents or DYNAMIC not in data.kind.extents:
        return
    count = constant_index(1)
    for axis in range(data.rank):
        count = on_indices("arith.muli", count, OperandAxis(data, axis).size)
    declared = math.prod(result.extents)
    assert_any([(count, constant_index(declared))], f"the elements of input {data.number} must be {declared}")


def _einsum(node: NodeOperands) -> None:
    """Asserts that the extents of each letter are equal, unless one of them is known to be 1."""
    given = node.op.attributes
    if "torch.onnx.equation" not in given:
        return
    equation, _, letters = ir.StringAttr(given["torch.onnx.equation"]).value.replace(" ", "").partition("->")
    terms = equation.split(",")
    result = kind_of(node.op.results[0])
    letters = _letters(letters, 0 if result is None else len(result.extents))
    found: dict[str, list[OperandAxis]] = {}
    for operand in node.operands:
        for axis, letter in enumerate(_letters(terms[operand.number], operand.rank)):
            place = OperandAxis(operand, axis)
            if place.extent != 1:
                found.setdefault(letter, []).append(place)
    for first, *others in found.values():
        for other in others:
            if first.may_differ(other):
                assert_equal(first, other)
    empty = any(0 in operand.kind.extents for operand in node.operands)
    if empty and result is not None:
        places = [found[letter][0] if letter in found else None for letter in letters]
        zeros = filled(places, result.scalar, zero_attribute(result.scalar))
        replace(node.op, create("tensor.cast", result.builtin, [zeros]))


def _letters(term: str, rank: int) -> list[str]:
    """A letter for each of the `rank` axes that a term of an equation names; for those of an ellipsis, their distance
    from its end."""
    before, dots, after = term.partition("...")
    others = range(rank - len(before) - len(after), 0, -1) if dots else ()
    return [*before, *map(str, others), *after]


def _gather_elements(node: NodeOperands) -> None:
    data, indices = node.operands[0], node.operands[1]
    if data.rank:
        _assert_inside(indices, data, node.attribute("axis", 0) % data.rank)


def _scatter_elements(node: NodeOperands) -> None:
    data, indices, updates = node.operands[:3]
    if data.rank:
        _assert_inside(indices, data, node.attribute("axis", 0) % data.rank)
    for axis in range(indices.rank):
        assert_equal(OperandAxis(indices, axis), OperandAxis(updates, axis))


def _assert_inside(indices: ExtentOperand, data: ExtentOperand, along: int) -> None:
    for axis in range(data.rank if data.rank == indices.rank else 0):
        own, other = OperandAxis(indices, axis), OperandAxis(data, axis)
        if axis != along and (own.is_dynamic or other.is_dynamic):
            said = f"{own} must be at most {other}"
            assert_that(compare(AT_MOST, own.size, other.size), said)


def _gather_nd(node: NodeOperands) -> None:
    data, indices = node.operands[:2]
    for axis in range(node.attribute("batch_dims", 0)):
        assert_equal(OperandAxis(indices, axis), OperandAxis(data, axis))


def _scatter_nd(node: NodeOperands) -> None:
    data, indices, updates = node.operands[:3]
    depth = indices.kind.extents[-1]
    for axis in range(indices.rank - 1):
        assert_equal(OperandAxis(indices, axis), OperandAxis(updates, axis))
    if depth != DYNAMIC:
        for axis in range(indices.rank - 1, updates.rank):
            assert_equal(OperandAxis(data, axis - (indices.rank - 1) + depth), OperandAxis(updates, axis))


def _top_k(node: NodeOperands) -> None:
    """Asserts that the axis has at least as many elements as requested."""
    data, asked = node.operands[0], numbers(node, 1)
    if not data.rank:
        return
    place = OperandAxis(data, node.attribute("axis", -1) % data.rank)
    if place.is_dynamic and asked is not None:
        assert_that(compare(AT_MOST, constant_index(asked[0]), place.size), f"{place} must be at least {asked[0]}")


def _extreme(node: NodeOperands) -> None:
    """Asserts that there is an element, if the result is known to have the place of one."""
    data = node.operands[0]
    along = node.attribute("axis", 0) % max(data.rank, 1)
    others = [extent for axis, extent in enumerate(data.kind.extents) if axis != along]
    if data.rank and OperandAxis(data, along).is_dynamic and 0 not in others and DYNAMIC not in others:
        place = OperandAxis(data, along)
        assert_that(compare(AT_MOST, constant_index(1), place.size), f"{place} must be at least 1")


def _recurrent(node: NodeOperands) -> None:
    """Asserts that initial states have one row for each sequence, and casts them to that extent, so that the loop over
    the steps carries states of unchanging extents."""
    batch = 0 if node.attribute("layout", 0) else 1
    rows = OperandAxis(node.operands[0], batch)
    for number in (5, 6):
        state = node.operand(number)
        if state is None or state.rank != 3:
            continue
        own = OperandAxis(state, batch)
        assert_equal(own, rows)
        if own.is_dynamic or rows.is_dynamic:
            made = _slice_along(state, batch, 0, rows)
            shape = ",".join("?" if extent == DYNAMIC else str(extent) for extent in made.type.shape)
            kind = ir.Type.parse(f"!torch.vtensor<[{shape}],{state.kind.element}>")
            node.op.operands[number] = create("torch_c.from_builtin_tensor", kind, [made])


RULES: dict[str, Callable[[NodeOperands], None]] = {
    **dict.fromkeys(OF_SAME_SHAPE, _declared), **dict.fromkeys(("ArgMax", "ArgMin"), _extreme),
    "Einsum": _einsum, "GatherElements": _gather_elements, "GatherND": _gather_nd,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent), "Reshape": _reshape,
    "ScatterElements": _scatter_elements, "ScatterND": _scatter_nd, "Slice": _slice, "Split": _split, "TopK": _top_k,
}  # fmt: skip
