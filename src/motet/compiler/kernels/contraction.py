"""What a contraction is, and whether a kernel is one: a sum of products of two tensors, in any order of dimensions.

`read_contraction` reads a stage, for every back end: the roles of its dimensions, by where they appear. There may be
any number of each. Leading dimensions of the left operand that the right one does not have are therefore M:

    y[b, i, n] += x[b, i, k] * w[k, n]    →    batch (), m (b, i), n (n), k (k)

and are one loop where memory allows it (`strides.merge`). A convolution is one as well: M are its pixels, N its
filters, K the channels and the window.

`match` reads a whole kernel with what follows the product. Operands are swapped so that N is what is contiguous in the
result; vectors run along it.
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
class ContractionDims:
    """The dimensions of a sum of products, in the order of the stage; those of extent 1 are left out.

                    batch   m    n    k    broadcast   summed
        left          x     x         x                 one of
        right         x          x    x                 the two
        result        x     x    x             x
    """

    product: Product
    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    broadcast: tuple[int, ...] = ()
    summed: tuple[int, ...] = ()

    @property
    def swapped(self) -> ContractionDims:
        """The same with the right operand on the left."""
        product = replace(self.product, lhs=self.product.rhs, rhs=self.product.lhs)
        return replace(self, product=product, m=self.n, n=self.m)


def read_contraction(stage: Stage) -> ContractionDims | None:
    """`stage` as a sum of products; None if it is something else."""
    product = match_product(stage)
    if product is None or not stage.reductions:
        return None
    left, right = (stage.inputs[operand.input].dims for operand in (product.lhs, product.rhs))
    result = stage.outputs[0].dims
    found: dict[str, list[int]] = {}
    for d, size in enumerate(stage.sizes):
        if size == 1:
            continue
        if (d in result) == (stage.iterators[d] == "reduction"):
            return None
        role = _ROLES.get((d in left, d in right, d in result))
        if role is None:
            return None
        found.setdefault(role, []).append(d)
    return ContractionDims(
        product, *(tuple(found.get(role, ())) for role in ("batch", "m", "n", "k", "broadcast", "summed"))
    )


# By whether a dimension is one of the left operand, of the right one, and of the result.
_ROLES = {
    (True, True, True): "batch", (True, False, True): "m", (False, True, True): "n", (True, True, False): "k",
    (False, False, True): "broadcast", (True, False, False): "summed", (False, True, False): "summed",
}


@dataclass(frozen=True)
class Contraction:
    """A kernel read as a contraction, with one loop of M and one of N. `a` is the broadcast operand, `b` the vectorised
    one. `outer` are the other loops of the result, `depth` those of K."""

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

    def outer_of(self, place: StridedAccess) -> list[Loop]:
        """The loops of `outer` along which `place` has a stride."""
        return [loop for loop in self.outer if place.strides[loop[1]] != ZERO]


def match(kernel: Kernel) -> Contraction | None:
    """Read `kernel` as a contraction with an element-wise epilogue; None if it is not one."""
    if not kernel.stages:
        return None
    stage = kernel.stages[0]
    dims = read_contraction(stage)
    if dims is None or any(access.padding is not None for access in stage.inputs):
        return None
    if any(kernel.values[access.value].role not in ("argument", "constant") for access in stage.inputs):
        return None
    rank = len(stage.sizes)
    operands = [stage.inputs[dims.product.lhs.input], stage.inputs[dims.product.rhs.input]]
    places = [place_of(kernel, access, rank) for access in operands]
    epilogue = match_epilogue(kernel, stage, kernel.stages[1:])
    init = initial_of(kernel, stage)
    output = place_of(kernel, stage.outputs[0], rank)
    if epilogue is None or init is None or output is None or places[0] is None or places[1] is None:
        return None
    a, b = places[0], places[1]
    if any(place.dtype not in PLAIN_DTYPES for place in (a, b, output)):
        return None
    sizes = [Extent.of(size) for size in stage.sizes]
    dtype, output = output.dtype, stored_place(epilogue) or output  # a value kept in registers has no layout
    everything = [a, b, output, *epilogue.places] + ([init] if isinstance(init, StridedAccess) else [])
    outer, m, n, k = (
        merge(sizes, part, everything)
        for part in (sorted(dims.batch + dims.broadcast), dims.m, dims.n, sorted(dims.k + dims.summed))
    )
    if not _vectorise_rhs(m, n, b, kernel, a, output):
        m, n, a, b, dims = n, m, b, a, dims.swapped
    if not n:
        return None
    column = next((loop for loop in n if output.strides[loop[1]] == ONE), None) or max(n, key=_length)
    row = max(m, key=_length) if m else None
    outer = [*outer, *(loop for loop in m if loop != row), *(loop for loop in n if loop != column)]
    depth = sorted(k, key=lambda loop: abs(guess(b.strides[loop[1]])), reverse=True)
    return Contraction(
        kernel, dims.product, a, b, init, dtype, tuple(outer), row, column, tuple(depth) or ((ONE, -1),), epilogue,
        rank,
    )


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
