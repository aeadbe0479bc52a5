"""Applies all rules that rewrite ONNX nodes, and has the rules for single operators:

- Slice backwards from beyond the end, for which the torch-mlir wheel starts at another element, and backwards over
  whole axes of dynamic extent.
- ScatterElements with max and min.
- CumSum with exclusive=1, for which the wheel subtracts each element from the inclusive sum: that cancels, and makes
  infinities NaN.
- AffineGrid.
- Loop and Scan that collect unsigned integers.

Other modules have the rules for groups of operators: activations, control flow, movement, narrow floats, normalisation,
ordering, pools, products, quantisation, recurrence, reductions and resampling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx import (
    activations,
    composed,
    control,
    data_dependent,
    given,
    given_shapes,
    linear_quantisation,
    many_operands,
    movement,
    narrow,
    norms,
    ordering,
    pools,
    products,
    quantised,
    quantised_convolutions,
    random,
    recurrent,
    reductions,
    regions,
)
from motet.compiler.frontends.onnx.bodies import each_body
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.numbers import Numbers
from motet.compiler.frontends.onnx.resize import check_resize
from motet.compiler.frontends.onnx.simplify import attribute, infer_shapes
from motet.compiler.frontends.onnx.well_formed import UNREADABLE, check_axes, label
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy, refused, replace_nodes

if TYPE_CHECKING:
    import onnx

_DOMAINS = ("", "ai.onnx", "ai.onnx.preview")
Check = Callable[["onnx.NodeProto", ModelFacts], None]
_LARGE = (1 << 31) - 1  # the end of an axis of any extent


def rewrite_forms(model: OnnxModel) -> bool:
    """Rewrites the graph of `model`, whose types must be inferred, and its bodies in place; returns whether anything
    changed."""
    within = each_body(model, rewrite_forms)
    steps: list[tuple[Mapping[str, Rule], Mapping[str, Check]]] = [
        ({**given.RULES, **given_shapes.RULES, **data_dependent.RULES, **many_operands.RULES}, {}),
        ({**composed.RULES, **_BEFORE}, {}), (narrow.RULES, {}), (_RULES, _CHECKS), (_AFTER, {}),
    ]
    changed, facts = False, None
    for rules, checks in steps:
        facts = facts or ModelFacts.of(model)
        if _apply(facts, rules, checks):
            changed, facts = True, None
    return within or changed


def _apply(facts: ModelFacts, rules: Mapping[str, Rule], checks: Mapping[str, Check]) -> bool:
    model = facts.model
    nodes: list[onnx.NodeProto] = []
    changed = False
    for node in model.proto.graph.node:
        known = node.domain in _DOMAINS
        check, rule = (each.get(node.op_type) if known else None for each in (checks, rules))
        check_axes(node, facts)
        try:
            if check is not None:
                check(node, facts)
            made = rule(node, facts) if rule is not None else None
        except UNREADABLE as error:
            raise model.error(
                f"{label(node)}: operator {node.op_type} cannot be read: {type(error).__name__}: {error}; expected "
                "operands and attributes that ONNX allows (onnx.checker)"
            ) from error
        nodes += [node] if made is None else made
        changed |= made is not None
    if changed:
        replace_nodes(model, nodes)
        infer_shapes(model)
    return changed


def _check_response_norm(node: onnx.NodeProto, facts: ModelFacts) -> None:
    """Raises CompileError for dynamic extents: the wheel would make two unknown extents in one reshape."""
    if attribute(node, "size", 1) % 2 and None in (facts.extents(node.input[0]) or []):
        raise refused(node, facts, "over extents that only a call knows", "known ones")


def _check_split(node: onnx.NodeProto, facts: ModelFacts) -> None:
    """Raises CompileError for constant parts that are not a part for each result, or do not add up to the extent."""
    parts = facts.model.constants.get(node.input[1]) if len(node.input) > 1 else attribute(node, "split", None)
    if parts is None:
        return
    parts, extents = np.asarray(parts), facts.extents(node.input[0])
    whole = extents[attribute(node, "axis", 0)] if extents else None
    if parts.shape != (len(node.output),) or parts.min(initial=0) < 0:
        expected = f"a number from 0 for each of {len(node.output)} results"
    elif whole is not None and sum(parts.tolist()) != whole:
        expected = f"numbers that add up to {whole}, the extent"
    else:
        return
    raise facts.model.error(f"{label(node)}: operator Split: its parts are {parts.tolist()}; expected {expected}")


def _check_gather_nd(node: onnx.NodeProto, facts: ModelFacts) -> None:
    """Raises CompileError for indices of no axis."""
    if (facts.extents(node.input[1]) or [1])[-1] == 0:
        raise facts.model.error(
            f"{label(node)}: operator GatherND: its indices have the extents {facts.extents(node.input[1])}; expected "
            "a last extent from 1"
        )


def _check_grams(node: onnx.NodeProto, facts: ModelFacts) -> None:
    """Raises CompileError for n-grams that begin outside the pool, or before shorter ones."""
    starts, pool = attribute(node, "ngram_counts", []), attribute(node, "pool_int64s", [])
    if list(starts) != sorted(starts) or any(not 0 <= start <= len(pool) for start in starts):
        raise facts.model.error(
            f"{label(node)}: operator TfIdfVectorizer: ngram_counts is {list(starts)}; expected ascending numbers "
            f"from 0 to {len(pool)}, the length of the pool"
        )


def _scatter_elements(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """ScatterElements with max or min, as ScatterND with an index for each element: of the flat tensor if its extents
    are known, else with a component for each axis."""
    reduction = attribute(node, "reduction", b"none")
    shape, data = facts.shapes.get(node.input[1]), facts.shapes.get(node.input[0])
    if reduction not in (b"max", b"min") or shape is None:
        return None
    w, axis = Numbers(node, facts), attribute(node, "axis", 0) % len(shape)
    if data is not None and 0 not in data and 0 not in shape:
        values = w.reshape(node.input[0], [-1]), w.over("Unsqueeze", _flat_places(w, data, shape, axis), [len(shape)])
        made = w.add("ScatterND", *values, node.input[2], reduction=reduction)
        return w.done([w.reshape(made, data)])
    places = w.cast(w.over("Unsqueeze", node.input[1], [len(shape)]), 7)
    own = [w.constant(place[..., None], "places") for place in np.indices(shape)]
    joined = w.add("Concat", *own[:axis], places, *own[axis + 1 :], axis=len(shape))
    return w.done([w.add("ScatterND", node.input[0], joined, node.input[2], reduction=reduction)])


def _flat_places(w: Numbers, data: Sequence[int], shape: Sequence[int], axis: int) -> str:
    """The place in the flat tensor that each element of ScatterElements addresses; those out of bounds address one past
    its end."""
    strides = [int(np.prod(data[d + 1 :], dtype=np.int64)) for d in range(len(data))]
    given, extent = w.cast(w.node.input[1], 7), w.of(data[axis])
    outside = w.add("Or", w.add("Less", given, w.of(-data[axis])), w.add("Not", w.add("Less", given, extent)))
    place = w.from_start(given, extent)
    place = w.add("Mul", place, w.of(strides[axis]))
    for d, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        if d != axis and length > 1:
            steps = np.arange(length, dtype=np.int64) * stride
            along = [-1 if other == d else 1 for other in range(len(shape))]
            place = w.add("Add", place, w.constant(steps.reshape(along), "steps"))
    return w.add("Where", outside, w.of(int(np.prod(data, dtype=np.int64))), place)


def _cum_sum(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """The exclusive sum: the inclusive sum of the elements shifted by one, with 0 as first element."""
    axis, rank = facts.model.constants.get(node.input[1]), facts.rank(node.input[0])
    if not attribute(node, "exclusive", 0) or axis is None or rank is None or node.input[0] not in facts.types:
        return None
    if facts.dtype(node.input[0]).kind in "iu":
        return None
    w, along, reverse = NodeWriter(node, facts), int(axis.item()) % rank, attribute(node, "reverse", 0)
    value = node.input[0]
    # Along a dynamic extent, a slice without the first element has no lowering; one without the last element has.
    turned = bool(reverse) and (facts.extents(value) or [None] * rank)[along] is None
    if turned:
        value, reverse = w.reverse(value, along), 0
    first = w.slice(value, along, 0, 1)  # empty if the axis is empty
    zeros = w.cast(w.add("Less", first, first), facts.types[node.input[0]])
    moved = w.slice(value, along, reverse, _LARGE if reverse else -1)
    moved = w.add("Concat", *((moved, zeros) if reverse else (zeros, moved)), axis=along)
    sums = w.add("CumSum", moved, node.input[1], reverse=reverse)
    return w.done([w.reverse(sums, along) if turned else sums])


def _last_extreme(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """The last place along a dynamic axis, which the wheel refuses: by the first one of the reversed operand."""
    extents, axis = facts.extents(node.input[0]), attribute(node, "axis", 0)
    if not attribute(node, "select_last_index", 0) or extents is None or extents[axis] is not None:
        return None
    w = NodeWriter(node, facts)
    turned = w.reverse(node.input[0], axis)
    place = w.add(node.op_type, turned, axis=axis, keepdims=attribute(node, "keepdims", 1))
    extent = w.extent(turned, axis)
    last = w.add("Sub", extent, w.constant(np.array(1), "one"))
    return w.done([w.add("Sub", last, place)])


def _affine_grid(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """The centres or corners of the grid's cells times the matrices; the wheel's lowering crashes."""
    size, kind = facts.model.constants.get(node.input[1]), facts.types.get(node.input[0])
    if size is None or kind is None:
        raise facts.model.error(
            f"node {node.name!r}: AffineGrid is supported for a size that is known when compiling; expected a constant"
        )
    aligned, spatial = attribute(node, "align_corners", 0), size[2:].tolist()
    axes = [np.linspace(-1, 1, n) if aligned and n > 1 else (2 * np.arange(n) + 1) / n - 1 for n in spatial]
    grid = np.meshgrid(*axes, indexing="ij")[::-1]
    points = np.stack([*grid, np.ones(spatial)], -1).reshape(-1, len(spatial) + 1)
    w = NodeWriter(node, facts)
    turned = w.add("Transpose", node.input[0], perm=[0, 2, 1])
    result = w.add("MatMul", w.constant(points.astype(facts.dtype(node.input[0])), "points"), turned)
    return w.done([w.reshape(result, [*size[:1].tolist(), *spatial, len(spatial)])])


def _slice(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    found = [facts.model.constants.get(name) for name in node.input[1:]]
    extents, known = facts.extents(node.input[0]), [a.astype(np.int64) for a in found if a is not None]
    if node.input[0] in facts.shapes:
        extents = list(facts.shapes[node.input[0]])
    if len(found) != 4 or len(known) != 4 or extents is None:
        return None
    starts, _, axes, steps = known
    if (reversed_ := _reversed(node, facts, extents, known)) is not None:
        return reversed_
    changed, short = starts.copy(), steps.copy()
    for number, (start, axis, step) in enumerate(zip(starts.tolist(), axes.tolist(), steps.tolist(), strict=True)):
        extent = extents[axis]
        longest = _LARGE if extent is None else max(extent, 1)  # longer steps end as soon
        short[number] = min(max(step, -longest), longest)
        if step < 0 and start >= _LARGE:
            changed[number] = -1
        elif step < 0 and extent is not None and start >= extent:
            changed[number] = extent - 1
        elif step < 0 and start > 0 and extent is None:
            raise refused(node, facts, f"from element {start} backwards, where there may be fewer", "a negative start")
    if (changed == starts).all() and (short == steps).all():
        return None
    sliced = copy(node)
    sliced.input[1] = facts.constant(node, "starts", changed.astype(facts.dtype(node.input[1])))
    sliced.input[4] = facts.constant(node, "steps", short.astype(facts.dtype(node.input[4])))
    return [sliced]


def _reversed(
    node: onnx.NodeProto, facts: ModelFacts, extents: Sequence[int | None], numbers: Sequence[np.ndarray]
) -> list[onnx.NodeProto] | None:
    """A reversal of whole axes, some of dynamic extent."""
    starts, ends, axes, steps = (array.tolist() for array in numbers)
    whole = all(start == -1 or start >= _LARGE for start in starts)
    if not whole or any(end > -_LARGE for end in ends) or any(step != -1 for step in steps):
        return None
    if all(extents[axis] is not None for axis in axes):
        return None
    w, value = NodeWriter(node, facts), node.input[0]
    for axis in axes:
        value = w.reverse(value, axis % len(extents))
    return w.done([value])


def _collected(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """A Loop or Scan that collects uint16 or uint64 as one that collects signed integers of the same width, with casts,
    which keep all bits. The torch-mlir wheel ends the process over slices of these types."""
    import onnx

    types = onnx.TensorProto
    signed: dict[int, int] = {types.UINT16: types.INT16, types.UINT64: types.INT64}
    made = copy(node)
    inner: onnx.GraphProto = attribute(made, "body", None)
    states = len(node.input) - (2 if node.op_type == "Loop" else attribute(node, "num_scan_inputs", 0))
    before = len(inner.output) - len(node.output)  # the condition of a Loop
    w = NodeWriter(node, facts)
    w.nodes.append(made)
    for number in range(states, len(node.output)):
        kind = facts.types.get(node.output[number], 0)
        if kind not in signed:
            continue
        slice_ = inner.output[before + number]
        name = f"{slice_.name}/signed"
        inner.node.append(onnx.helper.make_node("Cast", [slice_.name], [name], f"{node.name}/{name}", to=signed[kind]))
        slice_.name, slice_.type.tensor_type.elem_type = name, signed[kind]
        made.output[number] = f"{node.output[number]}/signed"
        w.nodes.append(onnx.helper.make_node(
            "Cast", [made.output[number]], [node.output[number]], f"{node.name}/{node.output[number]}", to=kind
        ))
    return w.nodes if len(w.nodes) > 1 else None


_CHECKS: dict[str, Callable[[onnx.NodeProto, ModelFacts], None]] = {
    **pools.CHECKS, **regions.CHECKS,
    "LRN": _check_response_norm,
    "Split": _check_split,
    "Resize": check_resize,
    "GatherND": _check_gather_nd,
    "TfIdfVectorizer": _check_grams,
}  # fmt: skip
_BEFORE: dict[str, Rule] = {  # whose operators other rules rewrite
    **reductions.BEFORE, "ArgMax": _last_extreme, "ArgMin": _last_extreme, "ScatterElements": _scatter_elements,
}
_AFTER: dict[str, Rule] = {"Loop": _collected, "Scan": _collected}
_RULES: dict[str, Rule] = {
    **activations.RULES, **control.RULES, **movement.RULES, **norms.RULES, **ordering.RULES,
    **pools.RULES, **products.RULES, **linear_quantisation.RULES, **quantised.RULES,
    **quantised_convolutions.RULES, **random.RULES, **recurrent.RULES, **reductions.RULES,
    "AffineGrid": _affine_grid, "CumSum": _cum_sum, "Slice": _slice,
}  # fmt: skip
