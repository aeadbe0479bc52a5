"""Rows of `benchmarks.gpu` for JAX: plain `jax.numpy` with the weights of PyTorch's modules.

Each function here takes `jax` and `jax.numpy`, and returns the row's function of the inputs and, if the module has
weights, of a dictionary of them by PyTorch's names. Attention is `jax.nn.dot_product_attention`, by cuDNN where it is
available. Normalisations compute in f32, as PyTorch's do.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

Array = Any
Weights = dict[str, Any]


@functools.cache
def attention_by() -> str:
    """`cudnn` if it runs a small attention, else `xla`. Call it before tracing."""
    jax, jnp = importlib.import_module("jax"), importlib.import_module("jax.numpy")
    x = jnp.zeros((1, 128, 2, 64), jnp.bfloat16)
    try:
        jax.jit(lambda x: jax.nn.dot_product_attention(x, x, x, implementation="cudnn"))(x).block_until_ready()
    except Exception as error:  # of various classes, without a GPU or without cuDNN
        sys.stderr.write(f"JAX's attention is not by cuDNN: {type(error).__name__}: {error}"[:300] + "\n")
        return "xla"
    return "cudnn"


class Layers:
    """Layers by their names in the weights."""

    def __init__(self, jax: Any, jnp: Any, weights: Weights) -> None:
        self.jax, self.jnp, self.weights = jax, jnp, weights

    def linear(self, name: str, x: Array) -> Array:
        y = x @ self.weights[f"{name}.weight"].T
        return y + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else y

    def norm(self, name: str, x: Array) -> Array:
        return layer_norm(self.jax, self.jnp)(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def attend(self, q: Array, k: Array, v: Array, causal: bool) -> Array:
        """Attention; tensors are batch × tokens × heads × head."""
        return self.jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation=attention_by())

    def self_attention(self, name: str, x: Array, heads: int, causal: bool) -> Array:
        b, s, d = x.shape
        q, k, v = (y.reshape(b, s, heads, d // heads) for y in self.jnp.split(self.linear(f"{name}.inward", x), 3, -1))
        return self.linear(f"{name}.outward", self.attend(q, k, v, causal).reshape(b, s, d))

    def block(self, name: str, x: Array, heads: int, causal: bool = False, before: bool = True,
              tanh: bool = False) -> Array:
        """`gpu_models.Block`."""
        def attention(x: Array) -> Array:
            return self.self_attention(f"{name}attention", x, heads, causal)

        def mlp(x: Array) -> Array:
            return self.linear(f"{name}down", self.jax.nn.gelu(self.linear(f"{name}up", x), approximate=tanh))

        first, second = f"{name}first", f"{name}second"
        if before:
            x = x + attention(self.norm(first, x))
            return x + mlp(self.norm(second, x))
        x = self.norm(first, x + attention(x))
        return self.norm(second, x + mlp(x))

    def convolution(self, name: str, x: Array, stride: int = 1, pad: int = 0, groups: int = 1) -> Array:
        y = self.jax.lax.conv_general_dilated(x, self.weights[f"{name}.weight"], (stride, stride), ((pad, pad),) * 2,
                                              feature_group_count=groups)
        bias = self.weights.get(f"{name}.bias")
        return y if bias is None else y + bias[:, None, None]

    def batch_norm(self, name: str, x: Array) -> Array:
        scale, shift, mean, variance = (self.weights[f"{name}.{part}"].astype("float32")[:, None, None]
                                        for part in ("weight", "bias", "running_mean", "running_var"))
        factor = scale * self.jax.lax.rsqrt(variance + 1e-5)
        return (x.astype("float32") * factor + (shift - mean * factor)).astype(x.dtype)


def layer_norm(jax: Any, jnp: Any) -> Callable[..., Array]:
    def function(x: Array, weight: Array, bias: Array) -> Array:
        wide = x.astype("float32")
        centred = wide - wide.mean(-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        return (scaled * weight + bias).astype(x.dtype)

    return function


def rms_norm(jax: Any, jnp: Any) -> Callable[..., Array]:
    def function(x: Array, weight: Array) -> Array:
        wide = x.astype("float32")
        return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * weight

    return function


def group_norm_silu(jax: Any, jnp: Any) -> Callable[..., Array]:
    def function(x: Array, weight: Array, bias: Array) -> Array:
        wide = x.astype("float32").reshape(x.shape[0], 32, -1)
        centred = wide - wide.mean(-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        y = scaled.reshape(x.shape) * weight[:, None, None] + bias[:, None, None]
        return jax.nn.silu(y).astype(x.dtype)

    return function


def convolution_relu(jax: Any, jnp: Any) -> Callable[..., Array]:
    return lambda x, weights: jax.nn.relu(Layers(jax, jnp, weights).convolution("0", x, pad=1))


def two_convolutions(jax: Any, jnp: Any) -> Callable[..., Array]:
    def function(x: Array, weights: Weights) -> Array:
        layers = Layers(jax, jnp, weights)
        return layers.convolution("first", x, pad=1) + layers.convolution("second", x, pad=1)

    return function


def attention(causal: bool) -> Callable[[Any, Any], Callable[..., Array]]:
    """Attention with heads in the second dimension, which cuDNN reads directly if JAX's inner function for it
    exists."""

    def make(jax: Any, jnp: Any) -> Callable[..., Array]:
        try:
            fused = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
            kind = fused.MaskType.CAUSAL if causal else fused.MaskType.NO_MASK
        except (ImportError, AttributeError):
            fused = kind = None

        def function(q: Array, k: Array, v: Array) -> Array:
            if fused is not None and attention_by() == "cudnn":
                made = fused.dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask_type=kind,
                                                   qkv_layout="BNTH")
                return made[0] if isinstance(made, tuple | list) else made
            q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
            return Layers(jax, jnp, {}).attend(q, k, v, causal).swapaxes(1, 2)

        return function

    return make


def encoder(heads: int) -> Callable[[Any, Any], Callable[..., Array]]:
    return lambda jax, jnp: lambda x, weights: Layers(jax, jnp, weights).block("", x, heads)


def bert(jax: Any, jnp: Any) -> Callable[..., Array]:
    def function(tokens: Array, weights: Weights) -> Array:
        layers = Layers(jax, jnp, weights)
        x = weights["words.weight"][tokens] + weights["positions.weight"][: tokens.shape[1]]
        x = layers.norm("norm", x)
        for number in range(12):
            x = layers.block(f"blocks.{number}.", x, 12, before=False)
        return x

    return function


def gpt2(jax: Any, jnp: Any) -> Callable[..., Array]:
    def function(tokens: Array, weights: Weights) -> Array:
        layers = Layers(jax, jnp, weights)
        x = weights["words.weight"][tokens] + weights["positions.weight"][: tokens.shape[1]]
        for number in range(12):
            x = layers.block(f"blocks.{number}.", x, 12, causal=True, tanh=True)
        return layers.norm("norm", x[:, -1]) @ weights["words.weight"].T

    return function


def vit(jax: Any, jnp: Any) -> Callable[..., Array]:
    def function(image: Array, weights: Weights) -> Array:
        layers = Layers(jax, jnp, weights)
        x = layers.convolution("patches", image, stride=16)
        x = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)
        kind = jnp.broadcast_to(weights["kind"], (x.shape[0], 1, x.shape[2]))
        x = jnp.concatenate([kind, x], 1) + weights["positions"]
        for number in range(12):
            x = layers.block(f"blocks.{number}.", x, 12)
        return layers.linear("head", layers.norm("norm", x)[:, 0])

    return function


def whisper(jax: Any, jnp: Any) -> Callable[..., Array]:
    def function(sound: Array, weights: Weights) -> Array:
        layers = Layers(jax, jnp, weights)

        def convolution(name: str, x: Array, stride: int) -> Array:
            y = jax.lax.conv_general_dilated(x, weights[f"{name}.weight"], (stride,), ((1, 1),))
            return jax.nn.gelu(y + weights[f"{name}.bias"][:, None], approximate=False)

        x = convolution("second", convolution("first", sound, 1), 2).swapaxes(1, 2) + weights["positions"]
        for number in range(6):
            x = layers.block(f"blocks.{number}.", x, 8)
        return layers.norm("norm", x)

    return function


def resnet50(jax: Any, jnp: Any) -> Callable[..., Array]:
    def function(image: Array, weights: Weights) -> Array:
        layers = Layers(jax, jnp, weights)
        x = jax.nn.relu(layers.batch_norm("1", layers.convolution("0", image, 2, 3)))
        x = jax.lax.reduce_window(x, jnp.array(-jnp.inf, x.dtype), jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2),
                                  ((0, 0), (0, 0), (1, 1), (1, 1)))
        number = 4
        for stage, depth in enumerate((3, 4, 6, 3)):
            for index in range(depth):
                x = bottleneck(layers, f"{number}", x, 2 if stage and not index else 1)
                number += 1
        return layers.linear(f"{number + 2}", x.mean((2, 3)))

    return function


def bottleneck(layers: Layers, name: str, x: Array, stride: int) -> Array:
    def step(part: int, x: Array, stride: int = 1, pad: int = 0) -> Array:
        return layers.batch_norm(f"{name}.body.{part + 1}", layers.convolution(f"{name}.body.{part}", x, stride, pad))

    relu = layers.jax.nn.relu
    y = step(6, relu(step(3, relu(step(0, x)), stride, 1)))
    if f"{name}.side.0.weight" in layers.weights:
        x = layers.batch_norm(f"{name}.side.1", layers.convolution(f"{name}.side.0", x, stride))
    return relu(y + x)


def mobilenet(stages: tuple[tuple[int, int, int, int], ...]) -> Callable[[Any, Any], Callable[..., Array]]:
    """MobileNetV2 with `gpu_models.MOBILENET`: expansion, channels, depth and stride of each stage."""

    def make(jax: Any, jnp: Any) -> Callable[..., Array]:
        def function(image: Array, weights: Weights) -> Array:
            layers = Layers(jax, jnp, weights)

            def step(name: str, x: Array, stride: int = 1, pad: int = 0, groups: int = 1) -> Array:
                return layers.batch_norm(f"{name}.1", layers.convolution(f"{name}.0", x, stride, pad, groups))

            def relu6(x: Array) -> Array:
                return jnp.clip(x, 0, 6)

            x = relu6(step("0", image, 2, 1))
            number = 1
            for expansion, _, depth, first in stages:
                for index in range(depth):
                    name, y, part = f"{number}.body", x, 0
                    if expansion > 1:
                        y, part = relu6(step(f"{name}.0", y)), 1
                    stride = 1 if index else first
                    y = relu6(step(f"{name}.{part}", y, stride, 1, y.shape[1]))
                    y = step(f"{name}.{part + 1}", y)
                    x = x + y if index else y
                    number += 1
            x = relu6(step(f"{number}", x))
            return layers.linear(f"{number + 3}", x.mean((2, 3)))

        return function

    return make
