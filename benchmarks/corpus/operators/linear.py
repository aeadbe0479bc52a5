"""Dense layers and attention at the shapes of published language models."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.corpus.row import Family, Function, Row, text

LINEAR = Family("linear", quick=("linear 1×2048→8192", "linear 8×14×14×384→1536 gelu"))
ATTENTION = Family("attention", quick=("attention gqa 1×16:4×256×256×64 causal",))

# Rows, inner extent, columns. GPT-2, Qwen2.5-0.5B, Llama-3.2-1B, SmolLM-135M, Gemma-3-270M, Whisper-tiny, T5-small.
DENSE = (
    (1, 768, 2304), (128, 768, 3072), (128, 3072, 768), (1, 896, 4864), (128, 896, 4864), (33, 4864, 896),
    (128, 896, 128), (1, 2048, 8192), (16, 2048, 512), (1, 576, 1536), (77, 576, 192), (512, 640, 2048),
    (500, 384, 1536), (128, 512, 2048), (7, 512, 1024), (1, 1024, 32000),
)
LEADING = ((8, 14, 14, 384, 1536), (1, 56, 56, 96, 384), (4, 7, 7, 768, 3072), (2, 9, 50, 256, 64))
BATCHED = ((12, 197, 64, 197), (96, 49, 32, 49), (8, 77, 64, 77), (4, 333, 40, 77), (64, 16, 16, 16), (1000, 4, 4, 4))
# Batch, heads of queries and of keys, queries, keys, extent of a head, causal.
ATTENDED = (
    (1, 12, 12, 128, 128, 64, False), (1, 12, 12, 197, 197, 64, False), (1, 16, 4, 256, 256, 64, True),
    (1, 32, 8, 1, 1024, 64, False), (2, 6, 6, 500, 500, 64, False), (1, 14, 2, 77, 77, 64, True),
    (16, 3, 3, 49, 49, 32, False), (1, 8, 8, 1024, 77, 40, False), (1, 4, 1, 300, 300, 256, True),
)


def rows() -> Iterator[Row]:
    for m, k, n in DENSE:
        yield _dense(m, k, n)
    for dtype in ("bf16", "f16", "f64"):
        yield _dense(128, 768, 2304, dtype)
        yield _dense(1, 1024, 4096, dtype)
    for *leading, k, n in LEADING:
        yield LINEAR.layer(
            f"linear {text(*leading, k)}→{n} gelu", lambda k=k, n=n: nn.Sequential(nn.Linear(k, n), nn.GELU()),
            (*leading, k))
    for b, m, k, n in BATCHED:
        yield LINEAR.of(f"matmul {text(b, m, k, n)}", torch.matmul, (b, m, k), (b, k, n))
    yield LINEAR.of("matmul transposed 511×257×769", lambda a, b: a.mT @ b, (257, 511), (257, 769))
    yield LINEAR.of("matmul by weights K×N 64×1024×1000", lambda a, b: a @ b, (64, 1024), (1024, 1000))
    yield LINEAR.layer("gated mlp 64×576-1536", lambda: _gated(576, 1536), (64, 576))
    for given in ATTENDED:
        yield _attention(*given)
    yield _attention(1, 12, 12, 128, 128, 64, False, "bf16")
    yield ATTENTION.of("rotary 1×32×256×64", _rotate, (1, 32, 256, 64), (256, 32), (256, 32))


def fresh(random: Random) -> Row:
    if random.random() < 0.3:
        heads = random.choice((1, 3, 5, 12))
        lengths = random.randint(1, 400), random.randint(1, 400)
        return _attention(random.randint(1, 3), heads, heads, *lengths, random.choice((24, 40, 64, 80)), False)
    m, k, n = random.choice((1, 3, 17, 61, 129)), random.randint(33, 1500), random.randint(33, 1500)
    return _dense(m, k, n, random.choice(("f32", "f32", "f32", "f64")), fresh=True)


def _dense(m: int, k: int, n: int, dtype: str = "f32", fresh: bool = False) -> Row:
    return LINEAR.layer(f"linear {m}×{k}→{n}", lambda: nn.Linear(k, n), (m, k), dtype=dtype, fresh=fresh)


def _gated(width: int, inner: int) -> nn.Module:
    parts = [nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False), nn.Linear(inner, width, False)]
    return Function(lambda gate, up, down, x: down(functional.silu(gate(x)) * up(x)), parts)


def _attention(b: int, heads: int, keys: int, q: int, k: int, d: int, causal: bool, dtype: str = "f32") -> Row:
    grouped = heads != keys

    def attend(query: Any, key: Any, value: Any) -> Any:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=grouped)

    name = f"attention {'gqa ' if grouped else ''}{b}×{heads}{f':{keys}' if grouped else ''}×{text(q, k, d)}"
    return ATTENTION.of(f"{name}{' causal' if causal else ''}", attend, (b, heads, q, d), (b, keys, k, d),
                        (b, keys, k, d), dtype=dtype)


def _rotate(x: Any, cosine: Any, sine: Any) -> Any:
    """Rotary position embedding, Su 2021, halves of each head."""
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)
