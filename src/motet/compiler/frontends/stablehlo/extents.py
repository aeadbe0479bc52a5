"""Extents of tensors that StableHLO's rewrites compute with: static ones are ints, dynamic ones products."""

from __future__ import annotations

from motet.compiler.ir.current import DYNAMIC


class DynamicExtent(int):
    """`factor` times the product of the named extents. As an int, it is what shapes of MLIR hold for dynamic extents.

    Two of them are equal if their products are known to be the same.
    """

    factor: int
    names: tuple[str, ...]

    def __new__(cls, factor: int, names: tuple[str, ...]) -> DynamicExtent:
        made = super().__new__(cls, DYNAMIC)
        made.factor, made.names = factor, tuple(sorted(names))
        return made

    def __mul__(self, other: int) -> int:
        if isinstance(other, DynamicExtent):
            return DynamicExtent(self.factor * other.factor, self.names + other.names)
        return DynamicExtent(self.factor * other, self.names) if other else 0

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> int:
        """The quotient by one of the factors."""
        factor, removed = (other.factor, other.names) if isinstance(other, DynamicExtent) else (other, ())
        left = list(self.names)
        for name in removed:
            left.remove(name)
        return DynamicExtent(self.factor // factor, tuple(left)) if left else self.factor // factor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DynamicExtent) and (self.factor, self.names) == (other.factor, other.names)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.factor, self.names))
