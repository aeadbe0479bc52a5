"""Tensors of checkpoints by the decoder's names, which are Llama's, and what families do to bring them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from motet.llm.blocks import BlockMatrix

Weight = np.ndarray | BlockMatrix
Tensors = Mapping[str, Weight]


def same(weights: Tensors) -> Tensors:
    """The weights, which have the decoder's names already."""
    return weights


def renamed(weights: Tensors, names: Mapping[str, str]) -> Tensors:
    """The weights with each part of a name that `names` has replaced, in this order."""
    result: dict[str, Weight] = {}
    for name, tensor in weights.items():
        for old, new in names.items():
            name = name.replace(old, new)
        result[name] = tensor
    return result


def transposed(tensor: Weight) -> Weight:
    """A matrix with its axes exchanged; blocks, which are along the rows, are written out."""
    return (tensor if isinstance(tensor, np.ndarray) else tensor.floats()).T


def divided(weights: Tensors, parts: Mapping[str, Sequence[tuple[str, int]]]) -> Tensors:
    """The weights with joined projections, and their biases, as the parts of them that `parts` names with their
    rows."""
    result: dict[str, Weight] = {}
    for name, tensor in weights.items():
        joined = next((each for each in parts if f".{each}." in name), None)
        if joined is None:
            result[name] = tensor
            continue
        begin = 0
        for part, rows in parts[joined]:
            result[name.replace(joined, part)] = tensor[begin : begin + rows]
            begin += rows
    return result


def with_offset_norms(weights: Tensors) -> Tensors:
    """The weights, with norms that are stored as their difference from 1 written out."""
    return {
        name: tensor.astype(np.float32) + 1
        if name.endswith("norm.weight") and isinstance(tensor, np.ndarray) else tensor
        for name, tensor in weights.items()
    }


def with_sandwich_norms(weights: Tensors) -> Tensors:
    """The weights of layers with norms before and after both parts: `post_attention_layernorm` follows the attention
    there, and precedes the feed-forward network elsewhere."""
    names = {"post_attention_layernorm": "after_attention", "post_feedforward_layernorm": "after_feed_forward",
             "pre_feedforward_layernorm": "post_attention_layernorm"}
    return renamed(weights, names)
