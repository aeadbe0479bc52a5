"""Mixtral: Mistral's attention, with a mixture of experts in each layer."""

from dataclasses import replace

from motet.llm.architecture import Architecture, Config, Experts, read_common
from motet.llm.tensors import Tensors, renamed

_NAMES = {"block_sparse_moe.": "mlp.", ".w1.": ".gate_proj.", ".w2.": ".down_proj.", ".w3.": ".up_proj."}


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    common = read_common(config, window=config.optional_integer("sliding_window"))
    experts = Experts(config.integer("num_local_experts"), config.integer("num_experts_per_tok"), True,
                      frozenset(range(common.layers)))
    return replace(common, experts=experts)


def tensors(config: Config, weights: Tensors) -> Tensors:
    """The weights by the decoder's names."""
    return renamed(weights, _NAMES)
