"""Element types narrower than processors compute with: 8-bit floats, and types of 6, 4 and 2 bits.

A tensor of such a type is stored with one byte per element, as in `ml_dtypes`: the element's bits are the least
significant ones of the byte. Writers set the other bits to zero, readers ignore them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from motet.artifact.dtypes import DTYPES


@dataclass(frozen=True)
class ShortFloat:
    """A floating-point type: a sign, `exponent` bits with `bias`, `mantissa` bits.

    `special` is the encoding of non-finite values: `ieee` as IEEE 754; `fn`: the largest code is NaN, no infinity;
    `fnuz`: the code of −0 is NaN, no infinity; `none`: every code is a number.
    """

    name: str
    exponent: int
    mantissa: int
    bias: int
    special: Literal["ieee", "fn", "fnuz", "none"]

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def largest(self) -> int:
        """The code of the largest finite number."""
        last = (1 << (self.bits - 1)) - 1
        return {"ieee": last - (1 << self.mantissa), "fn": last - 1}.get(self.special, last)

    @property
    def infinity(self) -> int:
        """The code that overflow gives without saturation."""
        return self.largest + 1 if self.special == "ieee" else self.nan

    @property
    def nan(self) -> int:
        """The code of NaN without the sign bit; `fnuz` has only the one with it."""
        last = (1 << (self.bits - 1)) - 1
        quiet = self.largest + 1 + (1 << (self.mantissa - 1)) if self.special == "ieee" else last
        return {"fnuz": last + 1, "none": self.largest}.get(self.special, quiet)


@dataclass(frozen=True)
class ShortExponent:
    """f8E8M0FNU: powers of two from 2⁻¹²⁷ to 2¹²⁷, and NaN; no sign, no zero."""

    name: str = "f8E8M0FNU"
    bits: int = 8


@dataclass(frozen=True)
class ShortInteger:
    name: str
    bits: int
    signed: bool

    @property
    def largest(self) -> int:
        return (1 << (self.bits - self.signed)) - 1


ShortType = ShortFloat | ShortExponent | ShortInteger

SHORT_TYPES: dict[str, ShortType] = {
    kind.name: kind for kind in (
        ShortFloat("f8E4M3FN", 4, 3, 7, "fn"), ShortFloat("f8E4M3FNUZ", 4, 3, 8, "fnuz"),
        ShortFloat("f8E5M2", 5, 2, 15, "ieee"), ShortFloat("f8E5M2FNUZ", 5, 2, 16, "fnuz"), ShortExponent(),
        ShortFloat("f8E4M3", 4, 3, 7, "ieee"), ShortFloat("f8E3M4", 3, 4, 3, "ieee"),
        ShortFloat("f8E4M3B11FNUZ", 4, 3, 11, "fnuz"),
        ShortFloat("f6E2M3FN", 2, 3, 1, "none"), ShortFloat("f6E3M2FN", 3, 2, 3, "none"),
        ShortFloat("f4E2M1FN", 2, 1, 1, "none"),
        ShortInteger("i4", 4, signed=True), ShortInteger("ui4", 4, signed=False),
        ShortInteger("i2", 2, signed=True), ShortInteger("ui2", 2, signed=False),
    )
}  # fmt: skip


@functools.cache
def _by_dtype() -> dict[np.dtype[np.generic], ShortType]:
    return {DTYPES[name]: kind for name, kind in SHORT_TYPES.items()}


def short_type(dtype: np.dtype[np.generic]) -> ShortType | None:
    """The short type of numpy's `dtype`; None for other types."""
    return _by_dtype().get(dtype)


def stored(array: np.ndarray) -> np.ndarray:
    """The bytes of an array of a short type, with the unused bits set to zero."""
    kind = short_type(array.dtype)
    if kind is None:
        raise TypeError(f"{array.dtype} is no short type")
    data = np.ascontiguousarray(array).view(np.uint8).reshape(array.shape)
    return data if kind.bits == 8 else data & np.uint8((1 << kind.bits) - 1)
