"""Interpolation between the pixels of an image: ONNX's Resize, with positions and roundings that ONNX lacks."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules
from motet.compiler.operators.resize import POSITIONS, ROUNDINGS

_MODES = {"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"}
_CHOICES = {
    "mode": tuple(_MODES), "nearest_mode": ROUNDINGS,
    "coordinate_transformation_mode": tuple(name for name in POSITIONS if name != "tf_crop_and_resize"),
}  # fmt: skip


def _interpolate(op: OpenvinoOperation, w: GraphWriter) -> str:
    first = op.version == 1  # axes in an attribute, and positions from `align_corners`
    aligned = "align_corners" if op.attribute("align_corners", True) else "asymmetric"
    said = {
        "mode": str(op.attribute("mode")).lower(),
        "nearest_mode": "floor" if first else str(op.attribute("nearest_mode", "round_prefer_floor")).lower(),
        "coordinate_transformation_mode": aligned if first else (
            str(op.attribute("coordinate_transformation_mode", "half_pixel")).lower()
        ),
    }  # fmt: skip
    for name, known in _CHOICES.items():
        if said[name] not in known:
            raise NoLowering(f"{name}={said[name]}; expected {', '.join(known)}")
    antialias = bool(op.attribute("antialias", False))
    if antialias and said["mode"] == "cubic":
        raise NoLowering("mode=cubic with antialias; expected no antialias")
    by_sizes = first or str(op.attribute("shape_calculation_mode", "sizes")).lower() == "sizes"
    place = 1 if by_sizes or op.version >= 11 else 2
    last = 2 if op.version >= 11 else 3
    axes = [int(each) for each in op.attribute("axes")] if first else (
        op.axes(last, op.rank(0)) if op.has(last) else list(range(op.rank(0)))
    )
    given = op.value(place)
    dtype = np.int64 if by_sizes else np.float32
    numbers = w.cast(op.inputs[place], dtype) if given is None else w.constant(given.reshape(-1).astype(dtype))
    return w.add(
        "Resize", _padded(op, w), "", *(["", numbers] if by_sizes else [numbers]), axes=axes,
        **said | {"mode": _MODES[said["mode"]], "motet.single": int(said["mode"] == "nearest")},
        antialias=int(antialias and _MODES[said["mode"]] == "linear"),
        cubic_coeff_a=float(op.attribute("cube_coeff", -0.75)),
    )  # fmt: skip


def _padded(op: OpenvinoOperation, w: GraphWriter) -> str:
    pads = [([int(each) for each in op.attribute(name) or []] + [0] * op.rank(0))[: op.rank(0)]
            for name in ("pads_begin", "pads_end")]
    if not any(map(any, pads)):
        return op.inputs[0]
    return w.add("Pad", op.inputs[0], w.ints([*pads[0], *pads[1]]), w.constant(0, op.dtype(0)))


RULES: Rules = {"Interpolate": _interpolate}
