"""The rows measured on GPUs: each is a PyTorch module for all contenders, with a description of its inputs.

Weights repeat a fixed sample of 8191 numbers, so that the compiling and the running machine have the same ones, and an
artifact with them compresses well; times do not depend on the values.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as f

from benchmarks import gpu_jax

Tensor = torch.Tensor
BF16, F16, F32, I64 = torch.bfloat16, torch.float16, torch.float32, torch.int64
LATER = {"JAX": ("networks",)}  # groups of contenders whose rows are measured in a separate pass, as they take long
_PERIOD = 8191  # a prime: rows of weights begin at different offsets of the sample
MIB = 1 << 20


class Absent(Exception):
    """A contender does not support the row; the text tells why."""


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def flat(results: Any) -> list[Tensor]:
    """The tensors of a result, which is one or a tuple."""
    return [results] if isinstance(results, Tensor) else list(results)


@dataclass(frozen=True)
class Input:
    """Normal numbers; for integers, uniform ones below `below`. A `weight` is the same in all calls."""

    shape: tuple[int, ...]
    dtype: torch.dtype = F32
    below: int = 0

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Row:
    """`flops` and `bytes` are the minimum to compute and to move, `unit` is the unit that computes (a column of the
    table of peaks). `options` are added to the compiler's device expression. `source` is the row as StableHLO, if
    PyTorch cannot export it. `searched` rows are also given to `max-autotune` and `reduce-overhead`, which take long.
    `jax` makes the same function from `jax` and `jax.numpy`: of the inputs and, if the module has weights, of a
    dictionary of them. `tolerance` is relative to the root mean square of the reference. `values` makes the inputs if
    random numbers of `inputs` would not do; other sets are rotated."""

    name: str
    title: str
    group: str
    module: Callable[[], nn.Module]
    inputs: tuple[Input, ...]
    flops: float
    bytes: float
    unit: str = "bf16"
    options: str = ""
    source: str = ""
    searched: bool = False
    jax: Callable[[Any, Any], Callable[..., Any]] | None = None
    tolerance: float = 0.05
    values: Callable[[], Sequence[Tensor]] | None = None


class Apply(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def with_pattern(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """`module` in `dtype` with its weights set, scaled by their fan-in; scales are around one, those of batch
    normalisations exactly one."""
    sample = np.random.default_rng(5).standard_normal(_PERIOD).astype(np.float32)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    folded = {name for name, part in module.named_modules() if isinstance(part, nn.BatchNorm2d)}
    for number, (name, tensor) in enumerate(state.items()):
        if not tensor.is_floating_point():
            continue
        values = np.resize(np.roll(sample, 97 * number), tensor.numel()).reshape(tensor.shape)
        if tensor.ndim == 1 and name.rpartition(".")[0] in folded and not name.endswith(("bias", "mean")):
            values = np.ones_like(values)  # they are folded into weights, which would then no longer repeat
        elif tensor.ndim == 1:
            values = 0.05 * values + (1 if name.endswith("weight") else 0)
        else:
            values = values * (1 / math.prod(tensor.shape[1:])) ** 0.5
        tensor.data.copy_(torch.from_numpy(values))
    return module.to(dtype).eval().requires_grad_(False)


# -- products --------------------------------------------------------------------------------------

LAYERS: Sequence[tuple[str, int, int]] = (
    ("Llama-3 8B qkv", 6144, 4096), ("Llama-3 8B o", 4096, 4096), ("Llama-3 8B gate", 14336, 4096),
    ("Llama-3 8B down", 4096, 14336),
)
OTHERS: Sequence[tuple[str, int, int, int]] = (
    ("BERT qkv, 32×128", 4096, 2304, 768), ("BERT up, 32×128", 4096, 3072, 768),
    ("BERT down, 32×128", 4096, 768, 3072), ("BERT up, 1×128", 128, 3072, 768),
    ("GPT-2 head, 16", 16, 50257, 768), ("GPT-2 head, 512", 512, 50257, 768),
    ("ViT-B qkv, 64×197", 12608, 2304, 768), ("ViT-B down, 64×197", 12608, 768, 3072),
    ("1023×1025×1027", 1023, 1025, 1027),
)


def _product(name: str, title: str, group: str, m: int, n: int, k: int, dtype: torch.dtype = BF16, **rest: Any) -> Row:
    size = dtype.itemsize
    return Row(name, title, group, lambda: Apply(torch.matmul), (Input((m, k), dtype), Input((k, n), dtype)),
               2.0 * m * n * k, size * (m * k + n * k + m * n), jax=lambda jax, jnp: jnp.matmul, **rest)


def _linear(name: str, title: str, m: int, n: int, k: int) -> Row:
    """A layer with weights in PyTorch's layout, N×K."""
    return Row(name, title, "layers", lambda: Apply(lambda x, w: f.linear(x, w)),
               (Input((m, k), BF16), Input((n, k), BF16)), 2.0 * m * n * k, 2.0 * (m * k + n * k + m * n),
               jax=(lambda jax, jnp: lambda x, w: x @ w.T) if n == LAYERS[0][1] else None)


class _ScaledMm(nn.Module):
    """PyTorch's product of 8-bit floats with scales of one; for the reference, a plain product of other types."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Buffer(torch.ones((), dtype=F32), persistent=False)

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        if x.dtype != torch.float8_e4m3fn:
            return x @ w.T
        return torch._scaled_mm(x, w.T, scale_a=self.one, scale_b=self.one, out_dtype=BF16)  # pyright: ignore


def _int_mm(x: Tensor, w: Tensor) -> Tensor:
    return torch._int_mm(x, w.T) if x.dtype == torch.int8 else x @ w.T  # pyright: ignore


def _short(name: str, title: str, module: Callable[[], nn.Module], dtype: torch.dtype, kinds: tuple[str, str, str],
           jax: Callable[[Any, Any], Callable[..., Any]]) -> Row:
    """A product of 8-bit numbers 4096³ with weights in the layout of PyTorch's products, N×K; `kinds` are the types of
    operands, sum and result in MLIR."""
    factor, total, result = (f"tensor<4096x4096x{kind}>" for kind in kinds)
    turned = "" if total == result else f"%r = stablehlo.convert %p : ({total}) -> {result}"
    source = f"""func.func @main(%x: {factor}, %w: {factor}) -> {result} {{
  %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : ({factor}, {factor}) -> {total}
  {turned}
  return {"%r" if turned else "%p"} : {result}
}}
"""
    size = 2 * 4096**2 + 4096**2 * (4 if kinds[2] == "i32" else 2)
    return Row(name, title, "products", module, (Input((4096, 4096), dtype),) * 2, 2.0 * 4096**3, size, "int8",
               source=source, jax=jax)


def _epilogue(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return f.gelu(torch.matmul(x, w) + b + r)


def _products() -> list[Row]:
    rows = [
        _product("matmul-4096", "matmul bf16 4096³", "products", 4096, 4096, 4096),
        _product("matmul-8192", "matmul bf16 8192³", "products", 8192, 8192, 8192),
        _product("matmul-tf32", "matmul tf32 4096³", "products", 4096, 4096, 4096, F32, unit="tf32",
                 options="precision=tf32"),
        _product("matmul-f32", "matmul f32 4096³, in full", "products", 4096, 4096, 4096, F32, unit="f32",
                 tolerance=1e-3),
        Row("matmul-gelu", "gelu(matmul + bias + residual) bf16 4096³", "products", lambda: Apply(_epilogue),
            (Input((4096, 4096), BF16), Input((4096, 4096), BF16), Input((4096,), BF16), Input((4096, 4096), BF16)),
            2.0 * 4096**3, 8 * 4096**2, searched=True,
            jax=lambda jax, jnp: lambda x, w, b, r: jax.nn.gelu(x @ w + b + r, approximate=False)),
        _short("matmul-f8", "matmul f8E4M3FN to bf16 4096³", _ScaledMm, torch.float8_e4m3fn,
               ("f8E4M3FN", "f32", "bf16"), lambda jax, jnp: lambda x, w: jax.lax.dot_general(
                   x, w, (((1,), (1,)), ((), ())), preferred_element_type=jnp.bfloat16)),
        _short("matmul-i8", "matmul i8 to i32 4096³", lambda: Apply(_int_mm), torch.int8, ("i8", "i32", "i32"),
               lambda jax, jnp: lambda x, w: jax.lax.dot_general(
                   x, w, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)),
        Row("fragment", "64×128·128×128 + lhs, f32", "products", lambda: Apply(lambda x, w: x @ w + x),
            (Input((64, 128)), Input((128, 128))), 2.0 * 64 * 128 * 128, 4 * 32768, "f32",
            jax=lambda jax, jnp: lambda x, w: x @ w + x, tolerance=1e-3),
        Row("two-matmuls", "two 1024³ products + add, bf16", "products",
            lambda: Apply(lambda a, b, c, d: a @ b + c @ d), (Input((1024, 1024), BF16),) * 4,
            4.0 * 1024**3, 10.0 * 1024**2, searched=True, jax=lambda jax, jnp: lambda a, b, c, d: a @ b + c @ d),
    ]
    for (what, n, k), m in itertools.product(LAYERS, (4096, 256, 16, 1)):
        rows.append(_linear(f"{what.split()[-1]}-{m}", f"{what}, M = {m}", m, n, k))
    for number, (what, m, n, k) in enumerate(OTHERS):
        rows.append(_linear(f"layer-{number}", what, m, n, k))
    return rows


# -- memory-bound rows -----------------------------------------------------------------------------


def _moving(name: str, title: str, function: Callable[..., Any], inputs: tuple[Input, ...], out_bytes: float,
            unit: str = "f32", **rest: Any) -> Row:
    return Row(name, title, "memory", lambda: Apply(function), inputs, 0.0,
               sum(each.bytes for each in inputs) + out_bytes, unit, **rest)


def _rms_norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * w


def _bound_by_memory() -> list[Row]:
    big, half = Input((8192, 8192)), Input((8192, 8192), BF16)
    scale = Input((8192,), BF16)
    long = Input((4096, 8192))
    n, m = 8192**2, 4096 * 8192
    return [
        _moving("softmax", "softmax f32 8192²", lambda x: torch.softmax(x, -1), (big,), 4 * n,
                jax=lambda jax, jnp: lambda x: jax.nn.softmax(x)),
        _moving("softmax-bf16", "softmax bf16 8192²", lambda x: torch.softmax(x, -1), (half,), 2 * n,
                jax=lambda jax, jnp: lambda x: jax.nn.softmax(x)),
        _moving("layernorm", "layernorm bf16 8192²", lambda x, w, b: f.layer_norm(x, (8192,), w, b),
                (half, scale, scale), 2 * n, jax=gpu_jax.layer_norm),
        _moving("rmsnorm", "RMSNorm bf16 8192²", _rms_norm, (half, scale), 2 * n, jax=gpu_jax.rms_norm),
        _moving("gelu", "gelu bf16 8192²", f.gelu, (half,), 2 * n,
                jax=lambda jax, jnp: lambda x: jax.nn.gelu(x, approximate=False)),
        _moving("transpose", "transpose f32 8192²", lambda x: x.T.contiguous(), (big,), 4 * n,
                jax=lambda jax, jnp: jnp.transpose),
        _moving("transpose-bf16", "transpose bf16 8192²", lambda x: x.T.contiguous(), (half,), 2 * n,
                jax=lambda jax, jnp: jnp.transpose),
        _moving("row-sum", "sums of rows f32 4096×8192", lambda x: x.sum(1), (long,), 4 * 4096,
                jax=lambda jax, jnp: lambda x: x.sum(1)),
        _moving("column-sum", "sums of columns f32 4096×8192", lambda x: x.sum(0), (long,), 4 * 8192,
                jax=lambda jax, jnp: lambda x: x.sum(0)),
        _moving("sum", "sum of all f32 4096×8192", lambda x: x.sum(), (long,), 4,
                jax=lambda jax, jnp: lambda x: x.sum()),
        _moving("embedding", "embedding bf16 128256×4096, 8192 ids", lambda t, i: f.embedding(i, t),
                (Input((128256, 4096), BF16), Input((8192,), I64, 128256)), 2 * 8192 * 4096 * 2 - 128256 * 4096 * 2,
                jax=lambda jax, jnp: lambda t, i: jnp.take(t, i, axis=0)),
        _moving("cumsum", "cumsum f32 4096×8192", lambda x: torch.cumsum(x, 1), (long,), 4 * m,
                jax=lambda jax, jnp: lambda x: jnp.cumsum(x, 1), tolerance=1e-3),
        _moving("top-k", "top 50 of f32 64×128256", lambda x: torch.topk(x, 50, dim=1)[0], (Input((64, 128256)),),
                4 * 64 * 50, jax=lambda jax, jnp: lambda x: jax.lax.top_k(x, 50)[0]),
        _moving("sort", "sort f32 4096×8192", lambda x: torch.sort(x, 1)[0], (long,), 4 * m,
                jax=lambda jax, jnp: lambda x: jnp.sort(x, 1)),
        _moving("groupnorm", "GroupNorm(32) + silu f16 16×512×64²",
                lambda x, w, b: f.silu(f.group_norm(x, 32, w, b)),
                (Input((16, 512, 64, 64), F16), Input((512,), F16), Input((512,), F16)), 2 * 16 * 512 * 4096,
                jax=gpu_jax.group_norm_silu),
    ]


# -- convolutions ----------------------------------------------------------------------------------


class TwoConvolutions(nn.Module):
    """Two 3×3 convolutions of one single-channel image, and their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 64, 3, padding=1)
        self.second = nn.Conv2d(1, 64, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) + self.second(x)


def _convolution(name: str, title: str, c: int, n: int, size: int, dtype: torch.dtype, **rest: Any) -> Row:
    def make() -> nn.Module:
        return with_pattern(nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.ReLU()), dtype)

    points = n * size * size * c
    return Row(name, title, "convolutions", make, (Input((n, c, size, size), dtype),), 18.0 * points * c,
               2.0 * points * dtype.itemsize, jax=gpu_jax.convolution_relu, **rest)


def _convolutions() -> list[Row]:
    return [
        Row("two-conv", "two convolutions + add, 1024×1×28×28 to 64, f32", "convolutions",
            lambda: with_pattern(TwoConvolutions(), F32), (Input((1024, 1, 28, 28)),),
            36.0 * 1024 * 784 * 64, 4 * 1024 * 784 * 65, "f32", tolerance=1e-3, jax=gpu_jax.two_convolutions),
        _convolution("conv-f16", "3×3 convolution + relu f16 16×64×56²", 64, 16, 56, F16, unit="bf16",
                     searched=True),
        _convolution("conv-f16-512", "3×3 convolution + relu f16 32×512×14²", 512, 32, 14, F16, unit="bf16",
                     searched=True),
        _convolution("conv-tf32", "3×3 convolution + relu tf32 16×64×56²", 64, 16, 56, F32, unit="tf32",
                     options="precision=tf32"),
    ]


def rows() -> list[Row]:
    from benchmarks.gpu_models import models

    return [*_products(), *_bound_by_memory(), *_convolutions(), *models()]
