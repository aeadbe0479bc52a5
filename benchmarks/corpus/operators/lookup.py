"""Operators of recommenders and graph networks: embeddings, gathers, scatters, pair products, small dense layers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

import torch
from torch import nn

from benchmarks.corpus.row import Family, Function, Row, draw

LOOKUP = Family("gather and scatter", quick=("scatter-add 20000×32 to 2000",))
RECOMMEND = Family("recommender")


def rows() -> Iterator[Row]:
    yield _embedding(32000, 768, 128)
    yield _embedding(1000000, 16, 2048)
    yield _embedding(50257, 64, 7)
    yield LOOKUP.layer("embedding bags 100000×32 of 256×20", lambda: Function(
        lambda table, places: table[places].sum(1), [torch.randn(100000, 32)]), draw(100000, 256, 20),
        moved=256 * 21 * 128)
    yield _scatter(20000, 32, 2000)
    yield _scatter(5000, 1, 300)
    yield LOOKUP.of("gather of nodes 2000×64 by 10000 edges", lambda x, e: x[e[0]] * x[e[1]], (2000, 64),
                    draw(2000, 2, 10000))
    yield LOOKUP.of("scatter maximum 8000×16 to 1000", lambda x, i, s: x.scatter_reduce(0, i, s, "amax"), (1000, 16),
                    draw(1000, 8000, 16), (8000, 16))
    yield LOOKUP.of("gather along rows 512×1000 of 50", lambda x, i: x.gather(1, i), (512, 1000), draw(1000, 512, 50),
                    moved=512 * 50 * 16)
    yield LOOKUP.of("rows written to a cache 1×8×1024×64", lambda c, i, x: c.index_copy(2, i, x), (1, 8, 1024, 64),
                    lambda: torch.randperm(1024)[:16], (1, 8, 16, 64))
    yield LOOKUP.of("one-hot 4096 of 100", lambda i: nn.functional.one_hot(i, 100).float(), draw(100, 4096))
    yield LOOKUP.of("masked mean 64×128×256", lambda x, m: (x * m).sum(1) / m.sum(1).clamp(min=1), (64, 128, 256),
                    lambda: torch.randint(0, 2, (64, 128, 1)).float())
    yield RECOMMEND.layer("mlp 128×13-512-256-64", lambda: _mlp(13, 512, 256, 64), (128, 13))
    yield RECOMMEND.layer("mlp 1×200-80-40-1", lambda: _mlp(200, 80, 40, 1), (1, 200))
    yield RECOMMEND.layer("mlp 4096×32-64-64-3", lambda: _mlp(32, 64, 64, 3), (4096, 32))
    yield RECOMMEND.of("products of pairs 256×27×64", _pairs, (256, 27, 64))
    yield RECOMMEND.of("second-order products 512×39×10", lambda x: (x.sum(1) ** 2 - (x * x).sum(1)).sum(-1) / 2,
                       (512, 39, 10))
    yield RECOMMEND.layer("cross layer 512×429", lambda: Function(
        lambda linear, x, y: x * linear(y) + y, [nn.Linear(429, 429)]), (512, 429), (512, 429))


def fresh(random: Random) -> Row:
    if random.random() < 0.5:
        return _scatter(random.randint(100, 9000), random.randint(1, 70), random.randint(10, 900), True)
    return _embedding(random.randint(100, 9000), random.randint(3, 500), random.randint(1, 900), True)


def _embedding(count: int, width: int, taken: int, fresh: bool = False) -> Row:
    return LOOKUP.layer(f"embedding {count}×{width} of {taken}", lambda: nn.Embedding(count, width), draw(count, taken),
                        moved=taken * (8 + 8 * width), fresh=fresh)


def _scatter(edges: int, width: int, nodes: int, fresh: bool = False) -> Row:
    return LOOKUP.of(f"scatter-add {edges}×{width} to {nodes}", lambda x, i, s: x.index_add(0, i, s), (nodes, width),
                     draw(nodes, edges), (edges, width), fresh=fresh)


def _mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inner, outer in itertools.pairwise(widths):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _pairs(x: Any) -> Any:
    place = torch.tril_indices(27, 27, -1)
    return torch.bmm(x, x.mT)[:, place[0], place[1]]
