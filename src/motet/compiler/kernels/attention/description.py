"""attention: a kernel read as softmax(f(q k)) v, over any order of dimensions.

    stage 0: v3[b, h, m, n] += q[b, m, h, d] * k[b, n, h, d]
    stage 1: v4[b, h, m, n]  = v3[b, h, m, n] * 0.125
    stage 2: v5[b, h, m] max= v4[b, h, m, n]               →    Attention(q, k, v, score, …)
    …
    stage 6: v9[b, h, m, e] += v8[b, h, m, n] * v[b, n, h, e]

`attention_matching.py` says which kernels are such: `attention_following.py` follows what the second product reads back
to the first, `attention_scoring.py` finds masks and scales among the terms that scores are made of.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.epilogue import Epilogue
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Size, Stage

FLOATS = ("f16", "bf16", "f32")
LARGEST_HEAD = 256
HIDING = -1e8  # a mask's numbers from here down leave nothing of a key beside one that has a usual score
LOWEST = -1e30  # of numbers in place of scores, so that a factor does not make them infinite


@dataclass(frozen=True)
class Term:
    """A scalar at a point (m, n), made of `operands` (numbers of other terms). `op` is an operation of MLIR, with its
    attributes in `scalar`; or `load` (`access`), `index` (`place`, a position), `inside` (whether `place` is at least
    0), `product` (of q and k), `max`, `sum`, `all` and `any` (along keys)."""

    op: str
    operands: tuple[int, ...] = ()
    scalar: Scalar | None = None
    access: Access | None = None
    place: Affine | None = None


@dataclass(frozen=True)
class Causal:
    """Key n is seen by query m where n <= m + `offset`, and by no other. `certain` says that those it is hidden from
    may be left out: they have nothing of it."""

    offset: int
    certain: bool


@dataclass(frozen=True)
class KeyPiece:
    """Keys from `first` to below `first + size`, with their values; both accesses are of positions among all keys."""

    first: int
    size: Size
    keys: Access
    values: Access


@dataclass(frozen=True)
class Attention:
    """All maps are over one space of loops of `sizes`. `batch` are those that q, k or v and the result run along
    together; `group` and `row` those of queries that share keys and values (`row` is along the sequence; None for one
    query); `key`, `depth` (of the first product) and `column` (of the second) are one loop each.

    Keys and values may lie in several pieces, one after the other: what is kept of earlier queries, and what is new.

    `score` is the term whose softmax is taken; `scale` a positive factor that was taken out of it. `safe` says that
    queries that see no key, whose scores are all -inf, give zeros: their softmax is replaced by that. `epilogue` is
    what is done with the result, over the dimensions of `main`, the second product, which come first in the space."""

    kernel: Kernel
    main: Stage
    epilogue: Epilogue
    sizes: tuple[Size, ...]
    batch: tuple[int, ...]
    group: tuple[int, ...]
    row: int | None
    key: int
    depth: int
    column: int
    query: Access
    pieces: tuple[KeyPiece, ...]
    terms: tuple[Term, ...]
    score: int
    scale: float
    causal: Causal | None
    safe: bool = False

    @property
    def dtype(self) -> str:
        """Of q, k and v."""
        return self.kernel.values[self.query.value].dtype

    @property
    def whole(self) -> KeyPiece | None:
        """All keys and values, where they are one tensor each."""
        return self.pieces[0] if len(self.pieces) == 1 else None

    @property
    def reads(self) -> bool:
        """Whether scores depend on tensors beside q and k."""
        return any(self.terms[number].op == "load" for number in self.needed())

    def needed(self) -> set[int]:
        """The terms that `score` is made of, itself counted."""
        found: set[int] = set()
        stack = [self.score]
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                stack.extend(self.terms[number].operands)
        return found


# -- following -------------------------------------------------------------------------------------


# -- arranging -------------------------------------------------------------------------------------
