"""Reads kernels as contractions: sums of products of two tensors, in any order of dimensions.

Dimensions are classified by where they appear: batch (everywhere), M (lhs and result), N (rhs and result), K (both
operands). Operands are exchanged such that N is contiguous in the result; vectors run along it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.compiler.kernels.cost import guess
from motet.compiler.kernels.epilogue import Epilogue, match_epilogue, stored_place
from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.kernels.product import PLAIN_DTYPES, Product, match_product
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess, initial_of, merge, place_of

Loop = tuple[Extent, int]  # an extent and the dimension that it belongs to


@dataclass(frozen=True)
class Contraction:
    """A kernel read as a contraction. `a` is the broadcast operand, `b` the vectorised one."""

    kernel: Kernel
    product: Product
    a: StridedAccess
    b: StridedAccess
    init: StridedAccess | float | int
    output: str  # the result's dtype before the epilogue
    outer: tuple[Loop, ...]
    m: Loop | None
    n: Loop
    depth: tuple[Loop, ...]
    epilogue: Epilogue
    rank: int

    @property
    def places(self) -> list[StridedAccess]:
        return self.epilogue.places + ([self.init] if isinstance(self.init, StridedAccess) else [])

    @property
    def column(self) -> int:
        return self.n[1]


def match(kernel: Kernel) -> Contraction | None:
    """Read `kernel` as a contraction with an element-wise epilogue; None if it is not one."""
    if not kernel.stages:
        return None
    stage = kernel.stages[0]
    product = match_product(stage)
    if product is None or not stage.reductions or any(access.padding is not None for access in stage.inputs):
        return None
    if any(kernel.values[access.value].role not in ("argument", "constant") for access in stage.inputs):
        return None
    rank = len(stage.sizes)
    factors = [stage.inputs[product.lhs.input], stage.inputs[product.rhs.input]]
    places = [place_of(kernel, access, rank) for access in factors]
    epilogue = match_epilogue(kernel, stage, kernel.stages[1:])
    init = initial_of(kernel, stage)
    output = place_of(kernel, stage.outputs[0], rank)
    if epilogue is None or init is None or output is None or places[0] is None or places[1] is None:
        return None
    a, b = places[0], places[1]
    if any(place.dtype not in PLAIN_DTYPES for place in (a, b, output)):
        return None
    sizes = [Extent.of(size) for size in stage.sizes]
    kinds = _classify(stage, a, b, output)
    if kinds is None:
        return None
    dtype, output = output.dtype, stored_place(epilogue) or output  # a value kept in registers has no layout
    everything = [a, b, output, *epilogue.places] + ([init] if isinstance(init, StridedAccess) else [])
    batch, m, n, k = (merge(sizes, dims, everything) for dims in kinds)
    if not _vectorise_rhs(m, n, b, kernel, a, output):
        m, n, a, b = n, m, b, a
        product = replace(product, lhs=product.rhs, rhs=product.lhs)
    if not n:
        return None
    column = next((loop for loop in n if output.strides[loop[1]] == ONE), None) or max(n, key=_length)
    row = max(m, key=_length) if m else None
    outer = [*batch, *(loop for loop in m if loop != row), *(loop for loop in n if loop != column)]
    depth = sorted(k, key=lambda loop: abs(guess(b.strides[loop[1]])), reverse=True)
    return Contraction(
        kernel, product, a, b, init, dtype, tuple(outer), row, column, tuple(depth) or ((ONE, -1),), epilogue, rank,
    )


def _classify(stage: Stage, a: StridedAccess, b: StridedAccess, output: StridedAccess) -> tuple[list[int], ...] | None:
    """The batch, M, N and K dimensions; None if a reduction dimension appears in one operand only."""
    batch: list[int] = []
    m: list[int] = []
    n: list[int] = []
    k: list[int] = []
    for d, kind in enumerate(stage.iterators):
        if stage.sizes[d] == 1:
            continue
        in_a, in_b, in_out = (place.strides[d] != ZERO for place in (a, b, output))
        if kind == "reduction":
            if in_out or not (in_a or in_b):
                return None
            k.append(d)
        elif not in_out:
            return None
        elif in_a == in_b:
            batch.append(d)
        else:
            (m if in_a else n).append(d)
    return batch, m, n, k


def _vectorise_rhs(
    m: list[Loop], n: list[Loop], b: StridedAccess, kernel: Kernel, a: StridedAccess, output: StridedAccess
) -> bool:
    """Whether vectors run along N rather than M: along the contiguous dimension of the result."""
    if not m or not n:
        return bool(n)
    if any(output.strides[d] == ONE for _, d in n):
        return True
    if any(output.strides[d] == ONE for _, d in m):
        return False
    return kernel.values[b.value].role == "constant" or kernel.values[a.value].role != "constant"


def _length(loop: Loop) -> int:
    return guess(loop[0])
