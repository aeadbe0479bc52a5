"""What an operator may demand of extents: a relation of two axes, the extent of an axis, or a number of elements.

    Tie(1, 0, 0, 1)    →    extents (9, 9)    9 == 9, when compiling
                            ONNX nodes        Equal(Gather(Shape(b), 0), Gather(Shape(a), 1))
                            the dialect torch arith.cmpi eq, tensor.dim %b, 0, tensor.dim %a, 1

A demand is one formula, of numbers when compiling; in assertions, of a `Size` for each axis that a call decides.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from motet.compiler.frontends.onnx.model import Extents


def _written(name: str, *, swapped: bool = False) -> Callable[[Size, Any], Size]:
    def write(own: Size, other: Any) -> Size:
        sides = own.value, other.value if isinstance(other, Size) else other
        return Size(own.write(name, *(reversed(sides) if swapped else sides)), own.write)

    return write


@dataclass(frozen=True, eq=False)
class Size:
    """A value of a call for which `write` writes the operators of Python; the other operand may be a number."""

    value: Any
    write: Callable[[str, Any, Any], Any]

    __add__, __mul__, __floordiv__, __mod__ = (_written(name) for name in ("+", "*", "//", "%"))
    __rmul__, __ge__ = _written("*", swapped=True), _written("<=", swapped=True)
    __eq__, __le__ = _written("=="), _written("<=")  # pyright: ignore[reportAssignmentType]

    def __or__(self, other: Size | bool) -> Size:
        """A condition, or one that is known not to hold."""
        return Size(self.write("|", self.value, other.value), self.write) if isinstance(other, Size) else self

    __ror__ = __or__


class Demand(ABC):
    """What an operator demands of the extents at `places`, inputs and axes of its node; `number` is the first input."""

    number: int

    @property
    @abstractmethod
    def places(self) -> Sequence[tuple[int, int]]: ...

    @abstractmethod
    def fits(self, *extents: Any) -> Any:
        """Whether the extents fit: a bool, or a `Size` where one of them is a `Size`. Call it for a `Size` only if the
        extents do not hold anyway."""

    @abstractmethod
    def holds(self, extents: Extents) -> bool:
        """Whether extents that are not all known when compiling fit in every call."""


@dataclass(frozen=True)
class Tie(Demand):
    """Axis `axis` of input `number` has `times` the extent of axis `along` of input `of`, or one element for every
    `block` of its elements. It may also be 1 if it `stretches`; with `either`, the other one may be, too. Or it is
    `at_most` the other one."""

    number: int
    axis: int
    of: int
    along: int
    stretches: bool = False
    either: bool = False
    block: int = 1
    times: int = 1
    at_most: bool = False

    @property
    def places(self) -> Sequence[tuple[int, int]]:
        return (self.number, self.axis), (self.of, self.along)

    def __str__(self) -> str:
        own, other = f"axis {self.axis} of input {self.number}", f"axis {self.along} of input {self.of}"
        if self.block > 1:
            return f"{own} must be the number of blocks of {self.block} along {other}"
        if self.times > 1:
            return f"{own} must be {self.times} times {other}"
        if self.at_most:
            return f"{own} must be at most {other}"
        if self.either:
            return f"{own} and {other} must be equal, or one of them 1"
        return f"{own} must be 1, or equal to {other}" if self.stretches else f"{own} and {other} must be equal"

    def fits(self, *extents: Any) -> Any:
        own, other = extents
        if self.at_most:
            return own <= other
        wanted = other * self.times if self.times > 1 else other
        met = own == ((wanted + (self.block - 1)) // self.block if self.block > 1 else wanted)
        if self.stretches or self.either:
            met = met | (own == 1)
        return met | (other == 1) if self.either else met

    def holds(self, extents: Extents) -> bool:
        own, other = extents
        if own is not None and own == other and self.block == self.times == 1:
            return True
        return (own == 1 and (self.stretches or self.either)) or (other == 1 and self.either)


@dataclass(frozen=True)
class Fixed(Demand):
    """Axis `axis` of input `number` has the extent `count`, or a multiple of it, or is `at_least` that long. It may be
    1, too, if it `stretches`."""

    number: int
    axis: int
    count: int
    multiple: bool = False
    stretches: bool = False
    at_least: bool = False
    reason: str = ""

    @property
    def places(self) -> Sequence[tuple[int, int]]:
        return ((self.number, self.axis),)

    def __str__(self) -> str:
        wanted = f"a multiple of {self.count}" if self.multiple else str(self.count)
        before = "at least " if self.at_least else "1, or " if self.stretches and self.count != 1 else ""
        return f"axis {self.axis} of input {self.number} must be {before}{wanted}{self.reason}"

    def fits(self, *extents: Any) -> Any:
        own = extents[0]
        if self.at_least:
            return self.count <= own
        met = own % self.count == 0 if self.multiple else own == self.count
        return met | (own == 1) if self.stretches and self.count != 1 else met

    def holds(self, extents: Extents) -> bool:
        return self.count <= 0 if self.at_least else self.multiple and self.count == 1


@dataclass(frozen=True)
class Counted(Demand):
    """Input `number`, of rank `rank`, has `count` elements, or a multiple of it."""

    number: int
    rank: int
    count: int
    multiple: bool = False

    @property
    def places(self) -> Sequence[tuple[int, int]]:
        return [(self.number, axis) for axis in range(self.rank)]

    def __str__(self) -> str:
        return f"the elements of input {self.number} must be {'a multiple of ' if self.multiple else ''}{self.count}"

    def fits(self, *extents: Any) -> Any:
        count = math.prod(extents[1:], start=extents[0]) if extents else 1
        return count % self.count == 0 if self.multiple else count == self.count

    def holds(self, extents: Extents) -> bool:
        return 0 in extents and (self.multiple or not self.count)
