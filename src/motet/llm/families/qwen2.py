"""Qwen 2 and 2.5: Llama's layers, with biases of queries, keys and values."""

from dataclasses import replace

from motet.llm.architecture import Architecture, Config, read_common, read_windows
from motet.llm.tensors import Tensors, same


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    common = read_common(config)
    window = config.sliding_window
    first = int(config.values.get("max_window_layers", 0))
    windows = read_windows(config, common.layers, window, common.layers + 1)
    if not config.values.get("layer_types"):
        windows = tuple(window if layer >= first else None for layer in range(common.layers))
    return replace(common, windows=windows)


def tensors(config: Config, weights: Tensors) -> Tensors:
    """The weights by the decoder's names, which are Qwen's."""
    return same(weights)
