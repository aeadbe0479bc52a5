"""Networks as plain PyTorch modules, compiled by Motet and run by its peers.

He et al. 2016 (ResNet-50), Devlin et al. 2019 (BERT), Dosovitskiy et al. 2021 (ViT), Radford et al. 2019 (GPT-2),
Grattafiori et al. 2024 (Llama 3), Sandler et al. 2018 (MobileNetV2), Rombach et al. 2022 (the U-Net of Stable
Diffusion), Radford et al. 2022 (Whisper). Attention is PyTorch's function, which selects its fastest kernel; exported
models contain the two products and the softmax that it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

from benchmarks import gpu_jax
from benchmarks.gpu_rows import BF16, I64, MIB, Input, Row, with_pattern

Tensor = torch.Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Attention with heads in the second dimension; keys and values may have fewer heads, each for several of
    queries."""
    groups = int(q.shape[1]) // int(k.shape[1])
    if groups > 1:
        k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    if not torch.onnx.is_in_onnx_export():
        return f.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scores = torch.matmul(q, k.transpose(-1, -2)) * int(q.shape[-1]) ** -0.5
    if causal:
        ahead = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, float("-inf"))
    return torch.matmul(torch.softmax(scores, -1), v)


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.inward = nn.Linear(width, 3 * width)
        self.outward = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, s, d = map(int, x.shape)
        q, k, v = (y.view(b, s, self.heads, d // self.heads).transpose(1, 2) for y in self.inward(x).chunk(3, -1))
        return self.outward(attention(q, k, v, self.causal).transpose(1, 2).reshape(b, s, d))


class Block(nn.Module):
    """A transformer block, with normalisation before each part or, as in BERT, after it."""

    def __init__(self, width: int, heads: int, causal: bool = False, before: bool = True, tanh: bool = False) -> None:
        super().__init__()
        self.before = before
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gelu = nn.GELU("tanh" if tanh else "none")

    def forward(self, x: Tensor) -> Tensor:
        if self.before:
            x = x + self.attention(self.first(x))
            return x + self.down(self.gelu(self.up(self.second(x))))
        x = self.first(x + self.attention(x))
        return self.second(x + self.down(self.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 30522) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, heads, before=False) for _ in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.words(tokens) + self.positions.weight[: int(tokens.shape[1])])
        for block in self.blocks:
            x = block(x)
        return x


class Vit(nn.Module):
    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.kind = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.kind.expand(int(x.shape[0]), -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Gpt2(nn.Module):
    """GPT-2: tokens to the logits after the last one."""

    def __init__(self, positions: int = 1024, layers: int = 12, width: int = 768, heads: int = 12,
                 words: int = 50257) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal=True, tanh=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.positions.weight[: int(tokens.shape[1])]
        for block in self.blocks:
            x = block(x)
        return f.linear(self.norm(x[:, -1]), self.words.weight)


class Gpt2Step(nn.Module):
    """One more token after `past` ones: its logits, and its keys and values in all layers."""

    def __init__(self, past: int, layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257) -> None:
        super().__init__()
        self.past, self.heads = past, heads
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(Block(width, heads, tanh=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, token: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Shapes: token is batch × 1; keys and values are layers × batch × heads × past × 64."""
        x = self.words(token) + self.positions.weight[self.past]
        b, _, d = map(int, x.shape)
        own_keys: list[Tensor] = []
        own_values: list[Tensor] = []
        block: Any
        for number, block in enumerate(self.blocks):
            parts = block.attention.inward(block.first(x)).chunk(3, -1)
            q, k, v = (y.view(b, 1, self.heads, d // self.heads).transpose(1, 2) for y in parts)
            own_keys.append(k)
            own_values.append(v)
            mixed = attention(q, torch.cat([keys[number], k], 2), torch.cat([values[number], v], 2))
            x = x + block.attention.outward(mixed.transpose(1, 2).reshape(b, 1, d))
            x = x + block.down(block.gelu(block.up(block.second(x))))
        return f.linear(self.norm(x), self.words.weight), torch.stack(own_keys), torch.stack(own_values)


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021), applied to halves."""
    left, right = x.chunk(2, -1)
    return x * cosine + torch.cat([-right, left], -1) * sine


class LlamaBlock(nn.Module):
    """A Llama block: grouped queries, rotary positions, SwiGLU; with `past` keys and values, or causal over its
    input."""

    def __init__(self, past: int, width: int = 4096, heads: int = 32, groups: int = 8, hidden: int = 14336) -> None:
        super().__init__()
        self.past, self.heads, self.groups, self.head = past, heads, groups, width // heads
        self.first, self.second = RmsNorm(width), RmsNorm(width)
        self.inward = nn.Linear(width, (heads + 2 * groups) * self.head, bias=False)
        self.outward = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, *cache: Tensor) -> Any:
        """Shapes: x: batch × tokens × width; cosine, sine: tokens × head; keys, values: batch × groups × past ×
        head."""
        b, s, _ = map(int, x.shape)
        sizes = [self.heads * self.head, self.groups * self.head, self.groups * self.head]
        parts = self.inward(self.first(x)).split(sizes, -1)
        q, k, v = (y.view(b, s, -1, self.head).transpose(1, 2) for y in parts)
        q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
        if cache:
            mixed = attention(q, torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2))
        else:
            mixed = attention(q, k, v, causal=True)
        x = x + self.outward(mixed.transpose(1, 2).reshape(b, s, -1))
        y = self.second(x)
        x = x + self.down(f.silu(self.gate(y)) * self.up(y))
        return (x, k, v) if cache else x


class Bottleneck(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after),
        )
        plain = stride == 1 and before == after
        self.side = nn.Sequential() if plain else nn.Sequential(
            nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        return f.relu(self.body(x) + self.side(x))


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for index in range(depth):
            layers.append(Bottleneck(channels, 64 << stage, 2 if stage and not index else 1))
            channels = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


# Expansion, channels, depth and stride of each stage.
MOBILENET = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _step(before: int, after: int, size: int = 1, stride: int = 1, groups: int = 1, ends: bool = True) -> nn.Module:
    parts: list[nn.Module] = [
        nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(after)]
    return nn.Sequential(*parts, *([nn.ReLU6()] if ends else []))


class Inverted(nn.Module):
    """An inverted residual: expansion of channels, a depthwise convolution, and projection."""

    def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        self.body = nn.Sequential(
            *([_step(before, wide)] if expansion > 1 else []), _step(wide, wide, 3, stride, wide),
            _step(wide, after, ends=False))
        self.adds = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet_v2() -> nn.Module:
    layers: list[nn.Module] = [_step(3, 32, 3, 2)]
    channels = 32
    for expansion, after, depth, stride in MOBILENET:
        for index in range(depth):
            layers.append(Inverted(channels, after, 1 if index else stride, expansion))
            channels = after
    return nn.Sequential(*layers, _step(channels, 1280), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


class CrossAttention(nn.Module):
    """Attention of tokens to other tokens, or to themselves."""

    def __init__(self, width: int, other: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries, self.outward = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.keys, self.values = nn.Linear(other, width, bias=False), nn.Linear(other, width, bias=False)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        b, s, d = map(int, x.shape)
        q, k, v = (y.view(b, -1, self.heads, d // self.heads).transpose(1, 2)
                   for y in (self.queries(x), self.keys(other), self.values(other)))
        return self.outward(attention(q, k, v).transpose(1, 2).reshape(b, s, d))


class UNetBlock(nn.Module):
    """A residual block and a transformer block over an image, a time and a text, as on the U-Net's second level."""

    def __init__(self, width: int = 640, heads: int = 8, text: int = 768, time: int = 1280) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, width) for _ in range(3))
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(time, width)
        self.inward, self.outward = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.lines = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.cross = CrossAttention(width, width, heads), CrossAttention(width, text, heads)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, image: Tensor, time: Tensor, text: Tensor) -> Tensor:
        x = self.first(f.silu(self.norms[0](image))) + self.time(f.silu(time))[:, :, None, None]
        image = image + self.second(f.silu(self.norms[1](x)))
        b, c, h, w = map(int, image.shape)
        x = self.inward(self.norms[2](image)).flatten(2).transpose(1, 2)
        y = self.lines[0](x)
        x = x + self.own(y, y)
        x = x + self.cross(self.lines[1](x), text)
        left, gate = self.up(self.lines[2](x)).chunk(2, -1)
        x = x + self.down(left * f.gelu(gate))
        return image + self.outward(x.transpose(1, 2).reshape(b, c, h, w))


class WhisperEncoder(nn.Module):
    """The encoder of Whisper-base: 30 s of sound, 80 frequencies in 3000 steps, to 1500 tokens."""

    def __init__(self, layers: int = 6, width: int = 512, heads: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
        self.positions = nn.Parameter(torch.zeros(1500, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, sound: Tensor) -> Tensor:
        x = f.gelu(self.second(f.gelu(self.first(sound)))).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


# -- rows ------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, self.causal)


def _network(name: str, title: str, make: Callable[[], nn.Module], inputs: tuple[Input, ...], flops: float,
             size: float, **rest: Any) -> Row:
    return Row(name, title, "networks", lambda: with_pattern(make(), BF16), inputs, flops, size, **rest)


def models() -> list[Row]:
    def tokens(batch: int, length: int, words: int) -> tuple[Input, ...]:
        return (Input((batch, length), I64, words),)

    def image(batch: int) -> tuple[Input, ...]:
        return (Input((batch, 3, 224, 224), BF16),)

    heads = Input((4, 32, 4096, 128), BF16)
    full = 4.0 * 4 * 32 * 4096 * 4096 * 128
    cache, layer_cache = Input((12, 1, 12, 512, 64), BF16), Input((1, 8, 2048, 128), BF16)
    rotations = (Input((1, 128), BF16),) * 2, (Input((2048, 128), BF16),) * 2
    llama = 2.0 * (6144 * 4096 + 4096 * 4096 + 3 * 14336 * 4096)  # operations for one token, bytes of the weights
    bert, vit, gpt2 = 85.0e6, 86.0e6, 85.0e6  # weights of the layers
    return [
        Row("attention", "attention bf16 b4 h32 s4096 d128", "attention", lambda: Attention(False), (heads,) * 3,
            full, 4.0 * heads.bytes, jax=gpu_jax.attention(False)),
        Row("attention-causal", "causal attention bf16 b4 h32 s4096 d128", "attention", lambda: Attention(True),
            (heads,) * 3, full / 2, 4.0 * heads.bytes, jax=gpu_jax.attention(True)),
        _network("encoder", "encoder block bf16 b16 s512 d1024 h16", lambda: Block(1024, 16),
                 (Input((16, 512, 1024), BF16),), 8192 * 2 * 12.6e6 + 4.0 * 16 * 512 * 512 * 1024, 66 * MIB,
                 searched=True, jax=gpu_jax.encoder(16)),
        _network("resnet50-1", "ResNet-50 bf16, batch 1", resnet50, image(1), 8.2e9, 51.0e6, searched=True,
                 jax=gpu_jax.resnet50),
        _network("resnet50-64", "ResNet-50 bf16, batch 64", resnet50, image(64), 64 * 8.2e9, 51.0e6 + 64 * 45e6),
        _network("bert-1", "BERT-base bf16, 1×128", Bert, tokens(1, 128, 30522), 128 * 2 * bert, 2 * bert,
                 searched=True, jax=gpu_jax.bert),
        _network("bert-32", "BERT-base bf16, 32×128", Bert, tokens(32, 128, 30522), 32 * 128 * 2 * bert, 2 * bert,
                 jax=gpu_jax.bert),
        _network("vit-1", "ViT-B/16 bf16, batch 1", Vit, image(1), 197 * 2 * vit, 2 * vit),
        _network("vit-64", "ViT-B/16 bf16, batch 64", Vit, image(64), 64 * 197 * 2 * vit, 2 * vit,
                 jax=gpu_jax.vit),
        _network("gpt2-prefill", "GPT-2 bf16, 512 tokens", Gpt2, tokens(1, 512, 50257), 512 * 2 * gpt2, 2 * 124e6,
                 jax=gpu_jax.gpt2),
        _network("gpt2-prefill-2048", "GPT-2 bf16, 2048 tokens", lambda: Gpt2(2048), tokens(1, 2048, 50257),
                 2048 * 2 * gpt2 + 12 * 2.0 * 2048 * 2048 * 768, 2 * 124e6),
        _network("gpt2-step", "GPT-2 bf16, one token after 512", lambda: Gpt2Step(512),
                 (*tokens(1, 1, 50257), cache, cache), 2 * 124e6, 2 * 124e6 + 2.0 * cache.bytes),
        _network("llama-step", "Llama-3 8B block bf16, one token after 2048", lambda: LlamaBlock(2048),
                 (Input((1, 1, 4096), BF16), *rotations[0], layer_cache, layer_cache), llama,
                 llama + 2.0 * layer_cache.bytes),
        _network("llama-prefill", "Llama-3 8B block bf16, 2048 tokens", lambda: LlamaBlock(0),
                 (Input((1, 2048, 4096), BF16), *rotations[1]), 2048 * llama + 4096.0 * 2048 * 2048, llama + 64 * MIB),
        _network("mobilenet-1", "MobileNetV2 bf16, batch 1", mobilenet_v2, image(1), 0.6e9, 7.0e6),
        _network("mobilenet-64", "MobileNetV2 bf16, batch 64", mobilenet_v2, image(64), 64 * 0.6e9,
                 7.0e6 + 64 * 27e6, jax=gpu_jax.mobilenet(MOBILENET)),
        _network("unet-block", "U-Net block bf16, 2×640×32², text of 77", UNetBlock,
                 (Input((2, 640, 32, 32), BF16), Input((2, 1280), BF16), Input((2, 77, 768), BF16)),
                 2048 * 2 * (18 * 640**2 + 2 * 640**2 + 4 * 640**2 + 2 * 640**2 + 12 * 640**2)
                 + 4.0 * 2 * 1024 * (1024 + 77) * 640, 2.0 * 40.4 * 640**2 + 4 * 2048 * 640, searched=True),
        _network("whisper", "Whisper-base encoder bf16, 30 s", WhisperEncoder, (Input((1, 80, 3000), BF16),),
                 1500 * 2 * 18.9e6 + 6 * 4.0 * 1500 * 1500 * 512 + 2 * 3000 * 240 * 512 + 2 * 1500 * 1536 * 512.0,
                 2 * 20.6e6, jax=gpu_jax.whisper),
    ]
