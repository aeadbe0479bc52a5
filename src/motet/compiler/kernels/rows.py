"""Reads stages over the same rows: the rows, the loops along them, and the reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.linked_dimensions import Class, RowLoops, linked_dimensions, row_loops, with_equal_extents
from motet.compiler.kernels.reduction import Reduction, match_reductions
from motet.compiler.kernels.strides import Extent, StridedAccess, place_of, product_of


@dataclass(frozen=True)
class Rows:
    """Stages over shared rows. `outer` and `inner` are the loops over rows and along them; `dims` maps each dimension
    of each stage to a loop (outer ones first), None for those of extent 1. `wide` stages have the loops along rows;
    `reduces` are the stages that reduce along them, and their reductions."""

    kernel: Kernel
    stages: tuple[Stage, ...]
    outer: tuple[Extent, ...]
    inner: tuple[Extent, ...]
    dims: tuple[tuple[int | None, ...], ...]
    wide: tuple[bool, ...]
    reduces: Sequence[Sequence[Reduction]]

    @property
    def count(self) -> Extent:
        return product_of([(size, 0) for size in self.outer])

    @property
    def length(self) -> Extent:
        return product_of([(size, 0) for size in self.inner])

    def place(self, access: Access, s: int) -> StridedAccess:
        """The strided access of stage `s` to a value, without padding."""
        place = place_of(self.kernel, access, len(self.stages[s].sizes))
        assert place is not None, "match_rows has looked at all of them"
        return place


def match_rows(kernel: Kernel, stages: Sequence[Stage]) -> Rows | None:
    """`stages` over the same rows with at least one reduction along them; None if they are not."""
    if not any(stage.reductions for stage in stages):
        return None
    found = [match_reductions(stage) if stage.reductions else [] for stage in stages]
    classes = linked_dimensions(stages, lambda stage, dimension: stage.sizes[dimension] != 1, _link)
    if classes is None or any(one is None for one in found):
        return None
    loops = _aligned(stages, classes) or _aligned(stages, _with_common_rows(stages, classes))
    if loops is None:
        return None
    outer, inner = loops.outer, loops.inner
    dims: list[list[int | None]] = [[None for _ in stage.sizes] for stage in stages]
    for number, members in enumerate([*outer, *inner]):
        for s, d in members.items():
            dims[s][d] = number
    wide = tuple(any(s in members for members in inner) for s in range(len(stages)))
    extents: list[Extent] = []
    for members in (*outer, *inner):
        s, d = next(iter(members.items()))
        extents.append(Extent.of(stages[s].sizes[d]))
    rows = Rows(
        kernel, tuple(stages), tuple(extents[: len(outer)]), tuple(extents[len(outer) :]),
        tuple(map(tuple, dims)), wide, [one or [] for one in found],
    )
    return rows if _has_places(rows) and _is_consistent(rows) else None


def _link(here: Affine, reader: Stage, there: Affine, producer: Stage) -> Sequence[tuple[int, int]] | None:
    reading, writing = reader.along(here), producer.along(there)
    if reading is None and writing is None:
        return ()
    return None if reading is None or writing is None else ((reading, writing),)


def _with_common_rows(stages: Sequence[Stage], classes: Sequence[Class]) -> list[Class]:
    """`classes`, with one for the rows of independent stages where these are equally many."""
    over = [members for members in classes if all(stages[s].iterators[d] == "parallel" for s, d in members.items())]
    along = [members for members in classes if members not in over]
    return [*with_equal_extents(over, lambda s, d: stages[s].sizes[d]), *along]


def _aligned(stages: Sequence[Stage], classes: Sequence[Class]) -> RowLoops | None:
    loops = row_loops(stages, classes)
    inner = _align(stages, loops.inner) if loops is not None else None
    return None if loops is None or inner is None else RowLoops(loops.outer, inner)


def _align(stages: Sequence[Stage], inner: list[dict[int, int]]) -> list[dict[int, int]] | None:
    """The loops along rows. Independent stages may share one if their extents are equal; every stage has all of them or
    none, and reduces along all or none."""
    found = with_equal_extents(sorted(inner, key=len, reverse=True), lambda s, d: stages[s].sizes[d])
    for s, stage in enumerate(stages):
        own = [members[s] for members in found if s in members]
        kinds = {stage.iterators[d] for d in own}
        if own and (len(own) != len(found) or len(kinds) != 1):
            return None
        if not own and any(stage.sizes[d] != 1 for d in stage.reductions):
            return None
    widest = max(range(len(stages)), key=lambda s: sum(s in members for members in found))
    if not found or any(widest not in members for members in found):
        return None
    order = _order(stages[widest])
    return sorted(found, key=lambda members: order.index(members[widest]))


def _order(stage: Stage) -> list[int]:
    """The dimensions of a stage in the memory order of its first input that has them, the fastest last."""
    seen: list[int] = []
    for access in (*stage.inputs, *stage.outputs):
        for entry in access.map:
            seen += [d for d in entry.dims if d not in seen]
    return seen + [d for d in range(len(stage.sizes)) if d not in seen]


def _has_places(rows: Rows) -> bool:
    """Whether every access has a single stride along each loop."""
    return all(
        place_of(rows.kernel, access, len(stage.sizes)) is not None
        for stage in rows.stages
        for access in (*stage.inputs, *stage.outputs, *(init for init in stage.inits if isinstance(init, Access)))
    )


def _is_consistent(rows: Rows) -> bool:
    """Whether stages read earlier values at the point where they were computed."""
    written: dict[int, list[dict[int | None, int]]] = {}
    for s, stage in enumerate(rows.stages):
        for access in stage.inputs:
            if access.value in written and (
                access.padding is not None or translated(rows, s, access) != written[access.value]
            ):
                return False
        for access in stage.outputs:
            written[access.value] = translated(rows, s, access)
    return True


def translated(rows: Rows, s: int, access: Access) -> list[dict[int | None, int]]:
    """The access of stage `s` over the rows' dimensions, by which stages can be compared."""
    return [
        {rows.dims[s][d]: c for d, c in entry.terms if rows.stages[s].sizes[d] != 1}
        | {None: entry.constant}
        for entry in access.map
    ]
