"""Input specifications: tensors written on a command line.

    spec   = [{extent "x"} dtype ["=" value]]  |  "@" file.npy
    value  = number | number {"," number} | "random" [":" seed] | "@" file.npy

    64x128xf32=1.5      every element 1.5            f32=3            a scalar
    4xi32=1,2,3,4       the elements in order        64x128xf32       zeros
    8xf32=random:7      random numbers, seed 7       @x.npy           an array saved by numpy

Nested brackets around the elements (`2x2xi32=[[1,2],[3,4]]`) are allowed and ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from motet.artifact.dtypes import DTYPES, spelling
from motet.errors import OptionError, OutOfMemoryError

Array = np.ndarray[Any, np.dtype[Any]]

# Relative and absolute tolerances of a comparison: the effect of reordering a long sum in that type.
TOLERANCES: dict[str, tuple[float, float]] = {
    "f64": (1e-9, 1e-11), "f32": (1e-4, 1e-5), "f16": (1e-2, 1e-3), "bf16": (5e-2, 1e-2),
    **dict.fromkeys(("f8E4M3FN", "f8E4M3FNUZ", "f8E4M3", "f8E3M4", "f8E4M3B11FNUZ", "f6E2M3FN"), (2e-1, 1e-1)),
    **dict.fromkeys(("f8E5M2", "f8E5M2FNUZ", "f6E3M2FN", "f4E2M1FN"), (4e-1, 2e-1)), "f8E8M0FNU": (1.0, 0.0),
}  # fmt: skip

_FORM = ("expected EXTENTxEXTENTxDTYPE=VALUE, such as 64x128xf32=1.5, 4xi32=1,2,3,4, 8xf32=random:7, "
         "or @file.npy")
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F]+|nan|inf|true|false|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"(?![^\], ])"
)


def type_name(array: Array) -> str:
    """`64x128xf32`, as in a specification."""
    return "x".join([*map(str, array.shape), spelling(array.dtype)])


def parse_spec(text: str) -> Array:
    """Creates the tensor that `text` describes.

    Raises `OptionError`, with the position of the error, for invalid text, an unreadable file, and a value that does
    not fit the type; `OutOfMemoryError` for a tensor that does not fit in memory.
    """
    if text.startswith("@"):
        return _load(text, Path(text[1:]))
    head, equals, value = text.partition("=")
    shape, dtype = _parse_type(text, head)
    start = len(head) + len(equals)
    try:
        if value.startswith("@"):
            return _load_as(text, Path(value[1:]), shape, dtype)
        if value == "random" or value.startswith("random:"):
            return random_tensor(shape, dtype, _parse_seed(text, value, start))
        if not equals:
            return np.zeros(shape, DTYPES[dtype])
        return _parse_elements(text, start, shape, dtype)
    except MemoryError:
        raise OutOfMemoryError(math.prod(shape) * DTYPES[dtype].itemsize, "host") from None


def random_tensor(shape: Sequence[int], dtype: str, seed: int) -> Array:
    """Random elements: standard normal for floating-point types (magnitudes for f8E8M0FNU, which has no sign), 0 to 7
    for integers, so that they can serve as indices (or as many of these as the type has), either truth value for
    `i1`."""
    generator = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    if dtype not in TOLERANCES:
        return generator.integers(0, min(8, _range(dtype)[1] + 1), shape).astype(kind)
    single = np.float64 if dtype == "f64" else np.float32
    numbers = np.asarray(generator.standard_normal(shape, dtype=single))
    return (np.abs(numbers) if dtype == "f8E8M0FNU" else numbers).astype(kind)


def _range(dtype: str) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    if dtype == "i1":
        return 0, 1
    limits: Any = ml_dtypes.iinfo(DTYPES[dtype])
    return int(limits.min), int(limits.max)


@dataclass(frozen=True)
class Difference:
    """The comparison of a result: `first` is the first index that is out of tolerance (None: all agree)."""

    first: tuple[int, ...] | None
    count: int
    largest: float


def compare(result: Array, expected: Array) -> Difference:
    """Compares two tensors of the same shape and dtype, floating-point ones within `TOLERANCES`, others exactly. NaN
    equals NaN, and an infinity only itself."""
    relative, absolute = TOLERANCES.get(spelling(expected.dtype), (0.0, 0.0))
    if not relative:
        wrong = result != expected
        apart = np.abs(result.astype(np.float64) - expected.astype(np.float64))
    else:
        got, wanted = result.astype(np.float64), expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.where((got == wanted) | (np.isnan(got) & np.isnan(wanted)), 0.0, np.abs(got - wanted))
        wrong = ~(apart <= absolute + relative * np.abs(np.where(np.isfinite(wanted), wanted, 0.0)))
    places = np.argwhere(wrong)
    first = tuple(int(i) for i in places[0]) if len(places) else None
    return Difference(first, len(places), float(np.max(apart, initial=0.0)))


def _fail(text: str, position: int, message: str) -> OptionError:
    return OptionError(f"input '{text}': column {position + 1}: {message}")


def _parse_type(text: str, head: str) -> tuple[tuple[int, ...], str]:
    shape: list[int] = []
    position = 0
    while match := re.compile(r"([0-9]+|\?)x").match(head, position):
        if match[1] == "?":
            raise _fail(text, position, "'?' is no extent; expected a number: an input has a size")
        shape.append(int(match[1]))
        position = match.end()
    dtype = head[position:]
    if dtype not in DTYPES:
        if not dtype or not re.fullmatch(r"[A-Za-z]\w*", dtype) or "x" in dtype:
            raise _fail(text, position, f"'{dtype}' is neither an extent nor a dtype; {_FORM}")
        raise _fail(text, position, f"there is no dtype '{dtype}'; expected one of {', '.join(DTYPES)}")
    if math.prod(shape) * DTYPES[dtype].itemsize >= 1 << 63:
        raise _fail(text, 0, "the tensor is larger than any memory; expected less than 2^63 bytes")
    return tuple(shape), dtype


def _parse_seed(text: str, value: str, start: int) -> int:
    seed = value.removeprefix("random").removeprefix(":")
    if value != "random" and not re.fullmatch(r"[0-9]+", seed):
        raise _fail(text, start + len("random:"), f"'{seed}' is no seed; expected a number, such as random:7")
    return int(seed or 0)


def _parse_elements(text: str, start: int, shape: tuple[int, ...], dtype: str) -> Array:
    items: list[int | float] = []
    depth, position = 0, start
    while position < len(text):
        character = text[position]
        if character in "[], ":
            depth += {"[": 1, "]": -1}.get(character, 0)
            if depth < 0:
                raise _fail(text, position, "']' closes nothing; expected as many '[' as ']'")
            position += 1
        elif match := _NUMBER.match(text, position):
            items.append(_number(text, position, match[0], dtype))
            position = match.end()
        else:
            raise _fail(text, position, f"'{text[position:]}' is no number; {_FORM}")
    if depth:
        raise _fail(text, position, "']' is missing; expected as many as '['")
    count = math.prod(shape)
    if len(items) == 1:
        return np.full(shape, items[0], DTYPES[dtype])
    if len(items) != count:
        raise _fail(text, start, f"{len(items)} elements; expected {count}, or one for all")
    return np.array(items, DTYPES[dtype]).reshape(shape)


def _number(text: str, position: int, word: str, dtype: str) -> int | float:
    kind = DTYPES[dtype]
    name = word.lstrip("+-").lower()
    if name in ("true", "false"):
        if dtype != "i1":
            raise _fail(text, position, f"'{word}' is a truth value; expected a number of type {dtype}")
        return int(name == "true")
    is_hexadecimal = name.startswith("0x")
    if dtype in TOLERANCES:
        number = float(int(word, 16)) if is_hexadecimal else float(word)
        if not _fits(number, name, kind):
            raise _fail(text, position, f"{word} does not fit {dtype}; its numbers are {_span(kind)}")
        return number
    try:
        value = int(word, 16 if is_hexadecimal else 10)
    except ValueError:
        raise _fail(text, position, f"'{word}' is no whole number; expected one, of type {dtype}") from None
    low, high = _range(dtype)
    if not low <= value <= high:
        raise _fail(text, position, f"{word} does not fit {dtype}; expected {low} to {high}")
    return value


def _fits(number: float, name: str, kind: np.dtype[Any]) -> bool:
    """Whether a floating-point type can represent `number`, rounded; some lack infinity, NaN, sign or zero."""
    with np.errstate(all="ignore"):
        made = np.array(number).astype(kind).astype(np.float64)
    if name in ("inf", "nan"):
        return bool(np.isnan(made)) if name == "nan" else not np.isfinite(made)
    limits: Any = ml_dtypes.finfo(kind)
    least, most = float(limits.min), float(limits.max)
    half = float(limits.eps) * 2.0 ** (math.frexp(most)[1] - 1) / 2  # half a unit in the last place
    return bool(np.isfinite(made)) and least - (half if least < 0 else 0) <= number <= most + half


def _span(kind: np.dtype[Any]) -> str:
    limits: Any = ml_dtypes.finfo(kind)
    return f"{float(limits.min):g} to {float(limits.max):g}"


def _load(text: str, path: Path) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise OptionError(f"input '{text}': {path} cannot be read: {error.strerror or error}; "
                          "expected an array saved by numpy.save") from None
    except (ValueError, EOFError) as error:
        raise OptionError(f"input '{text}': {path} is no array that numpy saved (.npy): {error}") from None
    # A file of a dtype that numpy does not know (bf16) has raw bytes.
    if array.dtype.kind == "V":
        named = "x".join([*map(str, array.shape), f"bf16={text}"])
        raise OptionError(f"input '{text}': {path} does not say what its {array.dtype.itemsize}-byte "
                          f"elements are; name the type: {named}")
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    return array


def _load_as(text: str, path: Path, shape: tuple[int, ...], dtype: str) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        array = _load(text, path)
    kind = DTYPES[dtype]
    if array.dtype.kind == "V" and array.dtype.itemsize == kind.itemsize:
        array = array.view(kind)
    if array.shape != shape or array.dtype != kind:
        raise OptionError(f"input '{text}': {path} holds {type_name(array)}; "
                          f"expected {'x'.join([*map(str, shape), dtype])}")
    return array
