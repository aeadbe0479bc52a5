"""Reductions, normalisations and permutations over axes other than the last: leading, middle, and several of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.corpus.row import Family, Row, text

AXES = Family("axes", quick=("variance over 0,2,3 of 16×32×28×28", "permute 8×7×13×16×9 (0,3,1,4,2)"))

FUNCTIONS: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {
    "sum": lambda x, axes: x.sum(axes), "maximum": lambda x, axes: x.amax(axes),
    "variance": lambda x, axes: x.var(axes), "norm": lambda x, axes: torch.linalg.vector_norm(x, dim=axes),
    "argmax": lambda x, axes: x.argmax(axes[0]), "argmin": lambda x, axes: x.argmin(axes[0]),
    "softmax": lambda x, axes: torch.softmax(x, axes[0]), "log softmax": lambda x, axes: torch.log_softmax(x, axes[0]),
    "standardise": lambda x, axes: (x - x.mean(axes, keepdim=True))
    * torch.rsqrt(((x - x.mean(axes, keepdim=True)) ** 2).mean(axes, keepdim=True) + 1e-5),
    "unit length": lambda x, axes: x / torch.linalg.vector_norm(x, dim=axes, keepdim=True),
}
ROWS: tuple[tuple[str, tuple[int, ...], tuple[int, ...], str], ...] = (
    ("argmax", (100, 1000), (1,), "f32"), ("argmin", (33, 4097), (1,), "f64"), ("argmax", (64, 50, 77), (1,), "f32"),
    ("argmax", (3000, 17), (1,), "f32"), ("argmin", (1000, 333), (0,), "f32"),
    ("sum", (50, 64, 99), (0, 1), "f64"), ("sum", (8, 33, 20, 65), (1, 3), "f32"), ("sum", (1000, 3, 64), (1,), "f32"),
    ("maximum", (16, 32, 28, 28), (0, 2, 3), "f32"), ("maximum", (7, 300, 129), (1,), "f64"),
    ("variance", (16, 32, 28, 28), (0, 2, 3), "f32"), ("variance", (12, 50, 6, 77), (1, 2), "f32"),
    ("norm", (20, 30, 40, 50), (1, 3), "f32"), ("norm", (5, 3, 100000), (1,), "f32"),
    ("softmax", (8, 19, 65, 65), (1,), "f32"), ("softmax", (32, 100, 64), (1,), "f32"),
    ("log softmax", (2, 150, 33, 31), (1,), "f32"), ("softmax", (500, 500), (0,), "f64"),
    ("standardise", (2, 64, 17, 19, 15), (1,), "f32"), ("standardise", (16, 32, 28, 28), (0, 2, 3), "f32"),
    ("standardise", (20, 30, 40, 50), (1, 3), "f32"), ("standardise", (4, 768, 197), (1,), "f32"),
    ("standardise", (3, 5, 7, 1111), (0, 3), "f64"), ("unit length", (1, 128, 60, 80), (1,), "f32"),
)
PERMUTES = (
    ((8, 7, 13, 16, 9), (0, 3, 1, 4, 2)), ((4, 12, 64, 197), (0, 3, 1, 2)), ((2, 3, 224, 224), (0, 2, 3, 1)),
    ((2, 224, 224, 3), (0, 3, 1, 2)), ((63, 65, 67), (2, 1, 0)), ((16, 128, 5, 32), (2, 0, 3, 1)),
)


def rows() -> Iterator[Row]:
    for given in ROWS:
        yield _reduction(*given)
    for shape, order in PERMUTES:
        yield _permute(shape, order)
    yield AXES.of("permute 300×400 f64 (1,0)", lambda x: x.T.clone(), (300, 400), dtype="f64")
    for p in (1, 2):
        yield AXES.of(f"distances of norm {p} 300×200 in 64",
                      lambda x, y, p=p: torch.linalg.vector_norm(x[:, None] - y[None], p, -1), (300, 64), (200, 64))
    yield AXES.layer("groupnorm 1×96×9×11×13 by 3", lambda: nn.GroupNorm(3, 96), (1, 96, 9, 11, 13))
    yield AXES.layer("groupnorm 4×60×197 by 5", lambda: nn.GroupNorm(5, 60), (4, 60, 197))
    yield AXES.layer("layernorm 2×10×31×33 over 3", lambda: nn.LayerNorm((10, 31, 33)), (2, 10, 31, 33))
    yield AXES.of("attention heads 4×197×(3·12·64)", _heads, (4, 197, 2304))
    yield AXES.of("outer chain 60×70×80", lambda x, y, z: torch.tanh(x[:, None, None] * y[:, None] + z),
                  (60,), (70,), (80,))
    yield AXES.of("cosine 300×200 in 64", lambda x, y: functional.cosine_similarity(x[:, None], y[None], -1),
                  (300, 64), (200, 64))


def fresh(random: Random) -> Row:
    rank = random.randint(2, 4)
    shape = tuple(random.choice((2, 3, 7, 17, 33, 64, 65, 100)) for _ in range(rank))
    if random.random() < 0.3:
        return _permute(shape, tuple(random.sample(range(rank), rank)), True)
    name = random.choice(sorted(FUNCTIONS))
    axes = tuple(sorted(random.sample(range(rank), random.randint(1, rank - 1))))
    return _reduction(name, shape, axes, random.choice(("f32", "f32", "f64")), True)


def _reduction(name: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, fresh: bool = False) -> Row:
    single = name.startswith(("arg", "softmax", "log"))
    axes = axes[:1] if single else axes
    where = ",".join(map(str, axes))
    function = FUNCTIONS[name]
    return AXES.of(f"{name} over {where} of {text(*shape)}", lambda x: function(x, axes), shape, dtype=dtype,
                   fresh=fresh)


def _permute(shape: tuple[int, ...], order: tuple[int, ...], fresh: bool = False) -> Row:
    return AXES.of(f"permute {text(*shape)} ({','.join(map(str, order))})", lambda x: x.permute(order).clone(), shape,
                   fresh=fresh)


def _heads(x: Any) -> Any:
    """Queries, keys and values of attention from one product's result, scaled and transposed."""
    q, k, v = x.reshape(4, 197, 3, 12, 64).permute(2, 0, 3, 1, 4)
    return q * 0.125, k.transpose(-1, -2).clone(), v * 1.0
