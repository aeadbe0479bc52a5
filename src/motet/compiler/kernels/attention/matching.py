"""Recognises kernels that compute attention, and describes them."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.kernels.attention.description import FLOATS, LARGEST_HEAD, Attention
from motet.compiler.kernels.attention.following import Follower, Found
from motet.compiler.kernels.attention.scoring import Scorer
from motet.compiler.kernels.epilogue import Epilogue, match_epilogue
from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.product import match_product


def match(kernel: Kernel) -> Attention | None:
    """Read the composed `kernel` as attention; None if it is not."""
    products = [stage for stage in kernel.stages if stage.reductions and match_product(stage) is not None]
    if len(products) != 2:
        return None
    first, main = products
    if not (_is_product(kernel, first) and _is_product(kernel, main)):
        return None
    after = kernel.stages[kernel.stages.index(main) + 1 :]
    epilogue = match_epilogue(kernel, main, after)
    for side in (0, 1):
        found = Follower(kernel, first, main, side).run() if epilogue is not None else None
        if found is not None and epilogue is not None:
            return _arranged(kernel, main, epilogue, found)
    return None


def is_attention(kernel: Kernel) -> bool:
    """Whether `kernel` is attention that is worth one kernel: heads of known sizes that fit in registers."""
    found = match(kernel)
    if found is None:
        return False
    sizes = [found.sizes[dim] for dim in (found.depth, found.column)]
    return all(isinstance(size, int) and size <= LARGEST_HEAD for size in sizes)


def _is_product(kernel: Kernel, stage: Stage) -> bool:
    product = match_product(stage)
    if product is None or product.dtype not in ("f32", "f64") or stage.inits not in ((0,), (0.0,)):
        return False
    if any(access.padding is not None for access in stage.inputs):
        return False
    dtypes = FLOATS if product.dtype == "f32" else ("f64",)
    return all(kernel.values[access.value].dtype in dtypes for access in (*stage.inputs, *stage.outputs))


def _arranged(kernel: Kernel, main: Stage, epilogue: Epilogue, found: Found) -> Attention | None:
    follower = found.follower
    sizes = main.sizes + tuple(follower.first.sizes[d] for d in follower.first.reductions)
    reads = [found.query, *(access for piece in found.pieces for access in (piece.keys, piece.values))]
    used = [
        found.query.dims, _together([piece.keys for piece in found.pieces]),
        _together([piece.values for piece in found.pieces]),
    ]
    depth = [d for d in range(len(main.sizes), len(sizes)) if sizes[d] != 1]
    parallel = [d for d, kind in enumerate(main.iterators) if kind == "parallel" and sizes[d] != 1]
    column = [d for d in parallel if d not in used[0] | used[1]]
    dtypes = {kernel.values[access.value].dtype for access in reads}
    if len(depth) != 1 or len(column) != 1 or column[0] not in used[2] or len(dtypes) != 1:
        return None
    shared = [d for d in parallel if d not in used[1] | used[2] and d not in column]
    batch = [d for d in parallel if d not in shared and d not in column]
    scorer = Scorer(list(follower.terms), follower.known, follower.dtype)
    wanted = scorer.compared(found.score)
    causal = scorer.causal(wanted, follower.key, shared)
    row = causal[0] if causal is not None else _innermost(follower, shared)
    score, scale = scorer.without_scale(wanted)
    return Attention(
        kernel, main, epilogue, sizes, tuple(batch), tuple(d for d in shared if d != row), row, follower.key, depth[0],
        column[0], found.query, found.pieces, tuple(scorer.terms), score, scale,
        causal[1] if causal is not None else None, found.safe, found.repairs,
    )


def _together(accesses: Sequence[Access]) -> set[int]:
    return {d for access in accesses for d in access.dims}


def _innermost(follower: Follower, shared: Sequence[int]) -> int | None:
    """The dimension of queries along the sequence: the last one of the scores that keys and values do not have."""
    access = follower.main.inputs[follower.side]
    order = [d for entry in access.map for d in entry.dims if d in shared]
    return order[-1] if order else None
