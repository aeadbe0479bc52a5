"""Losses, statistics, optimisers, and reads through tables: what training and data pipelines run beside layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.corpus.row import Family, Function, Row, draw, text, uniform

LOSS = Family("loss")
STATISTICS = Family("statistics")
OPTIMISER = Family("optimiser")
TABLES = Family("search and tables")
BLOCKS = Family("blocks with norms")


def rows() -> Iterator[Row]:
    for count, classes, smoothing in ((512, 32000, 0.0), (4096, 1000, 0.1), (33, 50257, 0.0)):
        yield _cross_entropy(count, classes, smoothing)
    yield LOSS.of("mean squared error 4096×513", functional.mse_loss, *[(4096, 513)] * 2)
    yield LOSS.of("binary cross entropy 8192×80", functional.binary_cross_entropy_with_logits, (8192, 80),
                  uniform(8192, 80))
    yield LOSS.of("divergence 512×1000", lambda a, b: functional.kl_div(
        a.log_softmax(-1), b.softmax(-1), reduction="batchmean"), *[(512, 1000)] * 2)
    for shape, axes in (((512, 3072), (1,)), ((16, 64, 56, 56), (0, 2, 3)), ((8, 77, 768), (2,)), ((100003,), (0,))):
        yield _moments(shape, axes)
    yield STATISTICS.of("largest with its place 3000×777", lambda x: x.max(1), (3000, 777))
    yield STATISTICS.of("smallest and largest 1000×1001", torch.aminmax, (1000, 1001))
    yield STATISTICS.of("histogram of 100000 in 64", lambda i: torch.zeros(64, device=i.device).index_add(
        0, i, torch.ones_like(i, dtype=torch.float32)), draw(64, 100000))
    yield OPTIMISER.of("adam over 12 tensors", _adam, *[shape for shape in _PARAMETERS for _ in range(3)],
                       *[uniform(*shape) for shape in _PARAMETERS])
    yield OPTIMISER.of("norm of gradients over 12 tensors", lambda *g: torch.stack([each.norm() for each in g]).norm(),
                       *_PARAMETERS)
    yield TABLES.of("buckets 1000000 in 1000", torch.bucketize, uniform(1000000),
                    lambda: torch.linspace(0, 1, 1000))
    yield TABLES.of("places 64×5000 among sorted 64×333", torch.searchsorted,
                    lambda: torch.rand(64, 333).sort(-1).values, uniform(64, 5000))
    yield TABLES.of("interpolation 500000 in 257", _interpolated, uniform(500000), lambda: torch.linspace(0, 1, 257),
                    (257,))
    yield TABLES.of("roll 8×512×768 by 5 and -3", lambda x: x.roll((5, -3), (1, 2)), (8, 512, 768))
    yield TABLES.of("camera bytes 1×720×1280×3 to channels", lambda x: x.permute(0, 3, 1, 2).float() / 255,
                    lambda: torch.randint(0, 256, (1, 720, 1280, 3), dtype=torch.uint8))
    yield TABLES.of("table of comparisons 4096×512", lambda a, b: (a[:, None] < b[None, :]).float().sum(1), (4096,),
                    (512,))
    yield TABLES.of("rows of one-hot 2048 of 1000 by 64", lambda i, w: functional.one_hot(i, 1000).to(w.dtype) @ w,
                    draw(1000, 2048), (1000, 64))
    for channels, image, groups in ((320, 32, 32), (64, 56, 8), (512, 16, 32)):
        name = f"conv + group norm + silu {channels}×{image}×{image}"
        yield BLOCKS.layer(name, lambda c=channels, g=groups: nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(g, c), nn.SiLU(), nn.Conv2d(c, c, 3, padding=1)),
            (2, channels, image, image))
    yield BLOCKS.layer("conv to pixel shuffle 64×96×96", lambda: nn.Sequential(
        nn.Conv2d(64, 12, 3, padding=1), nn.PixelShuffle(2)), (1, 64, 96, 96))
    yield BLOCKS.layer("depthwise + layer norm + mlp 96×56×56", _next_block, (1, 96, 56, 56))
    yield BLOCKS.layer("conv3d + instance norm 16×24×24×24", lambda: nn.Sequential(
        nn.Conv3d(16, 32, 3, padding=1), nn.InstanceNorm3d(32), nn.LeakyReLU()), (1, 16, 24, 24, 24))


def fresh(random: Random) -> Row:
    if random.random() < 0.5:
        return _cross_entropy(random.randint(1, 2000), random.randint(2, 9000), random.choice((0.0, 0.1)), fresh=True)
    shape = tuple(random.randint(1, 90) for _ in range(random.choice((2, 3, 4))))
    axes = tuple(sorted(random.sample(range(len(shape)), random.randint(1, len(shape)))))
    return _moments(shape, axes, fresh=True)


_PARAMETERS = ((512, 512), (512,), (1024, 512), (1024,), (512, 1024), (512,), (333, 77), (77,), (64, 3, 7, 7), (64,),
               (1000, 128), (1000,))  # fmt: skip


def _cross_entropy(count: int, classes: int, smoothing: float, fresh: bool = False) -> Row:
    name = f"cross entropy {text(count, classes)}{' smoothed' if smoothing else ''}"
    return LOSS.of(name, lambda x, i: functional.cross_entropy(x, i, label_smoothing=smoothing), (count, classes),
                   draw(classes, count), fresh=fresh)


def _moments(shape: Sequence[int], axes: Sequence[int], fresh: bool = False) -> Row:
    name = f"mean and variance over {','.join(map(str, axes))} of {text(*shape)}"
    return STATISTICS.of(name, lambda x: torch.var_mean(x, axes, correction=0), shape, fresh=fresh)


def _adam(*tensors: Any) -> Any:
    """A step of Adam: parameters, gradients, first and second moments to new parameters and moments."""
    count = len(_PARAMETERS)
    results: list[Any] = []
    for number in range(count):
        p, g, m = tensors[3 * number : 3 * number + 3]
        v = tensors[3 * count + number]
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        results += [p - 1e-3 * m / ((v / 0.001).sqrt() + 1e-8), m, v]
    return results


def _interpolated(x: Any, edges: Any, values: Any) -> Any:
    """Linear interpolation of a table at `x`."""
    right = torch.searchsorted(edges, x).clamp(1, edges.shape[0] - 1)
    left = right - 1
    share = (x - edges[left]) / (edges[right] - edges[left])
    return values[left] + share * (values[right] - values[left])


def _next_block() -> nn.Module:
    """A block of ConvNeXt."""
    parts = [nn.Conv2d(96, 96, 7, padding=3, groups=96), nn.LayerNorm(96), nn.Linear(96, 384), nn.Linear(384, 96)]

    def block(conv: Any, norm: Any, up: Any, down: Any, x: Any) -> Any:
        return x + down(functional.gelu(up(norm(conv(x).permute(0, 2, 3, 1))))).permute(0, 3, 1, 2)

    return Function(block, parts)
