"""Qwen 2's mixtures of experts, with one expert that all tokens share."""

from dataclasses import replace

from motet.llm.architecture import Architecture, Config, Experts
from motet.llm.families import qwen2
from motet.llm.tensors import Tensors, same


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    return with_experts(config, qwen2.read(config), config.integer("num_experts"))


def with_experts(config: Config, common: Architecture, count: int) -> Architecture:
    """`common` with `count` experts in the layers that `config` says have some."""
    step, dense = config.optional_integer("decoder_sparse_step") or 1, config.values.get("mlp_only_layers") or ()
    sparse = frozenset(layer for layer in range(common.layers) if layer not in dense and (layer + 1) % step == 0)
    normalised = bool(config.values.get("norm_topk_prob", False))
    return replace(common, experts=Experts(count, config.integer("num_experts_per_tok"), normalised, sparse))


def tensors(config: Config, weights: Tensors) -> Tensors:
    """The weights by the decoder's names, which are Qwen's."""
    return same(weights)
