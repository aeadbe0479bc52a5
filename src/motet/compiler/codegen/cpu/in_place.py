"""Finds the arguments of a kernel that may share memory with a result.

    softmax: v1[i] max= v0[i, j];  v2[i] += exp(v0[i, j] - v1[i]);  r[i, j] = exp(v0[i, j] - v1[i]) / v2[i]
    → r may be v0: a task processes whole rows, and does not read again the part of a row that it has written

A task of one phase of the `loops` class processes rows: points with equal outer indices. If every stage accesses the
argument at its own indices, and values passed between stages are indexed by the outer indices alone, no two tasks share
an element of the argument, and each element of a row is read before it is written. Rows are split between tasks only if
no stage reduces along them.
"""

from __future__ import annotations

from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.kernel_code import KernelCode

KINDS = ("loops", "rows")


def find_updates(kernel: Kernel, code: KernelCode) -> tuple[tuple[int, int], ...]:
    """Pairs (argument, result), as positions among the kernel's externals, that may share memory."""
    if code.kind not in KINDS or len(code.phases) != 1 or code.workspaces:
        return ()
    externals = kernel.externals
    return tuple(
        (externals.index(argument), externals.index(result))
        for argument in externals
        for result in externals
        if kernel.values[argument].role == "argument"
        and kernel.values[result].role == "result"
        and _may_share(kernel, argument, result)
    )


def _may_share(kernel: Kernel, argument: int, result: int) -> bool:
    one, other = kernel.values[argument], kernel.values[result]
    if (one.shape, one.dtype, one.order) != (other.shape, other.dtype, other.order):
        return False
    writers = [n for n, stage in enumerate(kernel.stages) if any(output.value == result for output in stage.outputs)]
    readers = [n for n, stage in enumerate(kernel.stages) if any(access.value == argument for access in stage.inputs)]
    if len(writers) != 1 or not readers or readers[-1] > writers[0]:
        return False
    if kernel.stages[writers[0]].reductions:
        return False
    made = {output.value for stage in kernel.stages for output in stage.outputs}
    return all(_walks_rows(kernel, stage, argument, result, made) for stage in kernel.stages)


def _walks_rows(kernel: Kernel, stage: Stage, argument: int, result: int, made: set[int]) -> bool:
    """Whether a stage loops over the argument's axes, or their outer ones, accesses the argument and the result at its
    own indices, and stages' temporaries at the outer ones of these. Axes of extent 1 are ignored."""
    axes = [size for size in kernel.values[argument].shape if size != 1]
    dims = [d for d, size in enumerate(stage.sizes) if size != 1]
    if [stage.sizes[d] for d in dims] != axes[: len(dims)]:
        return False
    if any(isinstance(init, Access) and init.value == argument for init in stage.inits):
        return False
    for access in (*stage.inputs, *stage.outputs, *(init for init in stage.inits if isinstance(init, Access))):
        own = access.value in (argument, result)
        if not own and access.value not in made:
            continue
        shape = kernel.values[access.value].shape
        at = [entry.single for entry, size in zip(access.map, shape, strict=True) if size != 1]
        if access.padding is not None or at != dims[: len(at)] or (own and len(at) != len(axes)):
            return False
    return True
