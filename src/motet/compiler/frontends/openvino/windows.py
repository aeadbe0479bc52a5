"""Attributes that convolutions and pools share: strides, dilations and pads."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation


@dataclass(frozen=True)
class SlidingWindows:
    """How windows of `kernel` elements slide along the axes after the second. `automatic` is ONNX's name for pads that
    follow from dynamic extents, or empty."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begins: list[int]
    ends: list[int]
    automatic: str = ""

    @property
    def attributes(self) -> dict[str, object]:
        """ONNX's attributes."""
        found: dict[str, object] = {
            "kernel_shape": self.kernel, "strides": self.strides, "dilations": self.dilations,
        }
        return found | ({"auto_pad": self.automatic} if self.automatic else {"pads": [*self.begins, *self.ends]})


def read_windows(op: OpenvinoOperation, kernel: list[int]) -> SlidingWindows:
    """The windows of an operator whose operand 0 has the image [N, C, …]."""
    axes = len(kernel)
    strides, dilations = (_numbers(op, name, 1, axes) for name in ("strides", "dilations"))
    begins, ends = (_numbers(op, name, 0, axes) for name in ("pads_begin", "pads_end"))
    automatic = str(op.attribute("auto_pad", "explicit")).lower()
    if automatic in ("explicit", "notset"):
        return SlidingWindows(kernel, strides, dilations, begins, ends)
    if automatic == "valid":
        return SlidingWindows(kernel, strides, dilations, [0] * axes, [0] * axes)
    extents = (op.extents(0) or [None] * (axes + 2))[2:]
    if None in extents:
        if any(dilation > 1 for dilation in dilations):
            raise NoLowering(f"auto_pad={automatic}, dilated, with dynamic extents; expected explicit pads")
        return SlidingWindows(kernel, strides, dilations, [], [], automatic.upper())
    pads = [_same(extent or 0, (kernel[at] - 1) * dilations[at] + 1, strides[at]) for at, extent in enumerate(extents)]
    small, large = [pad // 2 for pad in pads], [pad - pad // 2 for pad in pads]
    upper = automatic == "same_upper"
    return SlidingWindows(kernel, strides, dilations, small if upper else large, large if upper else small)


def _numbers(op: OpenvinoOperation, name: str, default: int, axes: int) -> list[int]:
    return [int(each) for each in op.attribute(name) or []] or [default] * axes


def _same(extent: int, window: int, stride: int) -> int:
    """The padding for ⌈extent / stride⌉ windows."""
    return max((-(-extent // stride) - 1) * stride + window - extent, 0)
