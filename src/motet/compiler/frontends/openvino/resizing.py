"""Interpolation between the pixels of an image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules

_MODES = {"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"}
_POSITIONS = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
_ROUNDED = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class _Request:
    """What to compute, along `axes`: by the extents of the result, or by scales."""

    mode: str
    position: str
    rounding: str
    axes: list[int]
    sizes: list[int] | None
    scales: list[float] | None
    antialias: bool = False
    cube: float = -0.75


def _interpolate(op: OpenvinoOperation, w: GraphWriter) -> str:
    return _interpolate_first(op, w) if op.version == 1 else _interpolate_later(op, w)


def _interpolate_first(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Operator set 1: axes in an attribute, and positions from `align_corners`."""
    axes = [int(each) for each in op.attribute("axes")]
    mode = str(op.attribute("mode")).lower()
    if mode == "area":
        raise NoLowering("mode=area; expected nearest, linear or cubic")
    position = "align_corners" if op.attribute("align_corners", True) else "asymmetric"
    sizes = op.numbers(1, "extents of the result")
    request = _Request(mode, position, "floor", axes, sizes, None, bool(op.attribute("antialias", False)))
    return _resize(op, w, _padded(op, w), request)


def _interpolate_later(op: OpenvinoOperation, w: GraphWriter) -> str:
    by_sizes = str(op.attribute("shape_calculation_mode", "sizes")).lower() == "sizes"
    place = 1 if op.version >= 11 or by_sizes else 2
    last = 2 if op.version >= 11 else 3
    axes = op.axes(last, op.rank(0)) if op.has(last) else list(range(op.rank(0)))
    given = op.value(place)
    value = _padded(op, w)
    if given is None:
        return _resize_dynamic(op, w, value, (place, by_sizes, axes))
    numbers = [float(each) for each in given.reshape(-1)]
    request = _Request(
        str(op.attribute("mode")).lower(), str(op.attribute("coordinate_transformation_mode", "half_pixel")).lower(),
        str(op.attribute("nearest_mode", "round_prefer_floor")).lower(), axes,
        [int(each) for each in numbers] if by_sizes else None, None if by_sizes else numbers,
        bool(op.attribute("antialias", False)), float(op.attribute("cube_coeff", -0.75)),
    )
    return _resize(op, w, value, request)


def _padded(op: OpenvinoOperation, w: GraphWriter) -> str:
    pads = [([int(each) for each in op.attribute(name) or []] + [0] * op.rank(0))[: op.rank(0)]
            for name in ("pads_begin", "pads_end")]
    if not any(map(any, pads)):
        return op.inputs[0]
    return w.add("Pad", op.inputs[0], w.ints([*pads[0], *pads[1]]), w.constant(0, op.dtype(0)))


def _resize(op: OpenvinoOperation, w: GraphWriter, value: str, request: _Request) -> str:
    if request.mode not in _MODES:
        raise NoLowering(f"mode={request.mode}; expected {', '.join(_MODES)}")
    plain = request.position in _POSITIONS and request.rounding in _ROUNDED
    if request.mode == "nearest" and not plain:
        return _take_nearest(op, w, value, request)
    if request.position not in _POSITIONS:
        raise NoLowering(f"coordinate_transformation_mode={request.position}; expected {', '.join(_POSITIONS)}")
    if request.antialias and request.mode == "cubic":
        raise NoLowering("mode=cubic with antialias; expected no antialias")
    numbers = w.ints(request.sizes) if request.sizes is not None else w.constant(request.scales or [], np.float32)
    given = ["", "", numbers] if request.sizes is not None else ["", numbers]
    return w.add("Resize", value, *given, axes=request.axes, **_attributes(request))


def _attributes(request: _Request) -> dict[str, object]:
    return {
        "mode": _MODES[request.mode], "coordinate_transformation_mode": request.position,
        "nearest_mode": request.rounding if request.rounding in _ROUNDED else "floor",
        "antialias": int(request.antialias and request.mode == "linear"), "cubic_coeff_a": request.cube,
    }


def _resize_dynamic(op: OpenvinoOperation, w: GraphWriter, value: str, how: tuple[int, bool, list[int]]) -> str:
    """By extents or scales that only a call knows."""
    place, by_sizes, axes = how
    request = _Request(
        str(op.attribute("mode")).lower(), str(op.attribute("coordinate_transformation_mode", "half_pixel")).lower(),
        str(op.attribute("nearest_mode", "round_prefer_floor")).lower(), axes, None, None,
        bool(op.attribute("antialias", False)), float(op.attribute("cube_coeff", -0.75)),
    )
    if request.mode not in _MODES or request.position not in _POSITIONS or request.rounding not in _ROUNDED:
        raise NoLowering(f"mode={request.mode}, coordinate_transformation_mode={request.position}, "
                          f"nearest_mode={request.rounding} with extents from a call; expected constant ones")
    if by_sizes:
        return w.add("Resize", value, "", "", w.cast(op.inputs[place], np.int64), axes=axes, **_attributes(request))
    return w.add("Resize", value, "", w.cast(op.inputs[place], np.float32), axes=axes, **_attributes(request))


def _take_nearest(op: OpenvinoOperation, w: GraphWriter, value: str, request: _Request) -> str:
    """Slices at the nearest places, along each axis of known extent."""
    extents, counts = op.extents(0) or [], op.result_extents() or []
    for number, axis in enumerate(request.axes):
        before = [int((op.attribute(name) or [0] * len(extents))[axis]) if len(op.attribute(name) or []) > axis else 0
                  for name in ("pads_begin", "pads_end")]
        extent, count = extents[axis], counts[axis]
        if extent is None or count is None:
            raise NoLowering(f"nearest_mode={request.rounding}, coordinate_transformation_mode={request.position} "
                              "with dynamic extents; expected known ones")
        extent += sum(before)
        scale = request.scales[number] if request.scales is not None else count / extent
        value = w.take(value, _places(request, extent, count, np.float32(scale)), axis)
    return value


def _places(request: _Request, extent: int, count: int, scale: np.float32) -> np.ndarray:
    """The place nearest to each element of the result, in f32 as OpenVINO computes it."""
    at, half = np.arange(count, dtype=np.float32), np.float32(0.5)
    if request.position == "tf_half_pixel_for_nn":
        exact = (at + half) / scale
    elif request.position == "half_pixel":
        exact = (at + half) / scale - half
    elif request.position == "pytorch_half_pixel":
        exact = (at + half) / scale - half if count > 1 else at * 0
    elif request.position == "align_corners":
        exact = at * np.float32(extent - 1) / np.float32(max(count - 1, 1))
    else:
        exact = at / scale
    if request.rounding == "simple":
        rounded = np.ceil(exact) if scale < 1 else np.trunc(exact)
    elif request.rounding == "round_prefer_floor":
        rounded = np.ceil(exact - half)
    elif request.rounding == "round_prefer_ceil":
        rounded = np.floor(exact + half)
    else:
        rounded = np.floor(exact) if request.rounding == "floor" else np.ceil(exact)
    return np.clip(rounded, 0, extent - 1).astype(np.int64)


RULES: Rules = {"Interpolate": _interpolate}
