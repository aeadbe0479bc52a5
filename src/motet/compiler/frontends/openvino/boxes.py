"""Boxes and samples of images."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules


def _suppression(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    """ONNX's operator, whose boxes are in the order of batches and classes; the others are sorted by their scores."""
    if op.has(5) and np.any(op.known(5, "sigma for soft suppression")):
        raise NoLowering("soft suppression; expected a sigma of 0")
    kept = int(op.known(2, "boxes per class").reshape(())) if op.has(2) else 0
    limits = [float(op.known(place, "thresholds").reshape(())) if op.has(place) else 0.0 for place in (3, 4)]
    centre = int(str(op.attribute("box_encoding", "corner")).lower() == "center")
    boxes, scores = (value if op.dtype(place) == np.float32 else w.cast(value, np.float32)
                     for place, value in enumerate(op.inputs[:2]))
    found = w.add("NonMaxSuppression", boxes, scores, w.ints([kept]), *(
        w.constant([limit], np.float32) for limit in limits), center_point_box=centre)
    chosen = w.add("GatherND", scores, found)
    if op.attribute("sort_result_descending", True):
        order = w.add_all("TopK", 2, chosen, w.extent(chosen, 0), axis=0, largest=1, sorted=1)[1]
        found, chosen = w.add("Gather", found, order, axis=0), w.add("Gather", chosen, order, axis=0)
    pairs = w.cast(w.slice(found, 1, 0, 2), op.result_dtype(1))
    rows = w.add("Concat", pairs, w.cast(w.unsqueeze(chosen, 1), op.result_dtype(1)), axis=1)
    results = [w.cast(found, op.result_dtype(0)), rows, w.cast(w.extent(found, 0), op.result_dtype(2))
               if op.results > 2 else ""]
    return results[: op.results]


def _roi_align(op: OpenvinoOperation, w: GraphWriter) -> str:
    """ONNX's half_pixel is OpenVINO's `half_pixel_for_nn`; `half_pixel` shifts the boxes by half a pixel before."""
    aligned, boxes = str(op.attribute("aligned_mode", "asymmetric")).lower(), op.inputs[1]
    if aligned == "half_pixel":
        boxes = w.add("Add", boxes, w.constant(0.5, op.dtype(1)))
    return w.add(
        "RoiAlign", op.inputs[0], boxes, w.cast(op.inputs[2], np.int64),
        coordinate_transformation_mode="output_half_pixel" if aligned == "asymmetric" else "half_pixel",
        mode=str(op.attribute("mode", "avg")).lower(),
        output_height=int(op.attribute("pooled_h")), output_width=int(op.attribute("pooled_w")),
        sampling_ratio=int(op.attribute("sampling_ratio")), spatial_scale=float(op.attribute("spatial_scale")),
    )


_MODES = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}


def _grid_sample(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.add(
        "GridSample", op.inputs[0], op.inputs[1], align_corners=int(bool(op.attribute("align_corners", False))),
        mode=_MODES[str(op.attribute("mode", "bilinear")).lower()],
        padding_mode=str(op.attribute("padding_mode", "zeros")).lower(),
    )


def _columns_to_image(op: OpenvinoOperation, w: GraphWriter) -> str:
    size, block = op.numbers(1, "extents of the image"), op.numbers(2, "extents of the blocks")
    numbers = {name: [int(each) for each in op.attribute(name)] for name in ("strides", "dilations")}
    pads = [int(each) for name in ("pads_begin", "pads_end") for each in op.attribute(name)]
    if op.rank(0) == 2:
        found = w.add("Col2Im", w.unsqueeze(op.inputs[0], 0), w.ints(size), w.ints(block), pads=pads, **numbers)
        return w.squeeze(found, 0)
    return w.add("Col2Im", op.inputs[0], w.ints(size), w.ints(block), pads=pads, **numbers)


RULES: Rules = {
    "NonMaxSuppression": _suppression, "ROIAlign": _roi_align, "GridSample": _grid_sample, "Col2Im": _columns_to_image,
}
