"""What is carried to a GPU: an artifact of several forms, their inputs, and how far results may be from what is right.

Needs numpy, msgspec and Motet's runtime alone. What is right was calculated elsewhere, by the reference of the ONNX
package, by PyTorch, or by the naive lowering.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from motet.artifact.dtypes import DTYPES, spelling

_FLOATS = ("f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2")


class Array(msgspec.Struct, frozen=True):
    """An array: its `data`, or, without that, what `generated` makes of `seed`."""

    dtype: str
    shape: list[int]
    data: bytes = b""
    seed: int = 0
    special: bool = False

    @classmethod
    def of(cls, array: np.ndarray) -> Array:
        return cls(spelling(array.dtype), list(array.shape), np.ascontiguousarray(array).tobytes())

    def array(self) -> np.ndarray:
        if self.seed:
            return generated(self.dtype, self.shape, self.seed, self.special)
        return np.frombuffer(self.data, DTYPES[self.dtype]).reshape(self.shape).copy()


class Expected(msgspec.Struct, frozen=True):
    """One result: its `dtype`, and what it should be, `exact`, of that or a wider dtype. An element of a floating one
    may be off by `relative` of itself (of the largest, with `mixed`) and by `tiny`; those in `free` may be anything:
    there the reference itself depends on how it is calculated. Of a large result, `exact` has the elements that
    `sample` chooses, and `shape` is that of all."""

    dtype: str
    exact: Array
    relative: float = 0.0
    tiny: float = 0.0
    mixed: bool = False
    free: bytes = b""
    shape: list[int] | None = None

    def fault(self, found: np.ndarray) -> str:
        """What is wrong with `found`; empty when nothing is."""
        want = self.exact.array()
        shape = want.shape if self.shape is None else tuple(self.shape)
        if found.dtype != DTYPES[self.dtype] and found.dtype.kind in "iu" and self.dtype in ("ui8", "i8", "i1"):
            found = found.view(DTYPES[self.dtype])  # programs have integers without sign
        if found.dtype != DTYPES[self.dtype] or found.shape != shape:
            return f"{spelling(found.dtype)}{list(found.shape)}, expected {self.dtype}{list(shape)}"
        if self.shape is not None:
            found = sample(found)
        wrong = self._wrong(found, want)
        if self.free:
            free = np.unpackbits(np.frombuffer(self.free, np.uint8), count=want.size)
            wrong &= ~free.astype(bool).reshape(want.shape)
        if not wrong.any():
            return ""
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        return (f"{int(wrong.sum())} of {wrong.size} wrong, the first at {place}: {found[place]!r}, "
                f"expected {want[place]!r}")

    def _wrong(self, found: np.ndarray, want: np.ndarray) -> np.ndarray:
        if self.dtype not in _FLOATS:
            return found != want
        with np.errstate(all="ignore"):
            value, target = found.astype(np.float64), want.astype(np.float64)
            limit = largest(self.dtype)
            size = np.abs(np.where(np.isfinite(target), target, 0))
            if self.mixed and size.size:
                size = np.maximum(size, size.max())
            close = np.abs(value - target) <= self.relative * size + self.tiny
            same = (value == target) | (np.isnan(value) & np.isnan(target))
            far = np.abs(target) > limit  # may round to infinity or to the largest
            over = far & (np.sign(value) == np.sign(target)) & (np.abs(value) >= limit * 0.99)
        return ~(close | same | over)


class Case(msgspec.Struct, frozen=True):
    """A form: what it is called, and its results, which follow those of the forms before it."""

    group: str
    name: str
    results: list[Expected]


class Bundle(msgspec.Struct, frozen=True):
    """Forms that are one program. `inputs` are those of all of them."""

    inputs: list[Array]
    cases: list[Case]

    def faults(self, results: Sequence[np.ndarray]) -> dict[str, str]:
        """What is wrong, by the name of the form."""
        count = sum(len(case.results) for case in self.cases)
        if len(results) != count:
            return {case.name: f"the program has {len(results)} results, expected {count}" for case in self.cases}
        found: dict[str, str] = {}
        rest = list(results)
        for case in self.cases:
            mine, rest = rest[: len(case.results)], rest[len(case.results) :]
            texts = [expected.fault(one) for expected, one in zip(case.results, mine, strict=True)]
            if any(texts):
                found[case.name] = "; ".join(f"result {i}: {text}" for i, text in enumerate(texts) if text)
        return found


def generated(dtype: str, shape: Sequence[int], seed: int, special: bool) -> np.ndarray:
    """Random numbers, the same with every version of numpy: multiples of 1/8 up to 4, integers up to 9 or, where
    `special`, of all sizes; with `special` also NaN, infinities, zeros of both signs, very small and large numbers."""
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.random.PCG64(seed).random_raw(count).astype(np.uint64) >> np.uint64(11)
    kind = DTYPES[dtype]
    if dtype == "i1":
        return (raw & np.uint64(1)).astype(bool).reshape(shape)
    if dtype not in _FLOATS:
        least = 0 if kind.kind == "u" else -9
        numbers = ((raw % np.uint64(19)).astype(np.int64) + least).astype(kind)
        if special and count:
            info = np.iinfo(kind)
            extremes = np.array([info.min, info.max, info.max // 2 + 1, info.min + 1, 0], kind)
            chosen = (raw >> np.uint64(20)) % np.uint64(11)
            numbers = np.where(chosen < 5, extremes[np.minimum(chosen, 4).astype(np.int64)], numbers)
        return numbers.reshape(shape)
    floats = (raw % np.uint64(65)).astype(np.float64) / 8 - 4
    if special and count:
        extremes = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 6e-8, 3e4, -1e30, 90.0, -90.0])
        chosen = (raw >> np.uint64(20)) % np.uint64(41)
        floats = np.where(chosen < 11, extremes[np.minimum(chosen, 10).astype(np.int64)], floats)
    with np.errstate(all="ignore"):
        return floats.astype(kind).reshape(shape)


def sample(array: np.ndarray) -> np.ndarray:
    """1021 elements of a large array: the first and last ones, and others spread over it."""
    flat = array.reshape(-1)
    spread = np.random.PCG64(7).random_raw(991).astype(np.uint64) % np.uint64(max(1, flat.size))
    return flat[np.concatenate([np.arange(15), spread.astype(np.int64), np.arange(flat.size - 15, flat.size)])]


def largest(dtype: str) -> float:
    """The largest finite number of a floating dtype."""
    known = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f8E4M3FN": 448.0, "f8E5M2": 57344.0}
    return known[dtype] if dtype in known else float(np.finfo(DTYPES[dtype]).max)


def exact_array(want: np.ndarray, dtype: str) -> Array:
    """`want` in as few bytes as the comparison needs."""
    if dtype not in _FLOATS:
        return Array.of(want.astype(DTYPES[dtype]))
    wide = want.astype(np.float64)
    if dtype == "f64":
        return Array.of(wide)
    with np.errstate(all="ignore"):
        narrow = wide.astype(np.float32)
        alike = (np.abs(narrow - wide) <= 6e-8 * np.abs(wide) + 1e-40) | (narrow == wide) | np.isnan(wide)
    return Array.of(narrow if alike.all() else wide)
