"""Writes StableHLO's Fourier transforms as products with matrices of roots of unity, one dimension at a time.

    stablehlo.fft %z, type = FFT, length = [n]      →     z · F(n), for small or prime n
                                                          else, for n = a · b, transforms of length a, twiddle
                                                          factors, and transforms of length b (Cooley and Tukey)

Real and imaginary parts are separate tensors. The transform of real numbers omits the redundant half of the spectrum;
its inverse reconstructs it.
"""

from __future__ import annotations

from math import prod

import numpy as np

from motet.compiler.frontends.locations import locate
from motet.compiler.frontends.stablehlo.writing import StablehloText, V
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.errors import CompileError

_SMALL = 32  # the largest length computed as one product
_LARGEST_PRIME = 4096  # the largest prime length, whose matrix is a constant

Pair = tuple[V, V]


def write_transforms(module: ir.Module) -> None:
    """Rewrites each `stablehlo.fft` in place."""
    for op in find_operations(module, "stablehlo.fft"):
        _Transform(op).write()


class _Transform:
    def __init__(self, op: ir.Operation) -> None:
        self.op, self.w = op, StablehloText(op)

    def write(self) -> None:
        w, (x,) = self.w, self.w.operands
        said = self.op.attributes["fft_length"]
        lengths = list(ir.DenseI64ArrayAttr(said))
        kind = str(self.op.attributes["fft_type"]).rstrip(">").split()[-1]
        axes = list(range(len(x.shape) - len(lengths), len(x.shape)))
        if unknown := [axis for axis in axes if x.shape[axis] < 0]:
            raise CompileError(
                f"stablehlo.fft: dimension {unknown[0]}, which is transformed, has no static size; expected static "
                "sizes of transformed dimensions; others may be dynamic", locate(self.op.location),
            )  # fmt: skip
        if not prod(x.shape) or not prod(ir.RankedTensorType(self.op.results[0].type).shape):
            result = ir.RankedTensorType(self.op.results[0].type)
            zero = "(0.0, 0.0)" if "complex" in str(result.element_type) else 0.0
            w.replace([w.constant(zero, result.shape, str(result.element_type))])
            return
        if kind == "RFFT":
            pair = x, w.constant(0.0, x.shape, x.element)
        else:
            real = x.element[8:-1]
            pair = w.unary("real", x, real), w.unary("imag", x, real)
        sign = -1 if kind in ("FFT", "RFFT") else 1
        if kind == "IRFFT":
            for axis in axes[:-1]:
                pair = self._along(pair, axis, 1)
            pair = self._along(self._mirrored(pair, axes[-1], lengths[-1]), axes[-1], 1)
        else:
            for axis in reversed(axes):
                pair = self._along(pair, axis, sign)
                if kind == "RFFT" and axis == axes[-1]:
                    pair = self._each(pair, lambda part: w.along(part, axes[-1], 0, lengths[-1] // 2 + 1))
        if sign > 0:
            scale = w.constant(float(prod(lengths)), pair[0].shape, pair[0].element)
            pair = self._each(pair, lambda part: w.binary("divide", part, scale))
        if kind == "IRFFT":
            w.replace([pair[0]])
            return
        kinds = f"stablehlo.complex {pair[0].name}, {pair[1].name}"
        complex_ = f"complex<{pair[0].element}>"
        shape = pair[0].shape
        w.replace([w.line(f"{kinds} : {V('', shape, complex_).kind}", shape, complex_)])

    def _each(self, pair: Pair, function: object) -> Pair:
        return function(pair[0]), function(pair[1])  # type: ignore[operator]

    def _mirrored(self, pair: Pair, axis: int, length: int) -> Pair:
        """The full spectrum of a given half: element n - k is the conjugate of element k. The imaginary parts of the
        first and the middle element are ignored."""
        w, given = self.w, pair[0].shape[axis]
        parts: list[V] = []
        for number, part in enumerate(pair):
            begin = part
            if number == 1:
                ends = [0, length // 2] if length % 2 == 0 else [0]
                place = w.iota(part.shape, "i32", axis)
                for end in ends:
                    there = w.compare("EQ", place, w.constant(end, part.shape, "i32"))
                    begin = w.select(there, w.constant(0.0, part.shape, part.element), begin)
            rest = length - given
            pieces = [w.along(begin, axis, 0, given)]
            if rest > 0:
                back = w.reverse(w.along(begin, axis, 1, 1 + rest), axis)
                pieces.append(w.unary("negate", back) if number == 1 else back)
            parts.append(w.concatenate(pieces, axis) if len(pieces) > 1 else pieces[0])
        return parts[0], parts[1]

    def _along(self, pair: Pair, axis: int, sign: int) -> Pair:
        """The transform along one dimension."""
        w, shape = self.w, pair[0].shape
        order = [d for d in range(len(shape)) if d != axis] + [axis]
        back = [order.index(d) for d in range(len(shape))]
        lines = (prod(shape) // shape[axis], shape[axis])
        pair = self._each(pair, lambda part: w.reshape(w.transpose(part, order), lines))
        pair = self._lines(pair, sign)
        moved = [shape[d] for d in order]
        return self._each(pair, lambda part: w.transpose(w.reshape(part, moved), back))

    def _lines(self, pair: Pair, sign: int) -> Pair:
        """The transforms of rows."""
        w, (count, length) = self.w, pair[0].shape
        a = _factor(length)
        if a == 1:
            if length > _LARGEST_PRIME:
                raise CompileError(
                    f"stablehlo.fft: the length has the prime factor {length}; "
                    f"expected factors up to {_LARGEST_PRIME}; pad the tensor",
                    locate(self.op.location),
                )
            return self._product(pair, _roots(length, length, length, sign))
        # x[i · b + j] → X[k + a · l]: over i first, then over j.
        b = length // a
        split = self._each(pair, lambda part: w.transpose(w.reshape(part, (count, a, b)), [0, 2, 1]))
        inner = self._lines(self._each(split, lambda part: w.reshape(part, (count * b, a))), sign)
        inner = self._each(inner, lambda part: w.reshape(part, (count, b, a)))
        turned = self._multiply(inner, _roots(b, a, length, sign))
        swapped = self._each(turned, lambda part: w.reshape(w.transpose(part, [0, 2, 1]), (count * a, b)))
        outer = self._lines(swapped, sign)
        joined = self._each(outer, lambda part: w.transpose(w.reshape(part, (count, a, b)), [0, 2, 1]))
        return self._each(joined, lambda part: w.reshape(part, (count, length)))

    def _constants(self, roots: np.ndarray, element: str) -> Pair:
        real, imaginary = (
            self.w.constant(np.array2string(part, separator=",", threshold=part.size + 1, floatmode="unique",
                                            formatter={"float_kind": lambda x: f"{x:.17e}"}), roots.shape, element)
            for part in (np.real(roots), np.imag(roots))
        )  # fmt: skip
        return real, imaginary

    def _product(self, pair: Pair, roots: np.ndarray) -> Pair:
        w, (x, y) = self.w, pair
        u, v = self._constants(roots, x.element)
        dot = lambda a, b: w.dot(a, b, (1, 0))  # noqa: E731
        return w.binary("subtract", dot(x, u), dot(y, v)), w.binary("add", dot(x, v), dot(y, u))

    def _multiply(self, pair: Pair, roots: np.ndarray) -> Pair:
        w, (x, y) = self.w, pair
        u, v = (w.broadcast(part, x.shape, [1, 2]) for part in self._constants(roots, x.element))
        product = lambda a, b: w.binary("multiply", a, b)  # noqa: E731
        real = w.binary("subtract", product(x, u), product(y, v))
        return real, w.binary("add", product(x, v), product(y, u))


def _roots(rows: int, columns: int, length: int, sign: int) -> np.ndarray:
    """exp(sign · 2πi · j · k / length), with the angles reduced modulo 2π."""
    exponents = np.outer(np.arange(rows), np.arange(columns)) % length
    return np.exp(sign * 2j * np.pi * exponents / length)


def _factor(length: int) -> int:
    """The largest factor up to `_SMALL` of a larger length; 1 if the length is small or has none."""
    if length <= _SMALL:
        return 1
    return max(a for a in range(1, _SMALL + 1) if length % a == 0) if any(
        length % a == 0 for a in range(2, _SMALL + 1)
    ) else next((a for a in range(_SMALL + 1, int(length**0.5) + 1) if length % a == 0), 1)
