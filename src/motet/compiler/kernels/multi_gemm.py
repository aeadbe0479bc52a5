"""Products whose results meet element by element, as code generators are asked about them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProductShape:
    """`batch` products of `m` times `k` and `k` times `n` elements, None where an extent is dynamic. `dtypes` are those
    of both factors and of the result; `left` and `right` are numbers that say which tensors the factors are: products
    with the same `left` read the same one."""

    batch: int | None
    m: int | None
    n: int | None
    k: int | None
    dtypes: tuple[str, str, str]
    left: int
    right: int
