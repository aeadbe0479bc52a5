"""Finds the dimensions of several stages that share one loop, by the accesses through which stages read earlier
values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Access, Stage

Dimension = tuple[int, int]  # a stage and one of its dimensions
Class = dict[int, int]  # dimensions that share a loop, by stage
# How an entry of the map by which a stage reads a value, and of the map by which it was written, link their dimensions:
# pairs of dimensions, or None if the stages cannot run together.
Link = Callable[[Affine, Stage, Affine, Stage], Sequence[tuple[int, int]] | None]


def linked_dimensions(
    stages: Sequence[Stage], takes: Callable[[Stage, int], bool], link: Link
) -> list[Class] | None:
    """The classes of linked dimensions for which `takes` holds; None if a value is written twice or accumulates into an
    earlier one, if `link` returns None, or if two dimensions of one stage would be in the same class."""
    links = _Links(takes, link)
    return links.classes.found() if all(map(links.add, stages)) else None


def count_linked(stages: Sequence[Stage], link: Link) -> int:
    """How many of the first stages can be linked at most. `linked_dimensions` returns None for more of them."""
    links = _Links(lambda stage, dimension: True, link)
    return next((s for s, stage in enumerate(stages) if not links.add(stage)), len(stages))


class _Links:
    """The dimensions of stages that are added one after the other."""

    def __init__(self, takes: Callable[[Stage, int], bool], link: Link) -> None:
        self.classes = _Classes()
        self._takes = takes
        self._link = link
        self._stages: list[Stage] = []
        self._written: dict[int, tuple[int, Access]] = {}

    def add(self, stage: Stage) -> bool:
        """Links the dimensions of the next stage to those of earlier ones; returns whether this is possible."""
        s = len(self._stages)
        self._stages.append(stage)
        self.classes.add([(s, d) for d in range(len(stage.sizes)) if self._takes(stage, d)])
        if any(isinstance(init, Access) and init.value in self._written for init in stage.inits):
            return False
        for access in stage.inputs:
            if access.value not in self._written:
                continue
            producer, output = self._written[access.value]
            for here, there in zip(access.map, output.map, strict=True):
                pairs = self._link(here, stage, there, self._stages[producer])
                if pairs is None:
                    return False
                for reading, writing in pairs:
                    self.classes.join((s, reading), (producer, writing))
        for access in stage.outputs:
            if access.value in self._written:
                return False
            self._written[access.value] = (s, access)
        return True


@dataclass(frozen=True)
class RowLoops:
    """Loops that stages run in together: `outer`, over rows, which all stages have and none reduces, and `inner`, along
    them."""

    outer: list[Class]
    inner: list[Class]


def row_loops(stages: Sequence[Stage], classes: Sequence[Class]) -> RowLoops | None:
    """`classes`, in their order, as loops; None where the dimensions of one differ in extent."""
    loops = RowLoops([], [])
    for members in classes:
        if len({stages[s].sizes[d] for s, d in members.items()}) != 1:
            return None
        parallel = all(stages[s].iterators[d] == "parallel" for s, d in members.items())
        (loops.outer if parallel and len(members) == len(stages) else loops.inner).append(members)
    return loops


class _Classes:
    def __init__(self) -> None:
        self._parent: dict[Dimension, Dimension] = {}

    def add(self, dimensions: Sequence[Dimension]) -> None:
        self._parent.update((dimension, dimension) for dimension in dimensions)

    def _root(self, dimension: Dimension) -> Dimension:
        while self._parent[dimension] != dimension:
            dimension = self._parent[dimension]
        return dimension

    def join(self, one: Dimension, other: Dimension) -> None:
        self._parent[self._root(one)] = self._root(other)

    def found(self) -> list[Class] | None:
        """The classes; None if one contains two dimensions of one stage."""
        found: dict[Dimension, Class] = {}
        for s, d in self._parent:
            members = found.setdefault(self._root((s, d)), {})
            if s in members:
                return None
            members[s] = d
        return list(found.values())


def with_equal_extents(classes: Sequence[Class], extent: Callable[[int, int], object]) -> list[Class]:
    """Merge `classes` of different stages with equal extent: they are independent, but can share a loop."""
    result: list[Class] = []
    for members in classes:
        own = extent(*next(iter(members.items())))
        host = next(
            (
                other
                for other in result
                if not other.keys() & members.keys() and all(extent(s, d) == own for s, d in other.items())
            ),
            None,
        )
        if host is None:
            result.append(dict(members))
        else:
            host.update(members)
    return result
