"""Llama 2 and 3, and SmolLM, which has the same layers."""

from motet.llm.architecture import Architecture, Config, read_common
from motet.llm.tensors import Tensors, same


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    return read_common(config)


def tensors(config: Config, weights: Tensors) -> Tensors:
    """The weights by the decoder's names, which are Llama's."""
    return same(weights)
