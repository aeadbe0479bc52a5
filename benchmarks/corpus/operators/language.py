"""What servers of language models run beside dense layers: attention, weights of few bits, samplers, experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch.nn import functional

from benchmarks.corpus.row import Family, Function, Row, draw, text

FORMS = Family("attention forms")
FEW_BITS = Family("weights of few bits")
SAMPLING = Family("sampling")
EXPERTS = Family("experts")

Mask = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of the places of queries and of keys
# Rows, inner extent, columns, inner elements that share a scale.
PACKED = ((1, 2048, 2048, 128), (4, 1536, 4096, 64), (16, 2048, 5632, 32), (33, 896, 4864, 128), (128, 2048, 2048, 128))
SCALED = ((1, 2048, 8192), (8, 4096, 4096), (64, 1024, 3072))


def rows() -> Iterator[Row]:
    yield _masked("window of 128", 1, 8, 1024, 64, lambda q, k: (k <= q) & (q - k < 128))
    yield _masked("window of 65", 2, 5, 777, 80, lambda q, k: (k <= q) & (q - k < 65))
    yield _masked("prefix of 200", 1, 8, 768, 64, lambda q, k: (k <= q) | (k < 200))
    yield _masked("documents of 256", 1, 12, 1024, 64, lambda q, k: (k <= q) & (q // 256 == k // 256))
    yield _masked("blocks of 64, every third", 1, 8, 1024, 128, lambda q, k: (q // 64 + k // 64) % 3 == 0)
    yield _biased("slopes by head", 1, 8, 512, 64, lambda slope, q, k: -slope[:, None, None] * (q - k).abs(), (8,))
    yield _biased("relative table", 2, 6, 333, 48, lambda table, q, k: table[:, q - k + 332], (6, 665))
    yield FORMS.of("attention with sinks 1×8×512×64", _sinks, *[(1, 8, 512, 64)] * 3, (8,))
    yield FORMS.of("attention by key lengths 8×8×1×1024×64", _lengths, (8, 8, 1, 64), *[(8, 8, 1024, 64)] * 2,
                   lambda: torch.tensor([5, 1024, 77, 300, 640, 1, 999, 128]))
    yield FORMS.of("attention over pages 4×8×1, 16 of 64×64", _pages, (4, 8, 1, 64), *[(100, 64, 8, 64)] * 2,
                   draw(100, 4, 16), moved=4 * 16 * 64 * 8 * 64 * 8)
    for m, k, n, block in PACKED:
        yield _four_bits(m, k, n, block)
    for m, k, n in SCALED:
        yield FEW_BITS.layer(f"weights of 8 bits {text(m, k)}→{n}", lambda k=k, n=n: Function(
            lambda w, s, x: functional.linear(x, w.to(x.dtype)) * s,
            [torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n) / k]), (m, k))
    yield SAMPLING.of("top 40 of 8×32000 and softmax", lambda x: functional.softmax(x.topk(40).values, -1), (8, 32000))
    yield SAMPLING.of("nucleus of 4×50257", _nucleus, (4, 50257))
    yield SAMPLING.of("repetition penalty 8×32000 of 128", _penalised, (8, 32000), draw(32000, 8, 128))
    yield SAMPLING.of("order 16×4097", lambda x: x.argsort(dim=-1, descending=True, stable=True), (16, 4097))
    yield EXPERTS.layer("experts 2 of 8, 64×512-1024", lambda: Function(_experts, [
        torch.randn(8, 512) / 23, torch.randn(8, 1024, 512) / 23, torch.randn(8, 512, 1024) / 32]), (64, 512))
    yield EXPERTS.of("rows by expert 4×64×512, 8 of 512×768", lambda x, w, i: torch.einsum("bmk,bkn->bmn", x, w[i]),
                     (4, 64, 512), (8, 512, 768), lambda: torch.tensor([3, 0, 7, 3]))


def fresh(random: Random) -> Row:
    if random.random() < 0.5:
        m, block = random.choice((1, 2, 5, 16, 31, 64)), random.choice((32, 64, 128))
        return _four_bits(m, block * random.randint(3, 30), 8 * random.randint(20, 500), block, fresh=True)
    length, width = random.randint(100, 1200), random.choice((32, 64, 80, 128))
    reach = random.randint(17, length)
    return _masked(f"window of {reach}", 1, random.randint(1, 9), length, width,
                   lambda q, k: (k <= q) & (q - k < reach), fresh=True)


def _masked(name: str, b: int, heads: int, length: int, width: int, mask: Mask, fresh: bool = False) -> Row:
    def attend(query: Any, key: Any, value: Any) -> Any:
        place = torch.arange(length, device=query.device)
        seen = mask(place[:, None], place[None, :])
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)

    shape = (b, heads, length, width)
    return FORMS.of(f"attention {text(*shape)} {name}", attend, *[shape] * 3, fresh=fresh)


def _biased(
    name: str, b: int, heads: int, length: int, width: int, bias: Callable[..., torch.Tensor], given: tuple[int, ...]
) -> Row:
    def attend(query: Any, key: Any, value: Any, values: Any) -> Any:
        place = torch.arange(length, device=query.device)
        added = bias(values, place[:, None], place[None, :]).to(query.dtype)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=added)

    shape = (b, heads, length, width)
    return FORMS.of(f"attention {text(*shape)} {name}", attend, *[shape] * 3, given)


def _sinks(query: Any, key: Any, value: Any, sink: Any) -> Any:
    """Attention whose softmax has one more score for each head, as in GPT-OSS."""
    scores = query @ key.mT / 8
    more = sink[None, :, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, more], -1).softmax(-1)[..., :-1] @ value


def _lengths(query: Any, key: Any, value: Any, lengths: Any) -> Any:
    seen = torch.arange(key.shape[2], device=key.device) < lengths[:, None, None, None]
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)


def _pages(query: Any, keys: Any, values: Any, pages: Any) -> Any:
    """Attention to keys and values that are gathered from pages."""
    key, value = (table[pages].flatten(1, 2).transpose(1, 2) for table in (keys, values))
    return functional.scaled_dot_product_attention(query, key, value)


def _four_bits(m: int, k: int, n: int, block: int, fresh: bool = False) -> Row:
    """A product by weights of two values in a byte, with a scale and a zero point for each block of the inner axis."""

    def product(packed: Any, scale: Any, zero: Any, x: Any) -> Any:
        both = torch.stack([packed & 15, packed >> 4], -1).view(n, k // block, block)
        weight = (both.to(x.dtype) - zero[..., None]) * scale[..., None]
        return functional.linear(x, weight.view(n, k))

    def parts() -> Function:
        packed = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8)
        return Function(product, [packed, torch.rand(n, k // block) / k, torch.randint(0, 16, (n, k // block)).float()])

    moved = 4 * (m * k + m * n) + n * k / 2 + 8 * n * k / block
    return FEW_BITS.layer(f"weights of 4 bits {text(m, k)}→{n} blocks of {block}", parts, (m, k), moved=moved,
                          fresh=fresh)


def _nucleus(x: Any) -> Any:
    """The probabilities of the most likely elements that sum to 0.9, all others 0."""
    chance, place = x.softmax(-1).sort(-1, descending=True)
    kept = chance.masked_fill(chance.cumsum(-1) - chance > 0.9, 0.0)
    return torch.zeros_like(x).scatter(-1, place, kept)


def _penalised(x: Any, seen: Any) -> Any:
    score = x.gather(1, seen)
    return x.scatter(1, seen, torch.where(score < 0, score * 1.3, score / 1.3))


def _experts(gate: Any, up: Any, down: Any, x: Any) -> Any:
    """Two experts for each row, all computed, summed by their weights."""
    weight, place = functional.linear(x, gate).softmax(-1).topk(2)
    share = torch.zeros(x.shape[0], 8, dtype=x.dtype, device=x.device).scatter(1, place, weight)
    inner = functional.gelu(torch.einsum("mk,enk->emn", x, up))
    return torch.einsum("emn,ekn,me->mk", inner, down, share)
