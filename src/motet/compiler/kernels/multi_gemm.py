"""The shape of products with a combined result, as given to the cost models of back ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProductShape:
    """`batch` products of `m` times `k` and `k` times `n` elements; None for a dynamic extent. `dtypes` are those of
    both operands and of the result. `left` and `right` identify the operands' tensors: products with equal `left` read
    the same one."""

    batch: int | None
    m: int | None
    n: int | None
    k: int | None
    dtypes: tuple[str, str, str]
    left: int
    right: int
