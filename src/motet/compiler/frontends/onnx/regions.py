"""Reads operators that sample images at computed places: GridSample, RoiAlign and DeformConv."""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.numbers import Numbers
from motet.compiler.frontends.onnx.operator_node import OperatorNode, Reader
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy, unsupported
from motet.compiler.ir._mlir import ir
from motet.compiler.operators.deformed import DeformedImage, DeformedWindows, deformed_convolution
from motet.compiler.operators.grid_sample import GridSampling, grid_sample
from motet.compiler.operators.regions import AlignedRegions, RegionOperands

if TYPE_CHECKING:
    import onnx

_MODES = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic", "cubic": "cubic"}
_HALF_PIXEL_SINCE = 16  # the operator set


def _sampled(node: OperatorNode) -> ir.Value:
    mode, padding = _MODES[node.text("mode", "linear")], node.text("padding_mode", "zeros")
    how = GridSampling(mode, padding, bool(node.integer("align_corners", 0)), settles_first=True)
    return grid_sample(node.tensor(0), node.tensor(1), how)


def _pooled(node: OperatorNode) -> ir.Value:
    cells = node.integer("output_height", 1), node.integer("output_width", 1)
    of = RegionOperands(
        node.tensor(0), node.tensor(1), node.number("spatial_scale", 1.0), cells, images=node.tensor(2)
    )
    half = node.text("coordinate_transformation_mode") == "half_pixel"
    samples, largest = node.integer("sampling_ratio", 0), node.text("mode", "avg") == "max"
    return AlignedRegions(of, samples, 0.5 if half else 0.0, None if half else 1.0, largest).pooled()


def _deformed(node: OperatorNode) -> ir.Value:
    filters = node.kind(1).extents
    rank = len(filters) - 2
    windows = DeformedWindows(
        node.integers("strides", [1] * rank), node.integers("pads", [0] * 2 * rank)[:rank],
        node.integers("dilations", [1] * rank), node.integer("group", 1), node.integer("offset_group", 1),
    )
    mask, bias = (node.tensor(place) if node.has(place) else None for place in (4, 3))
    of = DeformedImage(node.tensor(0), node.tensor(2), mask, filters[2:], windows)
    return deformed_convolution(of, node.tensor(1), bias)


# -- in ONNX's graph -------------------------------------------------------------------------------


def _check_deformed(node: onnx.NodeProto, facts: ModelFacts) -> None:
    """Raises CompileError for extents that are not known, but for the batch, or do not fit."""
    image, filters, moves = (facts.extents(name) for name in node.input[:3])
    known = [extent for found in (image, moves) for extent in (found or [None] * 2)[1:]] + (filters or [None])
    if image is None or filters is None or moves is None or None in known:
        raise unsupported(node, facts, "the extents of its operands, but for the batch, are known")
    groups, offsets = attribute(node, "group", 1), attribute(node, "offset_group", 1)
    channels, (_, per_group, *kernel), taps = image[1] or 0, filters, 1
    for extent in kernel:
        taps *= extent or 0
    if channels != (per_group or 0) * groups or channels % offsets or moves[1] != offsets * taps * len(kernel):
        found = f"{channels} channels, {moves[1]} offsets, filters of {filters}"
        raise unsupported(node, facts, f"its operands fit: {found}")


def _checked_images(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """RoiAlign whose images are gathered from the numbers of all images, which checks them, and whose coordinates are
    named as since operator set 16."""
    import onnx

    if node.input[2] in facts.producers and facts.producers[node.input[2]].name.startswith(f"{node.name}/"):
        return None
    n, made = Numbers(node, facts), copy(node)
    every = n.add("Range", n.of(0), n.extent(node.input[0], 0), n.of(1))
    made.input[2] = n.add("Gather", every, node.input[2], axis=0)
    if attribute(node, "coordinate_transformation_mode", None) is None and facts.version >= _HALF_PIXEL_SINCE:
        made.attribute.append(onnx.helper.make_attribute("coordinate_transformation_mode", "half_pixel"))
    return [*n.nodes, made]


def _of_floats(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """GridSample of an image of integers, in float32."""
    import onnx

    kind = facts.types.get(node.input[0])
    if kind is None or facts.dtype(node.input[0]).kind not in "biu":
        return None
    w = NodeWriter(node, facts)
    sampled = w.add("GridSample", w.cast(node.input[0], onnx.TensorProto.FLOAT), node.input[1])
    w.nodes[-1].attribute.extend(node.attribute)
    return w.done([w.cast(sampled, kind)])


READERS: dict[str, Reader] = {"DeformConv": _deformed, "GridSample": _sampled, "RoiAlign": _pooled}
RULES: dict[str, Rule] = {"GridSample": _of_floats, "RoiAlign": _checked_images}
CHECKS = {"DeformConv": _check_deformed}
