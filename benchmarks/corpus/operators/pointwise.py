"""Normalisations, softmax, element-wise chains and data movement, at short, long and odd extents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.corpus.row import Family, Row, text

NORM = Family("normalisation", quick=("groupnorm 1×320×32×32 by 32", "softmax 4096×77"))
CHAIN = Family("element-wise", quick=("chain with row and column 1000×333",))
MOVE = Family("movement")

SOFTMAX = ((4096, 77), (12 * 197, 197), (1, 128256), (100000, 5), (33, 4097))
LAYERNORM = ((512, 768), (1, 2048), (3136, 96), (10000, 17), (49, 4096))
GROUPNORM = ((1, 320, 32, 32, 32), (2, 64, 31, 29, 8), (1, 128, 64, 64, 32))
CHAINS: dict[str, Callable[..., Any]] = {
    "gelu": functional.gelu, "gelu tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "mish": functional.mish, "hardswish": functional.hardswish, "tanh·sigmoid": lambda x: x.tanh() * x.sigmoid(),
    "sin + cos²": lambda x: x.sin() + x.cos() ** 2, "log1p of absolute": lambda x: x.abs().log1p(),
    "where x > 0": lambda x: torch.where(x > 0, x * 1.5, x.expm1()), "erf": torch.erf,
}


def rows() -> Iterator[Row]:
    for shape in SOFTMAX:
        yield _softmax(shape)
    yield _softmax((4096, 77), 0)
    for rows, columns in LAYERNORM:
        yield _layernorm(rows, columns)
    yield _layernorm(512, 768, "bf16")
    for *shape, groups in GROUPNORM:
        channels = shape[1]
        yield NORM.layer(f"groupnorm {text(*shape)} by {groups}", lambda a=(groups, channels): nn.GroupNorm(*a), shape)
    yield NORM.layer("rmsnorm 512×2048", lambda: nn.RMSNorm(2048), (512, 2048))
    yield NORM.layer("instancenorm 1×64×56×56", lambda: nn.InstanceNorm2d(64, affine=True), (1, 64, 56, 56))
    yield NORM.layer("batchnorm 1×256×28×28", lambda: nn.BatchNorm2d(256), (1, 256, 28, 28))
    yield NORM.of("layernorm of channels 1×96×56×56", _channel_norm, (1, 96, 56, 56))
    yield NORM.of("unit rows 1000×256", lambda x: functional.normalize(x, dim=-1), (1000, 256))
    for name, function in CHAINS.items():
        yield CHAIN.of(f"{name} 512×3072", function, (512, 3072))
    yield CHAIN.of("silu·x 128×4864", lambda x, y: functional.silu(x) * y, (128, 4864), (128, 4864))
    yield CHAIN.of("chain with row and column 1000×333", lambda x, r, c: torch.relu(x * r + c).sqrt(), (1000, 333),
                   (333,), (1000, 1))
    yield CHAIN.of("gelu 100003", functional.gelu, (100003,), dtype="f64")
    yield CHAIN.of("gelu 512×3072", functional.gelu, (512, 3072), dtype="bf16")
    yield CHAIN.of("add of slices 512×1000", lambda x: x[:, ::2] + x[:, 1::2], (512, 2000))
    for shape, order in (((1, 12, 197, 64), (0, 2, 1, 3)), ((1, 64, 56, 56), (0, 2, 3, 1)), ((1031, 517), (1, 0)),
                         ((8, 16, 32, 33), (3, 1, 0, 2))):
        yield MOVE.of(f"transpose {text(*shape)} ({','.join(map(str, order))})",
                      lambda x, o=order: x.permute(o).clone(), shape)
    yield MOVE.of("concat 64+64 channels 56×56", lambda x, y: torch.cat([x, y], 1), (1, 64, 56, 56), (1, 64, 56, 56))
    yield MOVE.of("split and swap 333×1000", lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), (333, 1000))
    yield MOVE.of("pad reflect 1×64×57×57", lambda x: functional.pad(x, (3, 3, 3, 3), mode="reflect"), (1, 64, 57, 57))
    yield MOVE.of("roll 1×56×56×96 by -3", lambda x: torch.roll(x, (-3, -3), (1, 2)), (1, 56, 56, 96))
    yield MOVE.of("windows 1×56×56×96 by 7", _windows, (1, 56, 56, 96))
    yield MOVE.of("pixel shuffle 1×64×56×56", lambda x: functional.pixel_shuffle(x, 2), (1, 64, 56, 56))
    yield MOVE.of("flip 512×1023", lambda x: x.flip(-1), (512, 1023))


def fresh(random: Random) -> Row:
    shape = random.choice((1, 7, 63, 1009)), random.randint(2, 3000)
    kind = random.randrange(3)
    if kind == 0:
        return _softmax(shape, random.choice((0, 1)), True)
    if kind == 1:
        return _layernorm(*shape, fresh=True)
    name = random.choice(sorted(CHAINS))
    dtype = random.choice(("f32", "f32", "f64"))
    return CHAIN.of(f"{name} {text(*shape)}", CHAINS[name], shape, dtype=dtype, fresh=True)


def _softmax(shape: tuple[int, int], axis: int = 1, fresh: bool = False) -> Row:
    return NORM.of(f"softmax {text(*shape)}{'' if axis else ' of columns'}", lambda x: torch.softmax(x, axis), shape,
                   fresh=fresh)


def _layernorm(rows: int, columns: int, dtype: str = "f32", fresh: bool = False) -> Row:
    return NORM.layer(f"layernorm {rows}×{columns}", lambda: nn.LayerNorm(columns), (rows, columns), dtype=dtype,
                      fresh=fresh)


def _channel_norm(x: Any) -> Any:
    """ConvNeXt's layer norm over the channels of a channels-first image."""
    mean = x.mean(1, keepdim=True)
    return (x - mean) * torch.rsqrt(((x - mean) ** 2).mean(1, keepdim=True) + 1e-6)


def _windows(x: Any) -> Any:
    """Swin's windows."""
    return x.view(1, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(64, 49, 96)
