"""Gemma 2: Gemma with norms after attention and feed-forward network, caps, and windows in every other layer."""

from dataclasses import replace

from motet.llm.architecture import Architecture, Config, read_activation, read_windows
from motet.llm.families import gemma
from motet.llm.tensors import Tensors, with_sandwich_norms


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    return with_windows(config, 2)


def with_windows(config: Config, every: int) -> Architecture:
    """Gemma's layers with norms after both parts; each `every`-th has no window."""
    common = gemma.read(config)
    caps = {name: None if config.values.get(key) is None else config.number(key, 1)
            for name, key in (("scores", "attn_logit_softcapping"), ("logits", "final_logit_softcapping"))}
    return replace(
        common, windows=read_windows(config, common.layers, config.optional_integer("sliding_window"), every),
        sandwich=True, scale=config.number("query_pre_attn_scalar", 256) ** -0.5, score_cap=caps["scores"],
        logit_cap=caps["logits"], activation=read_activation(config, "hidden_activation", "gelu_pytorch_tanh"),
    )


def tensors(config: Config, weights: Tensors) -> Tensors:
    """The weights by the decoder's names."""
    return with_sandwich_norms(gemma.tensors(config, weights))
