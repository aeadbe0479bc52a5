"""Phi 1 and 2: attention and feed-forward network side by side, part of each head rotated."""

from dataclasses import replace

from motet.llm.architecture import Architecture, Config, read_common
from motet.llm.tensors import Tensors, renamed

_NAMES = {"self_attn.dense": "self_attn.o_proj", "mlp.fc1": "mlp.up_proj", "mlp.fc2": "mlp.down_proj",
          "model.final_layernorm": "model.norm"}


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    common = read_common(config)
    return replace(common, norm="layer", epsilon=config.number("layer_norm_eps", 1e-5), parallel=True, gated=False)


def tensors(config: Config, weights: Tensors) -> Tensors:
    """The weights by the decoder's names."""
    return renamed(weights, _NAMES)
