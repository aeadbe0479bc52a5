"""The filters of Resize: the input elements that contribute to each element of the result, and their weights.

Indices and weights follow ONNX's specification of Resize (operator set 19); the footprint of antialiased filters, which
it leaves open, follows onnx's reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ResizedAxis:
    """An axis of extent `size` resized to `count`; `scale` as given, `ends` of the resized part."""

    axis: int
    size: int
    count: int
    scale: float
    ends: tuple[float, float]


@dataclass(frozen=True)
class Filter:
    """The interpolation that a node's attributes describe, for all axes."""

    transform: str
    mode: str
    nearest: str
    cubic: float
    antialias: bool
    exclude: bool

    def positions(self, axis: ResizedAxis) -> np.ndarray:
        """The input coordinates of the result's elements."""
        x, size, width = np.arange(axis.count, dtype=np.float64), axis.size, axis.scale * axis.size
        if self.transform == "align_corners":
            return x * (size - 1) / (width - 1) if width != 1 else 0 * x
        if self.transform == "asymmetric":
            return x / axis.scale
        if self.transform == "tf_crop_and_resize":
            start, end = axis.ends
            if axis.count == 1:
                return x + 0.5 * (start + end) * (size - 1)
            return start * (size - 1) + x * (end - start) * (size - 1) / (axis.count - 1)
        if self.transform == "pytorch_half_pixel" and axis.count == 1:
            return x
        moved = size / 2 * (1 - axis.count / width) if self.transform == "half_pixel_symmetric" else 0.0
        return moved + (x + 0.5) / axis.scale - 0.5

    def matrix(self, axis: ResizedAxis) -> np.ndarray:
        """The weights of the input's elements in the result's, as a matrix."""
        at = self.positions(axis)
        if self.mode == "nearest":
            return np.eye(axis.size)[np.clip(_NEAREST[self.nearest](at), 0, axis.size - 1).astype(np.int64)]
        stretch = min(axis.scale, 1.0) if self.antialias else 1.0
        reach = int(np.ceil((2 if self.mode == "cubic" else 1) / stretch)) + 1
        result = np.zeros((axis.count, axis.size))
        for row, position in zip(result, at, strict=True):
            places = np.arange(int(np.floor(position)) - reach, int(np.floor(position)) + reach + 1)
            weights = self._weight(np.abs(places - position) * stretch)
            if self.exclude:
                weights = np.where((places >= 0) & (places < axis.size), weights, 0.0)
            np.add.at(row, np.clip(places, 0, axis.size - 1), weights / weights.sum())
        return result

    def _weight(self, distance: np.ndarray) -> np.ndarray:
        if self.mode == "linear":
            return np.maximum(1 - distance, 0)
        a, d = self.cubic, distance
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


_NEAREST = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5), "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip
