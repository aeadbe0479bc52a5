"""Gemma 3 (text): Gemma 2 with normalised queries and keys, and two rotary embeddings."""

from motet.llm.architecture import Architecture, Config
from motet.llm.families import gemma2
from motet.llm.tensors import Tensors


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    return gemma2.with_windows(config, config.optional_integer("sliding_window_pattern") or 6)


def tensors(config: Config, weights: Tensors) -> Tensors:
    """The weights by the decoder's names."""
    return gemma2.tensors(config, weights)
