"""Which dimensions a reshape merges and splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Group = tuple[list[int], list[int]]  # axes of the source, and of the target


@dataclass(frozen=True)
class Monomial:
    """A number times powers of expressions that are not products."""

    number: int
    factors: tuple[tuple[str, int], ...] = ()

    def times(self, other: Monomial) -> Monomial:
        powers = Counter(dict(self.factors))
        powers.update(dict(other.factors))
        return Monomial(self.number * other.number, tuple(sorted(powers.items())))

    def over(self, other: Monomial) -> Monomial | None:
        """The quotient if it is a monomial; None otherwise."""
        if not other.divides(self):
            return None
        powers = Counter(dict(self.factors))
        powers.subtract(dict(other.factors))
        return Monomial(self.number // other.number, tuple(sorted((f, p) for f, p in powers.items() if p)))

    def divides(self, other: Monomial) -> bool:
        powers = dict(other.factors)
        return (
            self.number != 0
            and other.number % self.number == 0
            and all(powers.get(factor, 0) >= power for factor, power in self.factors)
        )


def match_groups(source: Sequence[Monomial], target: Sequence[Monomial]) -> list[Group]:
    """The smallest groups of consecutive axes of both sides with equal products: b×l×16 and (b·l)×16 are
    ([0, 1], [0]) and ([2], [1])."""
    groups: list[Group] = []
    i = j = 0
    while i < len(source) and j < len(target):
        before, after = [i], [j]
        left, right = source[i], target[j]
        i, j = i + 1, j + 1
        while left != right:
            if right.divides(left) and j < len(target):
                right = right.times(target[j])
                after.append(j)
                j += 1
            elif left.divides(right) and i < len(source):
                left = left.times(source[i])
                before.append(i)
                i += 1
            else:  # only the order is known: all remaining axes form one group
                before += range(i, len(source))
                after += range(j, len(target))
                return [*groups, (before, after)]
        groups.append((before, after))
    if not groups:
        return [(list(range(len(source))), list(range(len(target))))] if source or target else []
    groups[-1][0].extend(range(i, len(source)))  # extents of 1 at the end
    groups[-1][1].extend(range(j, len(target)))
    return groups
