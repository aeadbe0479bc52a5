"""Writes DFT and STFT as products with constant matrices of sines and cosines.

A complex number is a pair along the last axis, so that a transform of n numbers is a product of rows with a 2n×2n
matrix. A transform of more than `_DIRECT` numbers is factored into two steps with twiddle factors w between them,

    X[c + n₁d] = Σ_b  W(n₂)[b, d] · w[b, c] · Σ_a W(n₁)[a, c] · x[n₂a + b]

If a prime factor is too large, it is a convolution with a chirp (Bluestein's algorithm), by transforms of a power of
two. An axis, length or step given in the call selects one of the transforms that agree with the result's extents; other
values are refused in the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, unsupported

if TYPE_CHECKING:
    import onnx

_DIRECT = 512


@dataclass(frozen=True)
class _Rows:
    """Writes transforms of rows: values of [rows, numbers, 1 (real) or 2 (complex)], in the type `kind`."""

    w: NodeWriter
    kind: np.dtype[Any]

    def number(self, array: np.ndarray) -> str:
        return self.w.constant(array.astype(self.kind), "factors")

    def forward(self, value: str, count: int, parts: int, length: int, kept: int) -> str:
        """The first `kept` numbers of the transform of length `length` of `count` numbers padded with zeros."""
        if max(length, count) <= _DIRECT:
            return self.product(value, _roots_of_unity(min(count, length), kept, length), count, parts)
        value = self.resized(value, count, length)
        if parts == 1:
            value = self.w.add("Concat", value, self.w.add("Sub", value, value), axis=2)
        return self.resized(self.factored(value, length), length, kept)

    def product(self, value: str, roots: np.ndarray, count: int, parts: int, real: bool = False) -> str:
        """The product of rows with a complex matrix; its result is complex, or its `real` part only."""
        read, made = roots.shape
        matrix = np.empty((read, parts, made, 1 if real else 2))
        for part in range(parts):
            rotated = roots * (1j if part else 1)
            matrix[:, part, :, 0] = np.real(rotated)
            if not real:
                matrix[:, part, :, 1] = np.imag(rotated)
        value = self.resized(value, count, read) if read < count else value
        flat = self.w.reshape(value, [-1, read * parts])
        found = self.w.add("MatMul", flat, self.number(matrix.reshape(read * parts, -1)))
        return self.w.reshape(found, [-1, made, 1 if real else 2])

    def resized(self, value: str, count: int, wanted: int) -> str:
        if wanted > count:
            pads = self.w.constant(np.array([0, 0, 0, 0, wanted - count, 0], np.int64), "pads")
            return self.w.add("Pad", value, pads)
        return self.w.slice(value, 1, 0, wanted) if wanted < count else value

    def factored(self, value: str, length: int) -> str:
        """The transform of `length` complex numbers."""
        if length <= _DIRECT:
            return self.product(value, _roots_of_unity(length, length, length), length, 2)
        first = max(factor for factor in range(1, _DIRECT + 1) if length % factor == 0)
        second = length // first
        if first == 1 or (second > _DIRECT and _largest_factor(second) > _DIRECT):
            return self.chirped(value, length)
        w = self.w
        value = w.add("Transpose", w.reshape(value, [-1, first, second, 2]), perm=[0, 2, 1, 3])
        value = self.factored(w.reshape(value, [-1, first, 2]), first)
        value = w.reshape(value, [-1, second, first, 2])
        value = self.times(value, _roots_of_unity(second, first, length))
        value = w.add("Transpose", value, perm=[0, 2, 1, 3])
        value = w.reshape(self.factored(w.reshape(value, [-1, second, 2]), second), [-1, first, second, 2])
        return w.reshape(w.add("Transpose", value, perm=[0, 2, 1, 3]), [-1, length, 2])

    def times(self, value: str, factors: np.ndarray) -> str:
        """Complex numbers times constant ones."""
        w, axis = self.w, factors.ndim + 1
        real, imaginary = (w.slice(value, axis, part, part + 1) for part in (0, 1))
        swapped = w.add("Concat", w.add("Neg", imaginary), real, axis=axis)
        plain = w.add("Mul", value, self.number(np.real(factors)[..., None]))
        return w.add("Add", plain, w.add("Mul", swapped, self.number(np.imag(factors)[..., None])))

    def chirped(self, value: str, length: int) -> str:
        """The transform of `length` complex numbers by Bluestein's algorithm."""
        whole = 1 << (2 * length - 2).bit_length()
        squares = np.arange(length, dtype=np.int64) ** 2 % (2 * length)
        chirp = np.exp(-1j * np.pi * squares / length)
        around = np.zeros(whole, complex)
        around[:length] = chirp.conj()
        around[whole - length + 1 :] = chirp.conj()[:0:-1]
        value = self.factored(self.resized(self.times(value, chirp), length, whole), whole)
        value = self.times(value, np.fft.fft(around))
        mirrored = self.factored(self.conjugate(value), whole)
        return self.times(self.resized(self.conjugate(mirrored), whole, length), chirp / whole)

    def conjugate(self, value: str) -> str:
        return self.w.add("Mul", value, self.number(np.array([1.0, -1.0])))

    def backward(self, value: str, count: int, parts: int, length: int) -> str:
        """The inverse transform of length `length` of `count` numbers padded with zeros."""
        if max(length, count) <= _DIRECT:
            roots = _roots_of_unity(min(count, length), length, length).conj() / length
            return self.product(value, roots, count, parts)
        if parts == 2:
            value = self.conjugate(value)
        found = self.forward(value, count, parts, length, length)
        return self.w.add("Mul", found, self.number(np.array([1.0, -1.0]) / length))

    def real_backward(self, value: str, count: int, length: int) -> str:
        """The real inverse transform of `count` numbers, which are the first half of a spectrum."""
        half = length // 2 + 1
        if max(length, count) <= _DIRECT:
            roots = _roots_of_unity(min(count, half), length, length).conj() / length
            roots[1 : (length + 1) // 2] *= 2  # their mirror images contribute the same
            return self.product(value, roots, count, 2, real=True)
        value = self.resized(value, count, half)
        mirrored = self.w.constant(np.arange((length - 1) // 2, 0, -1), "mirrored")
        other = self.conjugate(self.w.add("Gather", value, mirrored, axis=1))
        found = self.backward(self.w.add("Concat", value, other, axis=1), length, 2, length)
        return self.w.slice(found, 2, 0, 1)


def _roots_of_unity(rows: int, columns: int, length: int) -> np.ndarray:
    """exp(-2πi·row·column/length)."""
    places = np.outer(np.arange(rows, dtype=np.int64), np.arange(columns, dtype=np.int64)) % length
    return np.exp(-2j * np.pi * places / length)


def _largest_factor(number: int) -> int:
    """The largest prime factor."""
    largest, factor = 1, 2
    while factor * factor <= number:
        while number % factor == 0:
            largest, number = factor, number // factor
        factor += 1
    return max(largest, number)


def _along(w: NodeWriter, value: str, extents: Sequence[int | None], axis: int, work: _DftKind) -> str:
    """`value` of `extents` with the numbers along `axis` replaced by their transform `work`."""
    import onnx

    kind = w.facts.types[w.node.input[0]]
    double = kind == onnx.TensorProto.DOUBLE
    rank, parts, count = len(extents), extents[-1], extents[axis]
    if parts is None or count is None:
        raise unsupported(w.node, w.facts, "the axis of the transform and the last one have known extents")
    value = value if double else w.cast(value, onnx.TensorProto.FLOAT)
    order = [*(each for each in range(rank - 1) if each != axis), axis, rank - 1]
    moved = value if order == list(range(rank)) else w.add("Transpose", value, perm=order)
    rows = _Rows(w, np.dtype(np.float64 if double else np.float32))
    found = work.write(rows, w.reshape(moved, [-1, count, parts]), count, parts)
    rest = [extents[each] for each in order[:-2]]
    made = work.extents
    if rest.count(None) < 2:
        found = w.reshape(found, [*(-1 if each is None else each for each in rest), *made])
    else:
        lead = w.slice(w.add("Shape", moved), 0, 0, rank - 2)
        shape = w.add("Concat", lead, w.constant(np.array(made, np.int64), "extents"), axis=0)
        found = w.add("Reshape", found, shape)
    if order != list(range(rank)):
        found = w.add("Transpose", found, perm=np.argsort(order).tolist())
    return found if double else w.cast(found, kind)


@dataclass(frozen=True)
class _DftKind:
    """The kind and length of a transform."""

    length: int
    inverse: bool
    onesided: bool

    @property
    def extents(self) -> list[int]:
        """The extents of the result: along the transformed axis, and of the axis of complex parts."""
        if self.onesided:
            return [self.length, 1] if self.inverse else [self.length // 2 + 1, 2]
        return [self.length, 2]

    def write(self, rows: _Rows, value: str, count: int, parts: int) -> str:
        if not self.inverse:
            return rows.forward(value, count, parts, self.length, self.extents[0])
        if not self.onesided:
            return rows.backward(value, count, parts, self.length)
        if parts == 1:
            value = rows.w.add("Concat", value, rows.w.add("Sub", value, value), axis=2)
        return rows.real_backward(value, count, self.length)


def _scalar(facts: ModelFacts, node: onnx.NodeProto, index: int) -> tuple[str, int | None]:
    """The name of input `index`, and its value if it is constant."""
    name = node.input[index] if index < len(node.input) else ""
    array = facts.model.constants.get(name)
    return name, None if array is None else int(array.reshape(-1)[0])


def _dft(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    extents, result = facts.extents(node.input[0]), facts.extents(node.output[0])
    if extents is None or node.input[0] not in facts.types:
        raise unsupported(node, facts, "the rank of its operand is known")
    inverse, onesided = bool(attribute(node, "inverse", 0)), bool(attribute(node, "onesided", 0))
    rank = len(extents)
    length_name, length = _scalar(facts, node, 1)
    axis_name, axis = _scalar(facts, node, 2)
    if not axis_name:
        axis = attribute(node, "axis", 1) if facts.version < 20 else -2
    if axis is not None and (axis == -1 or not -rank <= axis < rank - 1):
        raise unsupported(node, facts, f"axis is one of those before the last of {rank} axes; it is {axis}")
    found: list[tuple[int, _DftKind]] = []
    for each in range(rank - 1) if axis is None else [axis % rank]:
        for work in _works(extents[each], None if result is None else result[each], length_name, length, inverse,
                           onesided):  # fmt: skip
            wanted = [*extents[:-1], work.extents[1]]
            wanted[each] = work.extents[0]
            known = axis is not None and (length is not None or not length_name)
            if known or result is None or all(a == b or None in (a, b) for a, b in zip(wanted, result, strict=True)):
                found.append((each, work))
                _declare(node, facts, wanted)
    if not found or (result is None and len(found) > 1 and length_name + axis_name and (onesided or length_name)):
        raise unsupported(node, facts, "axis and dft_length are constants, or the extents of its result are known")
    w = NodeWriter(node, facts)
    conditions: list[list[str]] = [[] for _ in found]
    said: list[str] = []
    if axis is None:
        said.append(f"{axis_name} must be one of {sorted({each for each, _ in found})}")
        for (each, _), held in zip(found, conditions, strict=True):
            held.append(w.add("Or", _equals(w, axis_name, each), _equals(w, axis_name, each - rank)))
    if length_name and length is None:
        said.append(f"{length_name} must be one of {sorted({work.length for _, work in found})}")
        for (_, work), held in zip(found, conditions, strict=True):
            held.append(_equals(w, length_name, work.length))
    values = [_along(w, node.input[0], extents, each, work) for each, work in found]
    return w.done([_chosen(w, values, conditions, ", ".join(said))])


def _declare(node: onnx.NodeProto, facts: ModelFacts, extents: Sequence[int | None]) -> None:
    """Declares the extents of the result, some of which ONNX infers wrongly."""
    graph = facts.model.proto.graph
    for output in (*graph.output, *graph.value_info):
        if output.name == node.output[0]:
            for dim, extent in zip(output.type.tensor_type.shape.dim, extents, strict=False):
                if extent is not None:
                    dim.dim_value = extent


def _works(
    count: int | None, made: int | None, name: str, length: int | None, inverse: bool, onesided: bool
) -> list[_DftKind]:
    """The possible transforms along an axis of `count` numbers whose result has `made` numbers."""
    if name and length is None:
        lengths = [] if made is None else [2 * made - 2, 2 * made - 1] if onesided and not inverse else [made]
    elif length is None and count is not None:
        lengths = [2 * (count - 1) if inverse and onesided else count]
    else:
        lengths = [] if length is None else [length]
    return [_DftKind(each, inverse, onesided) for each in lengths if each > 0]


def _equals(w: NodeWriter, name: str, number: int) -> str:
    return w.add("Equal", w.cast(w.reshape(name, []), 7), w.constant(np.array(number), "known"))


def _chosen(w: NodeWriter, values: Sequence[str], conditions: Sequence[Sequence[str]], said: str) -> str:
    """Selects the one of `values` whose conditions hold in the call; if none does, the call fails with `said`."""
    if not said:
        return values[0]
    fits = [w.joined("And", each) for each in conditions]
    fine = w.required(w.joined("Or", fits), said)
    found = values[0]
    for fit, value in zip(fits[1:], values[1:], strict=True):
        found = w.add("Where", fit, value, found)
    return w.add("Where", fine, found, w.add("Sub", found, found))


def _stft(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    extents, result = facts.extents(node.input[0]), facts.extents(node.output[0])
    if extents is None or len(extents) != 3 or node.input[0] not in facts.types:
        raise unsupported(node, facts, "its signal has three axes")
    window = facts.extents(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    onesided = bool(attribute(node, "onesided", 1)) and extents[2] == 1
    step_name, step = _scalar(facts, node, 1)
    name, length = _scalar(facts, node, 3)
    if len(node.input) > 2 and (array := facts.model.constants.get(node.input[2])) is not None:
        window = list(array.shape)
    if length is None and window is not None:
        name, length = "", window[0]
    works = _works(extents[1], None if result is None else result[2], name, length, inverse=False, onesided=onesided)
    if length is not None or not name:
        _declare(node, facts, [extents[0], None, works[0].extents[0], 2])
    frames = result[1] if result is not None else None
    if not works or extents[1] is None or (step is None and frames is None) or (step is not None and step < 1):
        raise unsupported(node, facts, "frame_step and frame_length are constants, or the extents of its result known")
    w = NodeWriter(node, facts)
    works = [work for work in works if work.length <= extents[1]]
    if not works:
        raise unsupported(node, facts, f"a frame has at most as many elements as its signal, {extents[1]}")
    conditions: list[list[str]] = [[] for _ in works]
    said: list[str] = []
    if name and length is None:
        said.append(f"{name} must be one of {[work.length for work in works]}")
        conditions = [[_equals(w, name, work.length)] for work in works]
    if step is None:
        said.append(f"{step_name} must give {frames} frames")
    values: list[str] = []
    for work, held in zip(works, conditions, strict=True):
        if step is None:
            places, agrees = _places_given(w, extents[1] - work.length, frames or 0, work.length, step_name)
            held.append(agrees)
        else:
            count = 1 + (extents[1] - work.length) // step
            places = w.constant(np.arange(count)[:, None] * step + np.arange(work.length), "places")
        values.append(_frames(w, work, extents, places, frames))
    return w.done([_chosen(w, values, conditions, ", ".join(said))])


def _places_given(w: NodeWriter, free: int, frames: int, length: int, step: str) -> tuple[str, str]:
    """The indices of the elements of `frames` frames, and whether a step gives that number of frames."""
    given = w.cast(w.reshape(step, []), 7)
    one, zero = (w.constant(np.array(number), "number") for number in (1, 0))
    steps = w.add("Div", w.constant(np.array(free), "free"), w.add("Max", given, one))
    agrees = w.add("Equal", steps, w.constant(np.array(frames - 1), "steps"))
    agrees = w.add("And", w.add("Greater", given, zero), agrees)
    starts = w.add("Mul", w.add("Where", agrees, given, zero), w.constant(np.arange(frames)[:, None], "frames"))
    return w.add("Add", starts, w.constant(np.arange(length), "offsets")), agrees


def _frames(w: NodeWriter, work: _DftKind, extents: Sequence[int | None], places: str, frames: int | None) -> str:
    """The transforms of the signal's frames, each multiplied by the window."""
    value = w.add("Gather", w.node.input[0], places, axis=1)
    if len(w.node.input) > 2 and w.node.input[2]:
        value = w.add("Mul", value, w.over("Unsqueeze", w.node.input[2], [1]))
    array = w.facts.model.constants.get(places)
    count = frames if array is None else array.shape[0]
    return _along(w, value, [extents[0], count, work.length, extents[2]], 2, work)


RULES: dict[str, Rule] = {"DFT": _dft, "STFT": _stft}
