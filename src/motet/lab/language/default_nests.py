"""The nest of a stage for which a user has not written one: tasks outside, vectors along what is contiguous."""

from __future__ import annotations

from motet.compiler.kernels.kernel import ITEM_BITS, Kernel
from motet.compiler.kernels.loop_names import loop_names
from motet.compiler.kernels.nest_dependences import dependences
from motet.compiler.kernels.schedule import Nest, NestLoop

_VECTOR_BITS = 512  # of one vector; narrower ones are several
_TASK_ELEMENTS = 4096  # of a dimension that is divided into tasks and has the vectors as well


def default_nest(kernel: Kernel, stage: int) -> Nest:
    """A legal nest for stage number `stage`: its dimensions in order, parallel ones outside, the first of them as
    tasks, and vectors along the parallel dimension that is contiguous in the result."""
    found, names = kernel.stages[stage], loop_names(kernel).dims[stage]
    kept = {d for each in dependences(kernel, stage) for d in each.carried}
    parallel = [d for d, kind in enumerate(found.iterators) if kind == "parallel"]
    output = found.outputs[0]
    order = kernel.values[output.value].order
    fastest = [found.along(output.map[axis]) for axis in order]
    contiguous = next((d for d in reversed(fastest) if d is not None and d in parallel and d not in kept), None)
    ordered = [*parallel, *(d for d in range(len(names)) if d not in parallel)]
    if kept:
        ordered = [d for d in ordered if d not in kept] + sorted(kept)
    lanes = max(2, _VECTOR_BITS // ITEM_BITS[kernel.values[output.value].dtype])
    first = ordered[0] if ordered and ordered[0] in parallel and ordered[0] not in kept else None
    loops = [NestLoop(names[d], parallel=d == first) for d in ordered]
    if first is not None and first == contiguous:
        loops.insert(1, NestLoop(names[first], _TASK_ELEMENTS))
    if contiguous is not None:
        loops.append(NestLoop(names[contiguous], lanes, vectorize=True))
    return Nest(loops)
