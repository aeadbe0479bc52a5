"""Gemma: Llama's layers with a gelu, scaled embeddings, and norms that multiply by 1 + weight."""

from dataclasses import replace

from motet.llm.architecture import Architecture, Config, read_common
from motet.llm.tensors import Tensors, with_offset_norms


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    common = read_common(config)
    tied = bool(config.values.get("tie_word_embeddings", True))
    return replace(common, tied=tied, embedding_scale=common.hidden**0.5, activation="gelu_tanh")


def tensors(config: Config, weights: Tensors) -> Tensors:
    """The weights by the decoder's names."""
    return with_offset_norms(weights)
