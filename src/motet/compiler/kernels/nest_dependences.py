"""Dependences between the iterations of one stage: what the order of its loops must keep.

    C[i, j] += A[i, k] * B[k, j]      a sum along k: a race between tasks, but any order
    C[i] = C[i] * A[i, k] + 1         the order of k matters
    C[i] = C[i - 1] + A[i]            C[i] is read by a later iteration of i
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.loop_names import LoopNames, loop_names
from motet.compiler.kernels.reduction import match_reduction


@dataclass(frozen=True)
class Dependence:
    """The dimensions `carried`, in the order in which the stage runs them, access the same element in several
    iterations. With `ordered`, their order may not change, and they are not lanes; without, terms may be combined in
    any order (the rule by which the compiler vectorises float sums), but not at the same time. `why` names it."""

    carried: tuple[int, ...]
    ordered: bool
    why: str


def dependences(kernel: Kernel, stage: int) -> list[Dependence]:
    """The dependences of stage number `stage`."""
    found, names = kernel.stages[stage], loop_names(kernel)
    dims = names.dims[stage]
    listed = [*_of_reductions(found, names, dims), *_of_writes(found, names, dims), *_in_place(found, names, dims)]
    return list(dict.fromkeys(listed))


def _of_reductions(stage: Stage, names: LoopNames, dims: tuple[str, ...]) -> Iterator[Dependence]:
    reduced = tuple(d for d in stage.reductions if stage.sizes[d] != 1)
    if not reduced:
        return
    along = ", ".join(dims[d] for d in reduced)
    for k, output in enumerate(stage.outputs):
        combiner = match_reduction(stage, k)
        place = element(output, names, dims)
        if combiner is None:
            yield Dependence(reduced, True, f"{place} depends on its value in the iteration of {along} before")
        else:
            yield Dependence(reduced, False, f"all iterations of {along} add to {place}")


def _of_writes(stage: Stage, names: LoopNames, dims: tuple[str, ...]) -> Iterator[Dependence]:
    """Elements that several points of parallel dimensions write: the last one stays."""
    for output in stage.outputs:
        several = {d for entry in output.map if len(entry.dims) > 1 for d in entry.dims}
        missing = {d for d, kind in enumerate(stage.iterators) if kind == "parallel" and d not in output.dims}
        again = tuple(d for d in sorted(several | missing) if stage.sizes[d] != 1)
        if again:
            along = ", ".join(dims[d] for d in again)
            yield Dependence(again, True, f"several iterations of {along} write {element(output, names, dims)}")


def _in_place(stage: Stage, names: LoopNames, dims: tuple[str, ...]) -> Iterator[Dependence]:
    """Elements that one iteration reads and another writes."""
    for output in stage.outputs:
        for access in stage.inputs:
            if access.value != output.value or access.map == output.map:
                continue
            moved = {d for a, b in zip(access.map, output.map, strict=True) if a != b for d in (*a.dims, *b.dims)}
            carried = tuple(d for d in range(len(dims)) if d in moved and stage.sizes[d] != 1)
            reads, writes = element(access, names, dims), element(output, names, dims)
            yield Dependence(carried, True, f"{reads} is read while {writes} is written")


def element(access: Access, names: LoopNames, dims: tuple[str, ...]) -> str:
    """The element that `access` is of, as `C[i, 2*j + k - 1]`."""
    entries: list[str] = []
    for entry in access.map:
        terms = [dims[d] if c == 1 else f"{c}*{dims[d]}" for d, c in entry.terms]
        if entry.constant or not terms:
            terms.append(str(entry.constant))
        entries.append(" + ".join(terms).replace("+ -", "- "))
    return f"{names.values[access.value]}[{', '.join(entries)}]"
