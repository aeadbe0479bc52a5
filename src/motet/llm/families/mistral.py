"""Mistral: Llama's layers, with a sliding window in early models."""

from motet.llm.architecture import Architecture, Config, read_common
from motet.llm.tensors import Tensors, same


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    return read_common(config, window=config.optional_integer("sliding_window"))


def tensors(config: Config, weights: Tensors) -> Tensors:
    """The weights by the decoder's names."""
    return same(weights)
