"""Writes forms of Resize that the torch-mlir wheel lacks or lowers wrongly as sums of weighted neighbours.

Axis by axis, each element of the result is a sum over few elements of the input, whose indices and weights follow from
the extents alone:

    y[…, o, …] = Σₖ x[…, place[k, o], …] · weight[k, o]

Indices and weights follow ONNX's specification of Resize (operator set 19); the footprint of antialiased filters, which
it leaves open, follows onnx's reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.resize_filter import Filter, ResizedAxis
from motet.compiler.frontends.onnx.resize_given import calculated_type, narrowed, resized_in_call
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy
from motet.errors import CompileError

if TYPE_CHECKING:
    import onnx

_OWN = ("half_pixel", "asymmetric")  # modes that the wheel lowers correctly for every size and scale
_KNOWN = (
    "is supported where the extents of its operand and of its result are known; give its sizes or scales as constants, "
    "or leave out antialias, keep_aspect_ratio_policy and a region"
)
_OWN_BY_SIZES = ("align_corners", "pytorch_half_pixel")


def _resize(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    legacy = node.op_type == "Upsample" or facts.version < 11
    given = [*node.input, "", "", ""]
    scales, sizes = (given[1], "") if legacy else (given[2], given[3])
    transform = "asymmetric" if legacy else attribute(node, "coordinate_transformation_mode", b"half_pixel").decode()
    said = Filter(
        transform, attribute(node, "mode", b"nearest").decode(),
        "floor" if legacy else attribute(node, "nearest_mode", b"round_prefer_floor").decode(),
        attribute(node, "cubic_coeff_a", -0.75), bool(attribute(node, "antialias", 0)),
        bool(attribute(node, "exclude_outside", 0)),
    )  # fmt: skip
    if legacy != (node.op_type == "Upsample" and said.mode == "linear"):
        return None
    if not legacy and _is_known(node, facts, said, by_sizes=bool(sizes)):
        return None
    if (whole := _by_all_sizes(node, facts, said, sizes)) is not None:
        return whole
    axes = _axes(node, facts, scales, "" if legacy else given[1], sizes)
    if axes is None and node.input[0] in facts.types and (made := resized_in_call(node, facts, said)) is not None:
        return made
    if axes is None and (made := _by_half_pixel(node, facts, said, sizes)) is not None:
        return made
    if axes is None and node.input[0] in facts.types:
        made = resized_in_call(node, facts, said, dynamic=True)
        if made is not None:
            return made
    if axes is None:
        raise _refusal(node, facts, said, _KNOWN)
    return _written(NodeWriter(node, facts), axes, said)


def _by_all_sizes(
    node: onnx.NodeProto, facts: ModelFacts, said: Filter, sizes: str
) -> list[onnx.NodeProto] | None:
    """A Resize of an image with the sizes of all axes, for one with those of both spatial `axes`; None for others, and
    where the wheel would not lower the result."""
    if not sizes or list(attribute(node, "axes", [])) not in ([2, 3], [-2, -1]) or facts.rank(node.input[0]) != 4:
        return None
    plain = copy(node)
    del plain.attribute[:]
    plain.attribute.extend(item for item in node.attribute if item.name != "axes")
    if not _is_known(plain, facts, said, by_sizes=True):
        return None
    w = NodeWriter(node, facts)
    kept = w.slice(w.add("Shape", node.input[0]), 0, 0, 2)
    plain.input[3] = w.add("Concat", kept, sizes, axis=0)
    return [*w.nodes, plain]


def _by_half_pixel(
    node: onnx.NodeProto, facts: ModelFacts, said: Filter, sizes: str
) -> list[onnx.NodeProto] | None:
    """A linear Resize with pytorch_half_pixel by sizes, as one with half_pixel; None for others.

    They differ along axes whose result has one element, which is the first of the input: its other elements are removed
    before. An axis of n elements and s of the result keeps `min(n, 1 + (s - 1) * n)`.
    """
    rank = facts.rank(node.input[0])
    if said.transform != "pytorch_half_pixel" or said.mode != "linear" or not sizes or rank is None:
        return None
    half, plain = replace(said, transform="half_pixel"), copy(node)
    for item in plain.attribute:
        if item.name == "coordinate_transformation_mode":
            item.s = half.transform.encode()
    known = _is_known(plain, facts, half, by_sizes=True)
    made = [plain] if known else _by_all_sizes(plain, facts, half, sizes)
    if made is None:
        return None
    w = NodeWriter(node, facts)
    one = w.constant(np.array([1], np.int64), "one")
    named = w.constant(np.array(attribute(node, "axes", list(range(rank))), np.int64), "axes")
    extents = w.add("Gather", w.add("Shape", node.input[0]), named, axis=0)
    rest = w.add("Mul", w.add("Sub", sizes, one), extents)
    kept = w.add("Min", extents, w.add("Add", rest, one))
    made[-1].input[0] = w.add("Slice", node.input[0], w.add("Sub", named, named), kept, named)
    return [*w.nodes, *made]


def _refusal(node: onnx.NodeProto, facts: ModelFacts, said: Filter, what: str) -> CompileError:
    return facts.model.error(f"node {node.name!r}: {node.op_type} with mode {said.mode} and {said.transform} {what}")


def _is_known(node: onnx.NodeProto, facts: ModelFacts, said: Filter, *, by_sizes: bool) -> bool:
    """Whether the wheel lowers the form correctly."""
    import onnx

    plain = not (said.antialias or said.exclude or attribute(node, "axes", None))
    wide = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    if said.mode != "nearest" and facts.types.get(node.input[0]) not in wide:
        return False
    if attribute(node, "keep_aspect_ratio_policy", b"stretch") != b"stretch":
        return False
    if facts.rank(node.input[0]) != 4 or not plain or (said.mode == "cubic" and said.cubic != -0.75):
        return False
    if said.transform in _OWN:
        return True
    shape, result = facts.shapes.get(node.input[0]), facts.shapes.get(node.output[0])
    if said.mode == "nearest" or not by_sizes or shape is None or result is None:
        return False
    shrinks = any(one == 1 != many for one, many in zip(result, shape, strict=True))
    return said.transform in _OWN_BY_SIZES and not shrinks


def _axes(node: onnx.NodeProto, facts: ModelFacts, scales: str, roi: str, sizes: str) -> list[ResizedAxis] | None:
    """The axes that change; None if unknown."""
    before, after = facts.extents(node.input[0]), facts.extents(node.output[0])
    if before is None or after is None:
        return None
    rank = len(before)
    named = [axis % rank for axis in attribute(node, "axes", list(range(rank)))]
    factors, parts = facts.model.constants.get(scales), facts.model.constants.get(roi)
    cropped = attribute(node, "coordinate_transformation_mode", b"") == b"tf_crop_and_resize"
    if (scales and factors is None) or (cropped and parts is None):
        return None
    ratio = _kept_ratio(node, facts, sizes, [before[axis] for axis in named])
    if ratio is not None and ratio < 0:
        return None
    found: list[ResizedAxis] = []
    for number, axis in enumerate(named):
        size, count = before[axis], after[axis]
        factor = ratio if factors is None else float(factors[number])
        ends = (0.0, 1.0)
        if cropped and parts is not None:
            ends = float(parts[number]), float(parts[number + len(named)])
        if factor == 1 or (factor is None and size is None and count is None and axis < 2):
            continue  # an unchanged axis, such as the batch
        if not size or not count:
            return None
        if size != count or (factor or 1) != 1 or ends != (0.0, 1.0):
            found.append(ResizedAxis(axis, size, count, factor or count / size, ends))
    return found


def _kept_ratio(node: onnx.NodeProto, facts: ModelFacts, sizes: str, before: Sequence[int | None]) -> float | None:
    """The common scale of all axes; negative if it is unknown."""
    policy, array = attribute(node, "keep_aspect_ratio_policy", b"stretch"), facts.model.constants.get(sizes)
    if policy == b"stretch" or not sizes:
        return None
    if array is None or not all(before):
        return -1.0
    ratios = [int(size) / extent for size, extent in zip(array, before, strict=True) if extent]
    return min(ratios) if policy == b"not_larger" else max(ratios)


def _written(w: NodeWriter, axes: Sequence[ResizedAxis], said: Filter) -> list[onnx.NodeProto]:
    import onnx

    node, facts = w.node, w.facts
    value, rank = node.input[0], facts.rank(node.input[0]) or 0
    wide = facts.types[value] if said.mode == "nearest" else calculated_type(facts, value)
    kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(wide))
    cast = wide != facts.types[value]
    value = w.cast(value, wide) if cast else value
    outside = np.zeros([1] * rank, bool)
    for one in axes:
        shape = [1] * rank
        shape[one.axis] = one.count
        weights = said.matrix(one)
        if said.transform == "tf_crop_and_resize":
            at = said.positions(one)
            beyond = (at < 0) | (at > one.size - 1)
            outside = outside | beyond.reshape(shape)
        if said.mode == "nearest":
            value = w.add("Gather", value, w.constant(weights.argmax(1), "places"), axis=one.axis)
            continue
        terms = [
            w.add("Mul", w.add("Gather", value, w.constant(places, "places"), axis=one.axis),
                  w.constant(factors.reshape(shape).astype(kind), "weights"))
            for places, factors in _terms(weights)
        ]  # fmt: skip
        value = terms[0]
        for term in terms[1:]:
            value = w.add("Add", value, term)
    if outside.any():
        extrapolated = w.constant(np.array(attribute(node, "extrapolation_value", 0.0), kind), "extrapolated")
        value = w.add("Where", w.constant(outside, "outside"), extrapolated, value)
    return w.done([narrowed(w, value, wide) if cast else value])


def _terms(weights: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The indices and weights of each row's first weighted element, of the second, and so on."""
    count = int((weights != 0).sum(1).max())
    places = np.argsort(weights == 0, axis=1, kind="stable")[:, :count]
    return [(places[:, k].copy(), np.take_along_axis(weights, places[:, k : k + 1], 1)[:, 0]) for k in range(count)]


RULES: dict[str, Rule] = {"Resize": _resize, "Upsample": _resize}
