"""Qwen 3's mixtures of experts. Their weights have Qwen 2's names."""

from motet.llm.architecture import Architecture, Config
from motet.llm.families import qwen3
from motet.llm.families.qwen2_moe import tensors, with_experts

__all__ = ["read", "tensors"]


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    count = config.optional_integer("num_local_experts") or config.integer("num_experts")
    return with_experts(config, qwen3.read(config), count)
