"""The rules by which an operation joins others in one kernel, for grouping and for the units of automatic placement.

| operation | joins a group | if |
|---|---|---|
| element-wise | that is element-wise, a contraction, a convolution or a window | both run over the same space |
| element-wise | of reductions | it runs over the rows, or over all their elements where those are the last dimensions |
| reduction | that is element-wise | it reduces the last dimensions of the group's space, or alone reads the group |
| reduction | of reductions | it reduces the same last dimensions of the same space |
| element-wise | of gathers | both run over the same space |
| gather | that is element-wise, or of gathers | both run over the same space |
| gather | of reductions | it runs over the rows |

Where programs of a GPU hold rows of any dimensions (`hold-rows`), these count as the last; only there are gathers told
from other work that nothing joins. A group has at most
`LARGEST_GROUP` operations, and an operation does not join if two groups would then depend on each other (`waits_for`).
The passes add their own conditions: grouping on how values are read, placement on where operations run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from motet.compiler.kernels.roles import DENSE_ROLES, Role, Structure

LARGEST_GROUP = 48  # operations; beyond, code grows faster than memory traffic shrinks
JOINING = (Role.ELEMENTWISE, Role.REDUCTION)
POINTWISE = (Role.ELEMENTWISE, Role.GATHER)
WRITTEN = (*DENSE_ROLES, Role.WINDOW)  # roles whose space is that of their result, without reductions

G = TypeVar("G", bound=Hashable)


@dataclass(frozen=True)
class Space:
    """The loops of an operation without those of extent 1: their extents (None: dynamic), the positions of the
    reductions, and whether one program holds what they reduce, in whatever dimensions (`hold-rows`)."""

    extents: tuple[int | None, ...] = ()
    reduced: frozenset[int] = frozenset()
    held: bool = False

    @property
    def outer(self) -> tuple[int | None, ...]:
        return tuple(size for position, size in enumerate(self.extents) if position not in self.reduced)

    @property
    def is_trailing(self) -> bool:
        """Whether the last loops, and only they, are reduced."""
        rank = len(self.extents)
        return bool(self.reduced) and self.reduced == frozenset(range(rank - len(self.reduced), rank))

    @property
    def is_rows(self) -> bool:
        """Whether what runs over the elements of the rows joins their reductions."""
        return self.held or self.is_trailing


def space_of(structure: Structure, held: bool = False) -> Space:
    """The space of a loop nest, whose rows are `held` in a program or not."""
    kept = [i for i, size in enumerate(structure.sizes) if size != 1]
    reduced = frozenset(position for position, i in enumerate(kept) if i in structure.reduced)
    return Space(tuple(structure.sizes[i] for i in kept), reduced, held)


def written_space(structure: Structure) -> Space:
    """The space of the tensor that a nest writes, in order of its dimensions."""
    written = [structure.sizes[e.single] for e in structure.maps[-1] if e.single is not None]
    return Space(tuple(size for size in written if size != 1))


def may_join(role: Role, space: Space, group: Role, among: Space, is_only_reader: Callable[[], bool]) -> bool:
    """Whether an operation of `role` over `space` may join a group of role `group` over `among`. `is_only_reader` is
    whether only the operation reads the group."""
    if role is Role.ELEMENTWISE:
        if group is Role.REDUCTION:
            return space.extents == among.outer or (space.extents == among.extents and among.is_rows)
        return group in (*POINTWISE, *WRITTEN) and space.extents == among.extents
    if role is Role.GATHER:
        return space.extents == among.outer if group is Role.REDUCTION else (
            group in POINTWISE and space.extents == among.extents
        )
    if role is not Role.REDUCTION:
        return False
    if group is Role.ELEMENTWISE:
        return space.extents == among.extents and (space.is_rows or is_only_reader())
    return group is Role.REDUCTION and space == among and space.is_rows


def waits_for(
    later: G, earlier: G, depends: Callable[[G], Iterable[G]], ends_before: Callable[[G], bool] = lambda group: False
) -> bool:
    """Whether group `later` depends on `earlier`, directly or indirectly. `ends_before` is true of groups that cannot
    depend on `earlier`, because they are complete before it begins."""
    seen: set[G] = set()
    stack = [later]
    while stack:
        current = stack.pop()
        if current == earlier:
            return True
        if current not in seen and not ends_before(current):
            seen.add(current)
            stack.extend(depends(current))
    return False
