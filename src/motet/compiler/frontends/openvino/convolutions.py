"""Convolutions, their transposes, and deformable ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation
from motet.compiler.frontends.openvino.windows import SlidingWindows, read_windows
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules


def _kernel(op: OpenvinoOperation, axes: int) -> list[int]:
    return op.shape(1)[-axes:]


def _convolution(op: OpenvinoOperation, w: GraphWriter) -> str:
    windows = read_windows(op, _kernel(op, op.rank(0) - 2))
    return _convolve(op, w, windows, op.inputs[1], 1)


def _group_convolution(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Weights [G, O, I, …] become [G·O, I, …]."""
    groups, outputs, *rest = op.shape(1)
    windows = read_windows(op, _kernel(op, op.rank(0) - 2))
    return _convolve(op, w, windows, w.reshape(op.inputs[1], [groups * outputs, *rest]), groups)


def _convolve(op: OpenvinoOperation, w: GraphWriter, windows: SlidingWindows, weights: str, groups: int) -> str:
    image = op.inputs[0]
    cut = [at for at, (begin, end) in enumerate(zip(windows.begins, windows.ends, strict=True)) if min(begin, end) < 0]
    for at in cut:  # negative pads remove elements
        begin, end = windows.begins[at], windows.ends[at]
        image = w.slice(image, at + 2, max(-begin, 0), end if end < 0 else np.iinfo(np.int64).max)
    windows = replace(windows, begins=[max(each, 0) for each in windows.begins],
                      ends=[max(each, 0) for each in windows.ends])
    return w.add("Conv", image, weights, group=groups, **windows.attributes)


def _transposed(op: OpenvinoOperation, w: GraphWriter) -> str:
    return _spread(op, w, op.inputs[1], 1)


def _group_transposed(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Weights [G, I, O, …] become [G·I, O, …]."""
    groups, inputs, *rest = op.shape(1)
    return _spread(op, w, w.reshape(op.inputs[1], [groups * inputs, *rest]), groups)


def _spread(op: OpenvinoOperation, w: GraphWriter, weights: str, groups: int) -> str:
    axes = op.rank(0) - 2
    kernel = _kernel(op, axes)
    strides, dilations = ([int(each) for each in op.attribute(name)] for name in ("strides", "dilations"))
    begins, ends = ([int(each) for each in op.attribute(name) or [0] * axes] for name in ("pads_begin", "pads_end"))
    more = [int(each) for each in op.attribute("output_padding") or [0] * axes]
    automatic = str(op.attribute("auto_pad", "explicit")).lower()
    if automatic == "valid" and not op.has(2):
        begins, ends = [0] * axes, [0] * axes
    if op.has(2) or automatic.startswith("same"):
        image, result = op.shape(0)[2:], op.result_shape()[2:]
        for at in range(axes):
            whole = strides[at] * (image[at] - 1) + (kernel[at] - 1) * dilations[at] + 1 + more[at]
            total = whole - result[at]
            if automatic.startswith("same"):
                small = max(total, 0) // 2
                begins[at] = small if automatic == "same_lower" else max(total, 0) - small
            ends[at] = total - begins[at]
    if min([0, *begins]) < 0:
        raise NoLowering(f"pads {begins} and {ends}; expected none below 0")
    for at in range(axes):  # a negative pad at the end is more output
        if ends[at] < 0:
            more[at], ends[at] = more[at] - ends[at], 0
    return w.add("ConvTranspose", op.inputs[0], weights, group=groups, kernel_shape=kernel, strides=strides,
                 dilations=dilations, pads=[*begins, *ends], output_padding=more)


def _deformable(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Positions outside the image count as zeros, also in the interpolation (`bilinear_interpolation_pad`)."""
    if not op.attribute("bilinear_interpolation_pad", False):
        extents = op.extents(1)
        raise NoLowering(f"positions that are clamped to the image (offsets {extents}); "
                          "expected bilinear_interpolation_pad")
    kernel = op.shape(2)[2:]
    windows = read_windows(op, kernel)
    masked = ["", op.inputs[3]] if op.has(3) else []
    return w.add("DeformConv", op.inputs[0], op.inputs[2], op.inputs[1], *masked,
                 group=int(op.attribute("group", 1)), offset_group=int(op.attribute("deformable_group", 1)),
                 **windows.attributes)


RULES: Rules = {
    "Convolution": _convolution, "GroupConvolution": _group_convolution, "ConvolutionBackpropData": _transposed,
    "GroupConvolutionBackpropData": _group_transposed, "DeformableConvolution": _deformable,
}
