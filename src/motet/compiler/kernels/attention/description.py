"""The description of a kernel read as softmax(f(q k)) v, over any order of dimensions.

    stage 0: v3[b, h, m, n] += q[b, m, h, d] * k[b, n, h, d]
    stage 1: v4[b, h, m, n]  = v3[b, h, m, n] * 0.125
    stage 2: v5[b, h, m] max= v4[b, h, m, n]               →    Attention(q, k, v, score, …)
    …
    stage 6: v9[b, h, m, e] += v8[b, h, m, n] * v[b, n, h, e]

`matching.py` recognises such kernels: `following.py` follows the inputs of the second product back to the first one,
`scoring.py` finds masks and scales among the terms of the scores.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.epilogue import Epilogue
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Size, Stage

FLOATS = ("f16", "bf16", "f32")
LARGEST_HEAD = 256
HIDING = -1e8  # mask values from here down hide a key, if another one has an ordinary score
LOWEST = -1e30  # the least replacement of a score, so that scaling does not make it infinite


@dataclass(frozen=True)
class Term:
    """A scalar at a point (m, n), computed from `operands` (indices of other terms). `op` is an operation of MLIR, with
    its attributes in `scalar`; or `load` (`access`), `index` (`place`, a position), `inside` (whether `place` is at
    least 0), `product` (of q and k), `max`, `sum`, `all` and `any` (along keys)."""

    op: str
    operands: tuple[int, ...] = ()
    scalar: Scalar | None = None
    access: Access | None = None
    place: Affine | None = None


@dataclass(frozen=True)
class Causal:
    """A causal mask: query m sees exactly the keys n <= m + `offset`. `certain` means that hidden keys may be skipped,
    since they contribute nothing."""

    offset: int
    certain: bool


@dataclass(frozen=True)
class KeyPiece:
    """Keys `[first, first + size)`, with their values; both accesses are by position among all keys."""

    first: int
    size: Size
    keys: Access
    values: Access


@dataclass(frozen=True)
class Attention:
    """An attention. All maps are over one space of loops of `sizes`. `batch` are the loops that q, k or v and the
    result share; `group` and `row` are those of queries that share keys and values (`row` along the sequence; None for
    one query); `key`, `depth` (of the first product) and `column` (of the second) are one loop each.

    Keys and values may be concatenated from several pieces, such as a cache and new keys.

    `score` is the term under the softmax; `scale` is a positive factor taken out of it. `safe` means that queries that
    see no key, whose scores are all -inf, yield zeros; `repairs`, that those yield zeros whose weights are not numbers:
    they see no key, or have a score that is NaN or +inf. `epilogue` is computed on the result, over the dimensions of
    `main`, the second product, which come first in the space."""

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
    repairs: bool = False

    @property
    def dtype(self) -> str:
        """The dtype of q, k and v."""
        return self.kernel.values[self.query.value].dtype

    @property
    def whole(self) -> KeyPiece | None:
        """All keys and values, if they are one tensor each."""
        return self.pieces[0] if len(self.pieces) == 1 else None

    @property
    def reads(self) -> bool:
        """Whether scores depend on tensors other than q and k."""
        return any(self.terms[number].op == "load" for number in self.needed())

    def needed(self) -> set[int]:
        """The terms that `score` depends on, including itself."""
        found: set[int] = set()
        stack = [self.score]
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                stack.extend(self.terms[number].operands)
        return found
