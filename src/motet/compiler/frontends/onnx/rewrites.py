"""Writes forms of ONNX operators whose own lowering is wrong with operators whose lowering is right.

- Slice from beyond the end backwards, which starts at another element, and whole axes of dynamic extent backwards.
- ScatterElements of largest and least ones.
- CumSum with exclusive=1, for which the wheel subtracts each element from the sum with it: digits cancel, and
  infinities become NaN.
- AffineGrid, and Compress by a constant.

What concerns activations, control flow, movement, narrow floats, normalisations, order, pools, products, quantisation,
recurrence, reductions and resampling is in files of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx import activations as onnx_activations
from motet.compiler.frontends.onnx import attention as onnx_attention
from motet.compiler.frontends.onnx import control as onnx_control
from motet.compiler.frontends.onnx import counted as onnx_counted
from motet.compiler.frontends.onnx import determinants as onnx_determinants
from motet.compiler.frontends.onnx import fourier as onnx_fourier
from motet.compiler.frontends.onnx import given as onnx_given
from motet.compiler.frontends.onnx import given_shapes as onnx_given_shapes
from motet.compiler.frontends.onnx import linear_quantisation as onnx_linear_quantisation
from motet.compiler.frontends.onnx import movement as onnx_movement
from motet.compiler.frontends.onnx import narrow as onnx_narrow
from motet.compiler.frontends.onnx import norms as onnx_norms
from motet.compiler.frontends.onnx import ordering as onnx_ordering
from motet.compiler.frontends.onnx import pools as onnx_pools
from motet.compiler.frontends.onnx import products as onnx_products
from motet.compiler.frontends.onnx import quantised as onnx_quantised
from motet.compiler.frontends.onnx import quantised_convolutions as onnx_quantised_convolutions
from motet.compiler.frontends.onnx import random as onnx_random
from motet.compiler.frontends.onnx import recurrent as onnx_recurrent
from motet.compiler.frontends.onnx import reductions as onnx_reductions
from motet.compiler.frontends.onnx import regions as onnx_regions
from motet.compiler.frontends.onnx import resize as onnx_resize
from motet.compiler.frontends.onnx import sampling as onnx_sampling
from motet.compiler.frontends.onnx import scans as onnx_scans
from motet.compiler.frontends.onnx import windows as onnx_windows
from motet.compiler.frontends.onnx.bodies import each_body
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.simplify import attribute, infer_shapes, ranks, static_shapes
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy, element_types, refused

if TYPE_CHECKING:
    import onnx

_DOMAINS = ("", "ai.onnx", "ai.onnx.preview")
_LARGE = (1 << 31) - 1  # stands for the end, whatever the extent


def rewrite_forms(model: OnnxModel) -> bool:
    """Rewrite the graph of `model`, whose types are inferred, and its bodies in place; whether anything changed."""
    within = each_body(model, rewrite_forms)
    given = _apply(model, {**onnx_given.RULES, **onnx_given_shapes.RULES, **onnx_counted.RULES}, {})
    composed = _apply(model, _COMPOSED, {})
    widened = _apply(model, onnx_narrow.RULES, {})
    rewritten = _apply(model, _RULES, _CHECKS)
    return within or given or composed or widened or rewritten


def _apply(
    model: OnnxModel, rules: Mapping[str, Rule], checks: Mapping[str, Callable[[onnx.NodeProto, ModelFacts], None]]
) -> bool:
    facts = ModelFacts(model, static_shapes(model), element_types(model), ranks(model))
    nodes: list[onnx.NodeProto] = []
    changed = False
    for node in model.proto.graph.node:
        known = node.domain in _DOMAINS
        if known and (check := checks.get(node.op_type)) is not None:
            check(node, facts)
        rule = rules.get(node.op_type) if known else None
        made = rule(node, facts) if rule is not None else None
        nodes += [node] if made is None else made
        changed |= made is not None
    if changed:
        copies = [copy(node) for node in nodes]
        del model.proto.graph.node[:]
        model.proto.graph.node.extend(copies)
        infer_shapes(model)
    return changed


def _check_arg_extreme(node: onnx.NodeProto, facts: ModelFacts) -> None:
    """Raise CompileError where the last one of equals is asked for along an axis whose extent only a call knows."""
    extents = facts.extents(node.input[0])
    if attribute(node, "select_last_index", 0) and extents is not None and extents[attribute(node, "axis", 0)] is None:
        raise refused(node, facts, "with select_last_index over an extent that only a call knows", "a known one")


def _check_response_norm(node: onnx.NodeProto, facts: ModelFacts) -> None:
    """Raise CompileError where an extent is unknown: the wheel takes two of its reshape's for unknown then."""
    if attribute(node, "size", 1) % 2 and None in (facts.extents(node.input[0]) or []):
        raise refused(node, facts, "over extents that only a call knows", "known ones")


def _compress(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    condition, axis = facts.model.constants.get(node.input[1]), attribute(node, "axis", None)
    if condition is None:
        return None
    w = NodeWriter(node, facts)
    value = node.input[0] if axis is not None else w.reshape(node.input[0], [-1])
    places = w.constant(np.flatnonzero(condition), "places")
    return w.done([w.add("Gather", value, places, axis=axis or 0)])


def _scatter_elements(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Largest and least ones: ScatterND, which has a place for each element."""
    if attribute(node, "reduction", b"none") not in (b"max", b"min"):
        return None
    if (signed := onnx_ordering.RULES["ScatterElements"](node, facts)) is not None:
        return signed
    shape = facts.shapes.get(node.input[1])
    if shape is None:
        return None
    w, axis = NodeWriter(node, facts), attribute(node, "axis", 0) % len(shape)
    places = w.cast(w.over("Unsqueeze", node.input[1], [len(shape)]), 7)
    own = [w.constant(place[..., None], "places") for place in np.indices(shape)]
    joined = w.add("Concat", *own[:axis], places, *own[axis + 1 :], axis=len(shape))
    reduction = attribute(node, "reduction", b"")
    return w.done([w.add("ScatterND", node.input[0], joined, node.input[2], reduction=reduction)])


def _cum_sum(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Sums of the elements before: those of the elements, moved by one place, of which the first is 0."""
    axis, rank = facts.model.constants.get(node.input[1]), facts.rank(node.input[0])
    if not attribute(node, "exclusive", 0) or axis is None or rank is None or node.input[0] not in facts.types:
        return None
    if facts.dtype(node.input[0]).kind in "iu":
        return None
    w, along, reverse = NodeWriter(node, facts), int(axis.item()) % rank, attribute(node, "reverse", 0)
    value = node.input[0]
    # Of a dynamic extent, all but the first elements have no lowering, all but the last ones do.
    turned = bool(reverse) and (facts.extents(value) or [None] * rank)[along] is None
    if turned:
        value, reverse = w.reverse(value, along), 0
    first = w.slice(value, along, 0, 1)  # has no elements where there are none along the axis
    zeros = w.cast(w.add("Less", first, first), facts.types[node.input[0]])
    moved = w.slice(value, along, reverse, _LARGE if reverse else -1)
    moved = w.add("Concat", *((moved, zeros) if reverse else (zeros, moved)), axis=along)
    sums = w.add("CumSum", moved, node.input[1], reverse=reverse)
    return w.done([w.reverse(sums, along) if turned else sums])


def _affine_grid(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """The middles of the grid's cells, or its corners, times the matrices; the wheel's lowering ends the process."""
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
    changed = starts.copy()
    for number, (start, axis, step) in enumerate(zip(starts.tolist(), axes.tolist(), steps.tolist(), strict=True)):
        extent = extents[axis]
        if step < 0 and start >= _LARGE:
            changed[number] = -1
        elif step < 0 and extent is not None and start >= extent:
            changed[number] = extent - 1
        elif step < 0 and start > 0 and extent is None:
            raise refused(node, facts, f"from element {start} backwards, where there may be fewer", "a negative start")
    if (changed == starts).all():
        return None
    sliced = copy(node)
    sliced.input[1] = facts.constant(node, "starts", changed.astype(facts.dtype(node.input[1])))
    return [sliced]


def _reversed(
    node: onnx.NodeProto, facts: ModelFacts, extents: Sequence[int | None], numbers: Sequence[np.ndarray]
) -> list[onnx.NodeProto] | None:
    """Whole axes, some of dynamic extent, from behind."""
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


_CHECKS: dict[str, Callable[[onnx.NodeProto, ModelFacts], None]] = {
    **onnx_pools.CHECKS,
    "ArgMax": _check_arg_extreme, "ArgMin": _check_arg_extreme, "LRN": _check_response_norm,
}  # fmt: skip
# Operators that are written with operators which have rules themselves, and so come before those.
_COMPOSED: dict[str, Rule] = {
    **onnx_attention.RULES, **onnx_determinants.RULES, **onnx_fourier.RULES, **onnx_regions.RULES, **onnx_scans.RULES,
    **onnx_windows.RULES,
}  # fmt: skip
_RULES: dict[str, Rule] = {
    **onnx_activations.RULES, **onnx_control.RULES, **onnx_movement.RULES, **onnx_norms.RULES, **onnx_ordering.RULES,
    **onnx_pools.RULES, **onnx_products.RULES, **onnx_linear_quantisation.RULES, **onnx_quantised.RULES,
    **onnx_quantised_convolutions.RULES, **onnx_random.RULES, **onnx_recurrent.RULES, **onnx_reductions.RULES,
    **onnx_resize.RULES, **onnx_sampling.RULES,
    "AffineGrid": _affine_grid, "Compress": _compress, "CumSum": _cum_sum, "ScatterElements": _scatter_elements,
    "Slice": _slice,
}  # fmt: skip
