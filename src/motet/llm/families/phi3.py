"""Phi 3: Llama's layers, with joined projections."""

from motet.llm.architecture import Architecture, Config, read_common
from motet.llm.tensors import Tensors, divided


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    return read_common(config, window=config.optional_integer("sliding_window"))


def tensors(config: Config, weights: Tensors) -> Tensors:
    """The weights by the decoder's names: the joined ones are divided."""
    a = read(config)
    keys = a.key_heads * a.head_size
    width = config.integer("intermediate_size")
    return divided(weights, {
        "qkv_proj": (("q_proj", a.heads * a.head_size), ("k_proj", keys), ("v_proj", keys)),
        "gate_up_proj": (("gate_proj", width), ("up_proj", width)),
    })
