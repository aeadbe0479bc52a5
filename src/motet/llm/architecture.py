"""What a decoder is, as numbers: read from config.json."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motet.errors import OptionError


@dataclass(frozen=True)
class Config:
    """The content of a config.json, and its path for messages."""

    path: Path
    values: dict[str, Any]

    def integer(self, key: str) -> int:
        value = self.values.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise OptionError(f"{self.path}: {key}: it is {value!r}; expected a positive integer")
        return value

    def optional_integer(self, key: str) -> int | None:
        return None if self.values.get(key) is None else self.integer(key)

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key, default)
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise OptionError(f"{self.path}: {key}: it is {value!r}; expected a positive number")
        return float(value)

    @property
    def sliding_window(self) -> int | None:
        """The window of models that have one switched on by `use_sliding_window`."""
        return self.optional_integer("sliding_window") if self.values.get("use_sliding_window", False) else None


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: `used` of `count` for each token; `normalised`: their shares sum up to 1. `sparse` are the
    layers that have them."""

    count: int
    used: int
    normalised: bool
    sparse: frozenset[int]


@dataclass(frozen=True)
class Rotation:
    """Rotary embedding: `frequencies` are angles per position, f32 [rotated elements / 2]; cosines and sines are
    multiplied by `factor`."""

    frequencies: np.ndarray
    factor: float = 1.0


@dataclass(frozen=True)
class Architecture:
    """A decoder of layers with attention and a feed-forward network.

    `windows` has for each layer how many of the latest tokens a query reads, None: all. `rotations` are the rotary
    embeddings of layers without and with a window, empty for models that add learnt positions. `norm` is `rms` or
    `layer`. `parallel`: attention and feed-forward network read the same normalised input. `sandwich`: results of both
    are normalised, too. Caps limit scores and logits by tanh.
    """

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    epsilon: float
    context: int
    windows: tuple[int | None, ...]
    tied: bool
    rotations: tuple[Rotation, ...]
    ends: frozenset[int]
    scale: float
    activation: str = "silu"
    gated: bool = True
    norm: str = "rms"
    parallel: bool = False
    sandwich: bool = False
    embedding_scale: float = 1.0
    score_cap: float | None = None
    logit_cap: float | None = None
    experts: Experts | None = None

    def rotation(self, layer: int) -> int | None:
        """The index of the layer's rotary embedding; None if it has none."""
        if not self.rotations:
            return None
        return 1 if len(self.rotations) > 1 and self.windows[layer] is not None else 0


def read_config(folder: Path) -> Config:
    """The config.json of a model's folder. Raises OptionError if there is none, or it is not a JSON object."""
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"{path}: cannot be read: {error}; expected a model's folder in Hugging Face's layout"
                          ) from None
    if not isinstance(values, dict):
        raise OptionError(f"{path}: it is not a JSON object; expected a model's configuration")
    return Config(path, values)


ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


def read_common(config: Config, window: int | None = None, activation_key: str = "hidden_act") -> Architecture:
    """The settings that most families share; all layers have `window`. Raises OptionError for a setting that has no
    code."""
    activation = read_activation(config, activation_key, "silu")
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_size = config.optional_integer("head_dim") or hidden // heads
    key_heads = config.optional_integer("num_key_value_heads") or heads
    layers = config.integer("num_hidden_layers")
    if heads % key_heads or head_size % 2:
        raise OptionError(f"{config.path}: {heads} heads of {head_size} share {key_heads} heads of keys; expected a "
                          "multiple, and an even size")
    return Architecture(
        vocabulary=config.integer("vocab_size"), hidden=hidden, layers=layers, heads=heads, key_heads=key_heads,
        head_size=head_size, epsilon=config.number("rms_norm_eps", 1e-6),
        context=config.optional_integer("max_position_embeddings") or 2048, windows=(window,) * layers,
        tied=bool(config.values.get("tie_word_embeddings", False)), rotations=_rotations(config, head_size),
        ends=read_ends(config), scale=head_size**-0.5, activation=activation,
    )


def read_activation(config: Config, key: str, default: str) -> str:
    """The activation as `builder` names it. Raises OptionError for one without code."""
    activation = config.values.get(key, default)
    if activation not in ACTIVATIONS:
        raise OptionError(f"{config.path}: {key}: {activation!r} is not supported; expected one of "
                          f"{', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[activation]


def read_windows(config: Config, layers: int, window: int | None, every: int) -> tuple[int | None, ...]:
    """The window of each layer by `layer_types`; without them, each `every`-th layer has none."""
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list) and len(kinds) >= layers:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds[:layers])
    return tuple(None if (layer + 1) % every == 0 else window for layer in range(layers))


def read_ends(config: Config) -> frozenset[int]:
    """The tokens that end a text."""
    value = config.values.get("eos_token_id")
    return frozenset(item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int))


def _rotations(config: Config, size: int) -> tuple[Rotation, ...]:
    """The rotary embeddings: one, or one for layers without and one for layers with a window."""
    scaling = config.values.get("rope_parameters") or config.values.get("rope_scaling") or {}
    if "full_attention" in scaling:
        return tuple(_rotation(config, scaling[kind], size) for kind in ("full_attention", "sliding_attention"))
    if config.values.get("rope_local_base_freq") is not None:
        local = {"rope_theta": config.number("rope_local_base_freq", 1e4)}
        return _rotation(config, scaling, size), _rotation(config, local, size)
    return (_rotation(config, scaling, size),)


def _rotation(config: Config, scaling: dict[str, Any], size: int) -> Rotation:
    """The angles per position, scaled as the configuration says: `linear`, or Llama 3's by wavelength."""
    rope = Config(config.path, scaling)
    theta = rope.number("rope_theta", config.number("rope_theta", 10000.0))
    share = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    rotated = int(size * share) // 2 * 2
    frequencies = theta ** -(np.arange(0, rotated, 2, dtype=np.float64) / rotated)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "linear":
        frequencies /= rope.number("factor", 1.0)
    elif kind == "llama3":
        frequencies = _by_wavelength(rope, frequencies)
    elif kind != "default":
        raise OptionError(f"{config.path}: rope_type: {kind!r} is not supported; expected default, linear or llama3")
    return Rotation(frequencies.astype(np.float32))


def _by_wavelength(rope: Config, frequencies: np.ndarray) -> np.ndarray:
    """Long waves are stretched by `factor`, short ones kept, those between interpolated (Llama 3.1)."""
    factor, low, high = rope.number("factor", 8), rope.number("low_freq_factor", 1), rope.number("high_freq_factor", 4)
    waves = rope.number("original_max_position_embeddings", 8192) * frequencies / (2 * math.pi)
    share = np.clip((waves - low) / (high - low), 0, 1)
    return frequencies * (share + (1 - share) / factor)
