"""Writes forms of ONNX operators whose own lowering is wrong with operators whose lowering is right.

- AveragePool with ceil_mode: the wheel divides by a wrong number where a window reaches beyond the padding. LpPool
  knows neither auto_pad nor dilations. Both become an average of whole windows over an image padded by zeros, times how
  many elements count.
- MaxPool of padded floats: the wheel pads by the least finite number, which is larger than the infinity that it should
  lose against.
- ReduceL2 of float64, which goes through float32.
- Slice from beyond the end backwards, which starts at another element, and whole axes of dynamic extent backwards.
- Hardmax before operator set 13, ReduceMean of integers, ScatterElements of largest and least ones.
- CumSum with exclusive=1, for which the wheel subtracts each element from the sum with it: digits cancel, and
  infinities become NaN.
- AffineGrid, Compress by a constant, and Sign of NaN.

What concerns control flow, movement, narrow floats, normalisations, order, products, quantisation, recurrence and
resampling is in files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends import (
    onnx_composed,
    onnx_control,
    onnx_counted,
    onnx_given,
    onnx_given_shapes,
    onnx_linear_quantisation,
    onnx_movement,
    onnx_narrow,
    onnx_norms,
    onnx_ordering,
    onnx_products,
    onnx_quantised,
    onnx_quantised_convolutions,
    onnx_random,
    onnx_recurrent,
    onnx_reductions,
    onnx_resize,
    onnx_sampling,
)
from motet.compiler.frontends.onnx_bodies import each_body
from motet.compiler.frontends.onnx_model import OnnxModel
from motet.compiler.frontends.onnx_simplify import attribute, infer_shapes, ranks, static_shapes
from motet.compiler.frontends.onnx_writing import Chain, Facts, Rule, Writer, copy, element_types
from motet.errors import CompileError

if TYPE_CHECKING:
    import onnx

_DOMAINS = ("", "ai.onnx", "ai.onnx.preview")
_LARGE = (1 << 31) - 1  # stands for the end, whatever the extent


def rewrite_forms(model: OnnxModel) -> bool:
    """Rewrite the graph of `model`, whose types are inferred, and its bodies in place; whether anything changed."""
    within = each_body(model, rewrite_forms)
    given = _apply(model, {**onnx_given.RULES, **onnx_given_shapes.RULES, **onnx_counted.RULES}, {})
    composed = _apply(model, onnx_composed.RULES, {})
    widened = _apply(model, onnx_narrow.RULES, {})
    rewritten = _apply(model, _RULES, _CHECKS)
    return within or given or composed or widened or rewritten


def _apply(
    model: OnnxModel, rules: Mapping[str, Rule], checks: Mapping[str, Callable[[onnx.NodeProto, Facts], None]]
) -> bool:
    facts = Facts(model, static_shapes(model), element_types(model), ranks(model))
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


# -- pools -----------------------------------------------------------------------------------------


@dataclass
class _Windows:
    """Windows of a pool over spatial axes of known extents: what is padded before and after each, whole windows
    included, and by place how many elements of the image and its padding each window has."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]
    counts: np.ndarray


def _windows(node: onnx.NodeProto, sizes: Sequence[int], padded: bool = True) -> _Windows:
    """As the specification of AveragePool has them (operator set 19); padding counts where it is `padded`."""
    kernel = list(attribute(node, "kernel_shape", []))
    rank = len(kernel)
    strides, dilations = (list(attribute(node, name, [1] * rank)) for name in ("strides", "dilations"))
    pads = list(attribute(node, "pads", [0] * 2 * rank))
    auto = attribute(node, "auto_pad", b"NOTSET")
    ceil = bool(attribute(node, "ceil_mode", 0))
    before: list[int] = []
    after: list[int] = []
    counts = np.ones((), np.int64)
    for axis, size in enumerate(sizes):
        reach, stride = (kernel[axis] - 1) * dilations[axis] + 1, strides[axis]
        low, high = pads[axis], pads[axis + rank]
        if auto in (b"SAME_UPPER", b"SAME_LOWER"):
            total = max(0, (-(-size // stride) - 1) * stride + reach - size)
            low, high = total // 2, total - total // 2
            if auto == b"SAME_LOWER":
                low, high = high, low
        elif auto == b"VALID":
            low = high = 0
        free = size + low + high - reach
        outputs = (-(-free // stride) if ceil else free // stride) + 1
        if ceil and (outputs - 1) * stride >= size + low:
            outputs -= 1
        taps = np.arange(outputs)[:, None] * stride + np.arange(kernel[axis]) * dilations[axis]
        counted = taps < size + low + high if padded else (taps >= low) & (taps < size + low)
        counts = np.multiply.outer(counts, counted.sum(1))
        before.append(low)
        after.append(max(high, (outputs - 1) * stride + reach - size - low))
    return _Windows(kernel, strides, dilations, before, after, counts)


def _spatial(node: onnx.NodeProto, facts: Facts) -> Sequence[int] | None:
    """The extents of an image behind batch and channels, where they are known."""
    extents = facts.extents(node.input[0])
    known = [extent for extent in (extents or [])[2:] if extent is not None]
    return None if extents is None or len(known) != len(extents[2:]) or node.input[0] not in facts.types else known


def _check_pool(node: onnx.NodeProto, facts: Facts) -> None:
    """Raise CompileError for windows that depend on extents only a call knows, which the wheel gets wrong."""
    if _spatial(node, facts) is not None or facts.extents(node.input[0]) is None:
        return
    if attribute(node, "auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        raise _refused(node, facts, "with auto_pad over extents that only a call knows", "pads")
    if node.op_type != "AveragePool" or not attribute(node, "count_include_pad", 0):
        return
    if attribute(node, "ceil_mode", 0) or set(attribute(node, "dilations", [1])) != {1}:
        what = "with count_include_pad and ceil_mode or dilations over extents that only a call knows"
        raise _refused(node, facts, what, "one of them, or known extents")


def _check_arg_extreme(node: onnx.NodeProto, facts: Facts) -> None:
    """Raise CompileError where the last one of equals is asked for along an axis whose extent only a call knows."""
    extents = facts.extents(node.input[0])
    if attribute(node, "select_last_index", 0) and extents is not None and extents[attribute(node, "axis", 0)] is None:
        raise _refused(node, facts, "with select_last_index over an extent that only a call knows", "a known one")


def _check_response_norm(node: onnx.NodeProto, facts: Facts) -> None:
    """Raise CompileError where an extent is unknown: the wheel takes two of its reshape's for unknown then."""
    if attribute(node, "size", 1) % 2 and None in (facts.extents(node.input[0]) or []):
        raise _refused(node, facts, "over extents that only a call knows", "known ones")


def _refused(node: onnx.NodeProto, facts: Facts, what: str, expected: str) -> CompileError:
    return facts.model.error(f"node {node.name!r}: {node.op_type} {what} is not supported; expected {expected}")


def _average(chain: Chain, facts: Facts, windows: _Windows) -> None:
    """The mean of every window over the image padded by zeros."""
    pads = np.array([0, 0, *windows.before, 0, 0, *windows.after], np.int64)
    if pads.any():
        chain.then("Pad", facts.constant(chain.node, "pads", pads))
    more = {"dilations": windows.dilations} if any(d != 1 for d in windows.dilations) else {}
    chain.then("AveragePool", kernel_shape=windows.kernel, strides=windows.strides, **more)


def _average_pool(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    """Where the wheel counts wrongly: windows at the last end, and those with gaps over padding that counts."""
    sizes, padded = _spatial(node, facts), bool(attribute(node, "count_include_pad", 0))
    gaps = set(attribute(node, "dilations", [1])) != {1}
    if not (attribute(node, "ceil_mode", 0) or (gaps and padded)) or sizes is None:
        return None
    windows = _windows(node, sizes, padded)
    chain, whole = Chain(node), math.prod(windows.kernel)
    _average(chain, facts, windows)
    if (windows.counts != whole).any():
        with np.errstate(divide="ignore"):  # the mean of nothing is NaN: 0 times an infinity
            factors = (whole / windows.counts).astype(facts.dtype(node.input[0]))
        chain.then("Mul", facts.constant(node, "factors", factors))
    return chain.done()


def _max_pool(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    sizes, kind = _spatial(node, facts), facts.types.get(node.input[0])
    if kind is None or len([name for name in node.output if name]) > 1:
        return None
    if facts.dtype(node.input[0]).kind in "iu":
        unsigned, rank = facts.dtype(node.input[0]).kind == "u", facts.rank(node.input[0])
        return _max_pool_of_integers(node, kind) if rank == 5 or (unsigned and rank == 3) else None
    if sizes is not None:
        windows = _windows(node, sizes)
        before, after = windows.before, windows.after
    elif attribute(node, "ceil_mode", 0) or attribute(node, "auto_pad", b"NOTSET") != b"NOTSET":
        return None
    else:
        pads = list(attribute(node, "pads", []))
        before, after = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    if not any((*before, *after)) or facts.version < 11:
        return None
    pads = np.array([0, 0, *before, 0, 0, *after], np.int64)
    least = np.array(-np.inf, facts.dtype(node.input[0]))
    chain = Chain(node).then("Pad", facts.constant(node, "pads", pads), facts.constant(node, "least", least))
    chain.then("MaxPool")
    kept = ("kernel_shape", "strides", "dilations")
    chain.nodes[-1].attribute.extend(item for item in node.attribute if item.name in kept)
    return chain.done()


def _max_pool_of_integers(node: onnx.NodeProto, kind: int) -> list[onnx.NodeProto]:
    """Of 8-bit integers, in float32, which has them all: the wheel ends the process for volumes, and compares rows of
    unsigned ones as signed ones."""
    import onnx

    chain = Chain(node).then("Cast", to=onnx.TensorProto.FLOAT).then("MaxPool")
    chain.nodes[-1].attribute.extend(node.attribute)
    return chain.then("Cast", to=kind).done()


def _lp_pool(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    sizes = _spatial(node, facts)
    explicit = attribute(node, "auto_pad", b"NOTSET") == b"NOTSET"
    if sizes is None or (explicit and set(attribute(node, "dilations", [1])) == {1}):
        return None
    windows, power, kind = _windows(node, sizes), attribute(node, "p", 2), facts.dtype(node.input[0])
    chain = Chain(node).then("Abs")
    if power != 1:
        chain.then("Pow", facts.constant(node, "power", np.array(power, kind)))
    _average(chain, facts, windows)
    chain.then("Mul", facts.constant(node, "count", np.array(math.prod(windows.kernel), kind)))
    if power != 1:
        chain.then("Pow", facts.constant(node, "root", np.array(1 / power, kind)))
    return chain.done()


# -- others ----------------------------------------------------------------------------------------


def _reduce_l1(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    """Of unsigned integers their sum: the wheel takes their absolute values as those of signed ones."""
    if node.input[0] not in facts.types or facts.dtype(node.input[0]).kind != "u":
        return None
    axes = list(node.input[1:])
    given = attribute(node, "axes", None)
    moved = given is not None and facts.version >= 13  # from which on ReduceSum has them as an input
    if moved:
        axes = [facts.constant(node, "axes", np.array(given, np.int64))]
    chain = Chain(node).then("ReduceSum", *axes)
    chain.nodes[0].attribute.extend(item for item in node.attribute if item.name != "axes" or not moved)
    return chain.done()


def _reduce_l2(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    import onnx

    if facts.types.get(node.input[0]) != onnx.TensorProto.DOUBLE:
        return None
    chain = Chain(node).then("ReduceSumSquare", *node.input[1:])
    chain.nodes[0].attribute.extend(node.attribute)
    return chain.then("Sqrt").done()


def _reduce_mean(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    """Of integers: their sum, divided."""
    shape, result = facts.shapes.get(node.input[0]), facts.shapes.get(node.output[0])
    if shape is None or result is None or node.input[0] not in facts.types or 0 in (*shape, *result):
        return None
    if facts.dtype(node.input[0]).kind not in "iu":
        return None
    count = np.array(math.prod(shape) // math.prod(result), facts.dtype(node.input[0]))
    chain = Chain(node).then("ReduceSum", *node.input[1:])
    chain.nodes[0].attribute.extend(node.attribute)
    return chain.then("Div", facts.constant(node, "count", count)).done()


def _compress(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    condition, axis = facts.model.constants.get(node.input[1]), attribute(node, "axis", None)
    if condition is None:
        return None
    w = Writer(node, facts)
    value = node.input[0] if axis is not None else w.reshape(node.input[0], [-1])
    places = w.constant(np.flatnonzero(condition), "places")
    return w.done([w.add("Gather", value, places, axis=axis or 0)])


def _scatter_elements(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    """Largest and least ones: ScatterND, which has a place for each element."""
    if attribute(node, "reduction", b"none") not in (b"max", b"min"):
        return None
    if (signed := onnx_ordering.RULES["ScatterElements"](node, facts)) is not None:
        return signed
    shape = facts.shapes.get(node.input[1])
    if shape is None:
        return None
    w, axis = Writer(node, facts), attribute(node, "axis", 0) % len(shape)
    places = w.cast(w.over("Unsqueeze", node.input[1], [len(shape)]), 7)
    own = [w.constant(place[..., None], "places") for place in np.indices(shape)]
    joined = w.add("Concat", *own[:axis], places, *own[axis + 1 :], axis=len(shape))
    reduction = attribute(node, "reduction", b"")
    return w.done([w.add("ScatterND", node.input[0], joined, node.input[2], reduction=reduction)])


def _cum_sum(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    """Sums of the elements before: those of the elements, moved by one place, of which the first is 0."""
    axis, rank = facts.model.constants.get(node.input[1]), facts.rank(node.input[0])
    if not attribute(node, "exclusive", 0) or axis is None or rank is None or node.input[0] not in facts.types:
        return None
    if facts.dtype(node.input[0]).kind in "iu":
        return None
    w, along, reverse = Writer(node, facts), int(axis.item()) % rank, attribute(node, "reverse", 0)
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


def _affine_grid(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
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
    w = Writer(node, facts)
    turned = w.add("Transpose", node.input[0], perm=[0, 2, 1])
    result = w.add("MatMul", w.constant(points.astype(facts.dtype(node.input[0])), "points"), turned)
    return w.done([w.reshape(result, [*size[:1].tolist(), *spatial, len(spatial)])])


def _sign(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    """NaN stays, where the wheel has 0."""
    if facts.version < 13 or node.input[0] not in facts.types or facts.dtype(node.input[0]).kind in "iu":
        return None
    w = Writer(node, facts)
    value = node.input[0]
    return w.done([w.add("Where", w.add("IsNaN", value), value, w.add("Sign", value))])


def _hardmax(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    """Before operator set 13 it is over all axes from `axis` on together."""
    axis, rank = attribute(node, "axis", 1), facts.rank(node.input[0])
    if facts.version >= 13 or rank is None or axis % rank == rank - 1:
        return None
    w = Writer(node, facts)
    flat = w.add("Flatten", node.input[0], axis=axis % rank)
    return w.done([w.like(w.add("Hardmax", flat, axis=1), node.input[0])])


def _slice(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
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
            raise _refused(node, facts, f"from element {start} backwards, where there may be fewer", "a negative start")
    if (changed == starts).all():
        return None
    sliced = copy(node)
    sliced.input[1] = facts.constant(node, "starts", changed.astype(facts.dtype(node.input[1])))
    return [sliced]


def _reversed(
    node: onnx.NodeProto, facts: Facts, extents: Sequence[int | None], numbers: Sequence[np.ndarray]
) -> list[onnx.NodeProto] | None:
    """Whole axes, some of dynamic extent, from behind."""
    starts, ends, axes, steps = (array.tolist() for array in numbers)
    whole = all(start == -1 or start >= _LARGE for start in starts)
    if not whole or any(end > -_LARGE for end in ends) or any(step != -1 for step in steps):
        return None
    if all(extents[axis] is not None for axis in axes):
        return None
    w, value = Writer(node, facts), node.input[0]
    for axis in axes:
        value = w.reverse(value, axis % len(extents))
    return w.done([value])


def _selu(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    """Before operator set 18, from which on it is defined by others: the wheel rounds its factors to five digits."""
    import onnx

    wide = facts.types.get(node.input[0]) in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    if facts.version >= 18 or not wide:
        return None
    w = Writer(node, facts)
    gamma = attribute(node, "gamma", 1.05070102214813232421875)
    bent = w.add("Elu", node.input[0], alpha=attribute(node, "alpha", 1.67326319217681884765625))
    return w.done([w.add("Mul", bent, w.constant(np.array(gamma, facts.dtype(node.input[0])), "gamma"))])


_CHECKS: dict[str, Callable[[onnx.NodeProto, Facts], None]] = {
    "ArgMax": _check_arg_extreme, "ArgMin": _check_arg_extreme, "LRN": _check_response_norm,
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _check_pool),
}  # fmt: skip
_RULES: dict[str, Rule] = {
    **onnx_control.RULES, **onnx_movement.RULES, **onnx_norms.RULES, **onnx_ordering.RULES, **onnx_products.RULES,
    **onnx_linear_quantisation.RULES, **onnx_quantised.RULES, **onnx_quantised_convolutions.RULES, **onnx_random.RULES,
    **onnx_recurrent.RULES, **onnx_reductions.RULES, **onnx_resize.RULES, **onnx_sampling.RULES,
    "AffineGrid": _affine_grid, "AveragePool": _average_pool, "Compress": _compress, "CumSum": _cum_sum,
    "Hardmax": _hardmax, "LpPool": _lp_pool, "MaxPool": _max_pool,
    "ReduceL1": _reduce_l1, "ReduceL2": _reduce_l2, "ReduceMean": _reduce_mean,
    "ScatterElements": _scatter_elements, "Sign": _sign, "Slice": _slice, "Selu": _selu,
}
