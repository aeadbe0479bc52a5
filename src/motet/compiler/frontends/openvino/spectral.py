"""Discrete Fourier transforms. The last axis of complex tensors has the real and the imaginary part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rule, Rules


def _transform(inverse: bool) -> Rule:
    def rule(op: OpenvinoOperation, w: GraphWriter) -> str:
        axes = op.axes(1, op.rank(0) - 1)
        sizes = op.numbers(2, "signal size") if op.has(2) else [-1] * len(axes)
        value = op.inputs[0]
        for axis, size in zip(axes, sizes, strict=True):
            value = _along(w, value, axis, size, inverse)
        return value

    return rule


def _along(w: GraphWriter, value: str, axis: int, size: int, inverse: bool, onesided: bool = False) -> str:
    return w.add("DFT", value, "" if size < 0 else w.ints(size), w.ints(axis), inverse=int(inverse),
                 onesided=int(onesided))


def _real(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Of real numbers: half of the frequencies along the last axis, then all along the others."""
    rank = op.rank(0)
    axes = op.axes(1, rank)
    sizes = op.numbers(2, "signal size") if op.has(2) else [-1] * len(axes)
    value = _along(w, w.unsqueeze(op.inputs[0], rank), axes[-1], sizes[-1], False, onesided=True)
    for axis, size in zip(axes[:-1], sizes[:-1], strict=True):
        value = _along(w, value, axis, size, False)
    return value


def _inverse_real(op: OpenvinoOperation, w: GraphWriter) -> str:
    """All frequencies along the last axis, after the others are transformed."""
    rank = op.rank(0) - 1
    axes = op.axes(1, rank)
    sizes = op.numbers(2, "signal size") if op.has(2) else [-1] * len(axes)
    value, last = op.inputs[0], axes[-1]
    for axis, size in zip(axes[:-1], sizes[:-1], strict=True):
        value = _along(w, value, axis, size, True)
    held = op.shape(0)[last]
    return _from_half(w, value, _Half(rank, last, held, op.dtype(0)), sizes[-1] if sizes[-1] >= 0 else 2 * (held - 1))


@dataclass(frozen=True)
class _Half:
    """The first `held` frequencies of real numbers, along `axis` of `rank` axes, before that of complex numbers."""

    rank: int
    axis: int
    held: int
    dtype: np.dtype[Any]


def _from_half(w: GraphWriter, value: str, half: _Half, size: int) -> str:
    """The `size` real numbers with these frequencies: the others are the conjugates of the first ones."""
    rank, axis, wanted = half.rank, half.axis, size // 2 + 1
    if half.held > wanted:
        value = w.slice(value, axis, 0, wanted)
    elif half.held < wanted:
        pads = [0] * (2 * (rank + 1))
        pads[rank + 1 + axis] = wanted - half.held
        value = w.add("Pad", value, w.ints(pads), w.constant(0, half.dtype))
    mirrored = w.take(value, np.arange(size - wanted, 0, -1), axis)
    conjugates = w.add("Mul", mirrored, w.constant([1, -1], half.dtype))
    whole = w.add("Concat", value, conjugates, axis=axis)
    return w.squeeze(w.slice(_along(w, whole, axis, -1, True), rank, 0, 1), rank)


# -- short time ------------------------------------------------------------------------------------


def _number(op: OpenvinoOperation, place: int, what: str) -> int:
    return int(op.known(place, what).reshape(()))


def _window(op: OpenvinoOperation, w: GraphWriter, frame: int) -> str:
    """The window, with zeros on both sides where it is shorter than a frame."""
    missing = frame - op.shape(1)[0]
    if missing == 0:
        return op.inputs[1]
    if missing < 0:
        raise NoLowering(f"a window of {op.shape(1)[0]} numbers; expected at most the frame's {frame}")
    before = missing // 2
    return w.add("Pad", op.inputs[1], w.ints([before, missing - before]), w.constant(0, op.dtype(1)))


def _frames(op: OpenvinoOperation, w: GraphWriter) -> str:
    """STFT: half of the frequencies of each frame, [batch, frames, frequencies, 2]."""
    frame, step = _number(op, 2, "frame size"), _number(op, 3, "frame step")
    has_batch = op.rank(0) == 2
    signal = op.inputs[0] if has_batch else w.unsqueeze(op.inputs[0], 0)
    value = w.add("STFT", w.unsqueeze(signal, 2), w.ints(step), _window(op, w, frame), w.ints(frame), onesided=1)
    value = w.transpose(value, [0, 2, 1, 3]) if op.attribute("transpose_frames") else value
    return value if has_batch else w.squeeze(value, 0)


def _overlapped(op: OpenvinoOperation, w: GraphWriter) -> str:
    """ISTFT: the sum of the frames' signals times the window, over the sum of the windows' squares."""
    frame, step = _number(op, 2, "frame size"), _number(op, 3, "frame step")
    has_batch, dtype = op.rank(0) == 4, op.dtype(0)
    held, count = op.shape(0)[-3:-1]
    value = op.inputs[0] if has_batch else w.unsqueeze(op.inputs[0], 0)
    value = _from_half(w, w.transpose(value, [0, 2, 1, 3]), _Half(3, 2, held, dtype), frame)
    window = _window(op, w, frame)
    if op.attribute("normalized"):
        value = w.add("Mul", value, w.constant(np.sqrt(frame), dtype))
    value = w.transpose(w.add("Mul", value, window), [0, 2, 1])
    squares = w.add("Expand", w.reshape(w.add("Mul", window, window), [1, frame, 1]), w.ints([1, frame, count]))
    length = frame + (count - 1) * step
    sums, weights = (_added(w, each, length, frame, step) for each in (value, squares))
    zero = w.add("Equal", weights, w.constant(0, dtype))
    value = w.add("Div", sums, w.add("Where", zero, w.constant(1, dtype), weights))
    value = _cut(op, w, value, length, frame // 2 if op.attribute("center") else 0)
    return value if has_batch else w.squeeze(value, 0)


def _added(w: GraphWriter, value: str, length: int, frame: int, step: int) -> str:
    """[batch, length]: the sums of overlapping frames [batch, frame, frames]."""
    image = w.add("Col2Im", value, w.ints([1, length]), w.ints([1, frame]), strides=[1, step])
    return w.squeeze(image, 1, 2)


def _cut(op: OpenvinoOperation, w: GraphWriter, value: str, length: int, margin: int) -> str:
    """The signal without what centring added, of the length asked for."""
    if not op.has(4):
        return w.slice(value, 1, margin, length - margin)
    wanted = _number(op, 4, "signal length")
    value = w.slice(value, 1, margin, min(margin + wanted, length))
    missing = wanted - (min(margin + wanted, length) - margin)
    return w.add("Pad", value, w.ints([0, 0, 0, missing]), w.constant(0, op.dtype(0))) if missing else value


RULES: Rules = {
    "DFT": _transform(False), "IDFT": _transform(True), "RDFT": _real, "IRDFT": _inverse_real, "STFT": _frames,
    "ISTFT": _overlapped,
}
