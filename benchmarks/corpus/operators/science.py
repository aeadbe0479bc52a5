"""Reductions, scans, sorts, stencils and products of numerical programs, many in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch

from benchmarks.corpus.row import Family, Row, text

REDUCE = Family("reduction", quick=("mean of columns 10000×33 f64",))
SCAN = Family("scan and sort", quick=("cumulative sum 512×1000",))
STENCIL = Family("stencil", quick=("five points 1000×1000 f64",))
ALGEBRA = Family("algebra")

REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum of rows": lambda x: x.sum(1), "sum of columns": lambda x: x.sum(0), "mean of columns": lambda x: x.mean(0),
    "maximum of rows": lambda x: x.amax(1), "variance of rows": lambda x: x.var(1), "norm of all": lambda x: x.norm(),
    "logsumexp of rows": lambda x: x.logsumexp(1), "argmax of rows": lambda x: x.argmax(1),
    "standard deviation of columns": lambda x: x.std(0),
}
REDUCED = (("sum of rows", 1000, 1000, "f32"), ("sum of rows", 7, 100003, "f64"), ("sum of columns", 1000, 1000, "f32"),
           ("mean of columns", 10000, 33, "f64"), ("maximum of rows", 4096, 50, "f32"),
           ("variance of rows", 777, 555, "f32"), ("norm of all", 1500, 1501, "f64"),
           ("logsumexp of rows", 100, 32000, "f32"), ("argmax of rows", 64, 50257, "f32"),
           ("standard deviation of columns", 3000, 99, "f64"))


def rows() -> Iterator[Row]:
    for name, m, n, dtype in REDUCED:
        yield REDUCE.of(f"{name} {text(m, n)}", REDUCTIONS[name], (m, n), dtype=dtype)
    yield REDUCE.of("sum over the middle 64×100×77", lambda x: x.sum(1), (64, 100, 77))
    yield REDUCE.of("sum over both ends 50×64×99", lambda x: x.sum((0, 2)), (50, 64, 99))
    yield SCAN.of("cumulative sum 512×1000", lambda x: x.cumsum(1), (512, 1000))
    yield SCAN.of("cumulative sum 10001×13 of columns", lambda x: x.cumsum(0), (10001, 13), dtype="f64")
    yield SCAN.of("cumulative product 100×333", lambda x: torch.cumprod(x * 0.1 + 1, 1), (100, 333))
    yield SCAN.of("sort 512×1000", lambda x: x.sort(1)[0], (512, 1000))
    yield SCAN.of("top 50 of 64×10000", lambda x: x.topk(50, 1)[0], (64, 10000))
    yield SCAN.of("top 1 of 1×128256", lambda x: x.topk(1, 1)[0], (1, 128256))
    yield STENCIL.of("five points 1000×1000", _five_points, (1000, 1000), dtype="f64")
    yield STENCIL.of("five points 513×257", _five_points, (513, 257))
    yield STENCIL.of("seven points 64×64×64", _seven_points, (64, 64, 64), dtype="f64")
    yield STENCIL.of("gradient 1000×1001", lambda x: (x[:, 1:] - x[:, :-1]).abs(), (1000, 1001))
    for m, k, n in ((300, 300, 300), (1000, 3, 1000), (3, 1000, 3)):
        yield _product(m, k, n)
    yield ALGEBRA.of("distances 500×400 in 3", _distances, (500, 3), (400, 3))
    yield ALGEBRA.of("inertia bij,bjk,bk->bi 100×30×30", lambda a, b, x: torch.einsum("bij,bjk,bk->bi", a, b, x),
                     (100, 30, 30), (100, 30, 30), (100, 30), dtype="f64")
    yield ALGEBRA.of("outer sum 2000×1000", lambda x, y: x[:, None] + y, (2000,), (1000,), dtype="f64")
    yield ALGEBRA.of("trace of products 200×40×40", lambda a, b: torch.einsum("bij,bji->b", a, b), (200, 40, 40),
                     (200, 40, 40))
    yield ALGEBRA.of("Horner of degree 7, 100001", _polynomial, (100001,), dtype="f64")


def fresh(random: Random) -> Row:
    if random.random() < 0.4:
        m, k, n = (random.randint(1, 400) for _ in range(3))
        return _product(m, k, n, True)
    name, dtype = random.choice(sorted(REDUCTIONS)), random.choice(("f32", "f64"))
    m, n = random.choice((3, 57, 1021)), random.randint(3, 3000)
    return REDUCE.of(f"{name} {text(m, n)}", REDUCTIONS[name], (m, n), dtype=dtype, fresh=True)


def _product(m: int, k: int, n: int, fresh: bool = False) -> Row:
    return ALGEBRA.of(f"product {text(m, k, n)}", torch.matmul, (m, k), (k, n), dtype="f64", fresh=fresh)


def _five_points(x: Any) -> Any:
    """A step of the heat equation; the border is unchanged."""
    middle = x[1:-1, 1:-1]
    inner = middle + 0.125 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] - 4 * middle)
    return torch.nn.functional.pad(inner, (1, 1, 1, 1))


def _seven_points(x: Any) -> Any:
    c = x[1:-1, 1:-1, 1:-1]
    return (x[:-2, 1:-1, 1:-1] + x[2:, 1:-1, 1:-1] + x[1:-1, :-2, 1:-1] + x[1:-1, 2:, 1:-1] + x[1:-1, 1:-1, :-2]
            + x[1:-1, 1:-1, 2:] - 6 * c)


def _distances(x: Any, y: Any) -> Any:
    return ((x[:, None] - y[None]) ** 2).sum(-1).sqrt()


def _polynomial(x: Any) -> Any:
    found = torch.zeros_like(x)
    for coefficient in (0.125, -0.25, 0.1875, 0.75, -1.125, 0.375, 0.875, -0.5):  # exporters round them to f32
        found = found * x + coefficient
    return found
