"""Pools with windows, and adaptive ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation
from motet.compiler.frontends.openvino.windows import SlidingWindows, read_windows
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules


def _windows(op: OpenvinoOperation) -> SlidingWindows:
    return read_windows(op, [int(each) for each in op.attribute("kernel")])


def _overhang(op: OpenvinoOperation, windows: SlidingWindows) -> list[int] | None:
    """How far the last windows reach beyond the padded image, if extents are rounded up; None if only a call knows."""
    if windows.automatic or not str(op.attribute("rounding_type", "floor")).lower().startswith("ceil"):
        return [0] * len(windows.kernel)
    image, result = op.extents(0), op.result_extents()
    if image is None or result is None or None in image[2:] or None in result[2:]:
        return None
    found: list[int] = []
    for at, kernel in enumerate(windows.kernel):
        reach = ((result[at + 2] or 0) - 1) * windows.strides[at] + (kernel - 1) * windows.dilations[at] + 1
        found.append(max(reach - (image[at + 2] or 0) - windows.begins[at] - windows.ends[at], 0))
    return found


def _check_ceiled(op: OpenvinoOperation, windows: SlidingWindows) -> None:
    """Refuses windows of dynamic extents that may begin behind the image, which ONNX leaves out."""
    plain = str(op.attribute("rounding_type")).lower() == "ceil"
    if plain and any(end or stride > kernel
                     for end, stride, kernel in zip(windows.ends, windows.strides, windows.kernel, strict=True)):
        raise NoLowering("rounding_type=ceil with pads and dynamic extents; expected ceil_torch, or known extents")


def _max_pool(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    windows = _windows(op)
    overhang = _overhang(op, windows)
    more: dict[str, int] = {}
    if overhang is None:
        _check_ceiled(op, windows)
        more = {"ceil_mode": 1}
    else:
        windows = replace(windows, ends=[end + extra for end, extra in zip(windows.ends, overhang, strict=True)]
                          if not windows.automatic else [])
    if op.results == 1 or not op.is_read(1):
        return [w.add("MaxPool", op.inputs[0], **windows.attributes, **more)] * op.results
    if int(op.attribute("axis", 0)) != 0:
        raise NoLowering(f"indices along axis {op.attribute('axis')}; expected axis 0")
    value, places = w.add_all("MaxPool", 2, op.inputs[0], **windows.attributes, **more)
    return [value, places if op.result_dtype(1) == np.int64 else w.cast(places, op.result_dtype(1))]


def _average_pool(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Pads are counted unless `exclude-pad`; with pads, so is the part of a window beyond the padded image."""
    windows = _windows(op)
    overhang, counts = _overhang(op, windows), not op.attribute("exclude-pad", False)
    if overhang is None:
        _check_ceiled(op, windows)
        return w.add("AveragePool", op.inputs[0], **windows.attributes, ceil_mode=1, count_include_pad=int(counts))
    if any(overhang):
        counts = counts and any((*windows.begins, *windows.ends))
        windows = replace(windows, ends=[end + extra for end, extra in zip(windows.ends, overhang, strict=True)])
    return w.add("AveragePool", op.inputs[0], **windows.attributes, count_include_pad=int(counts))


def _bounds(extent: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first element of each of `count` windows, and the one after its last."""
    places = np.arange(count)
    return places * extent // count, -(-((places + 1) * extent) // count)


def _adaptive_average(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Means over windows of unequal sizes are products with a matrix for each axis."""
    counts = op.result_extents() or []
    extents, value = op.extents(0) or [], op.inputs[0]
    whole = [axis for axis in range(2, len(extents)) if counts[axis] == 1]
    if whole:
        value = w.reduce("ReduceMean", value, whole)
    rest = [axis for axis in range(2, len(extents)) if axis not in whole]
    if any(extents[axis] is None or counts[axis] is None for axis in rest):
        raise NoLowering("dynamic extents; expected known ones, or a result of one element")
    if rest and all((extents[axis] or 0) % (counts[axis] or 1) == 0 for axis in rest):
        kernel = [(extents[axis] or 0) // (counts[axis] or 1) if axis in rest else 1 for axis in range(2, len(extents))]
        return w.add("AveragePool", value, kernel_shape=kernel, strides=kernel)
    for axis in rest:
        extent, count = extents[axis] or 0, counts[axis] or 0
        first, end = _bounds(extent, count)
        places = np.arange(extent)[:, None]
        weights = ((places >= first) & (places < end)) / (end - first)
        order = [*(each for each in range(len(extents)) if each != axis), axis]
        moved = w.add("MatMul", w.transpose(value, order), w.constant(weights, op.dtype(0)))
        value = w.transpose(moved, [order.index(each) for each in range(len(extents))])
    return value


def _adaptive_max(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    """Along each axis, gathers the windows, filled up with their last elements, and takes the maxima."""
    if op.is_read(1):
        raise NoLowering("the places of its maxima; expected a model that does not use them")
    shape, counts, value = op.shape(0), op.result_shape(), op.inputs[0]
    for axis in range(2, len(shape)):
        first, end = _bounds(shape[axis], counts[axis])
        size = int((end - first).max())
        places = np.minimum(first[:, None] + np.arange(size), end[:, None] - 1)
        value = w.reduce("ReduceMax", w.take(value, places, axis), [axis + 1], keep=False)
    return [value, value]


RULES: Rules = {
    "MaxPool": _max_pool, "AvgPool": _average_pool, "AdaptiveAvgPool": _adaptive_average,
    "AdaptiveMaxPool": _adaptive_max,
}
