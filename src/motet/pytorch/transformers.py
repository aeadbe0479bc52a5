"""Decomposes attention, and what PyTorch fuses with it, to plain operators.

    aten._scaled_dot_product_flash_attention, … (per device)          →   aten.scaled_dot_product_attention
    aten.scaled_dot_product_attention                                 →   softmax(q kᵀ scale + mask) v, masked rows zero
    aten._transformer_encoder_layer_fwd                               →   products, attention, normalisations
"""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.nn import functional

_PADDING = 1  # PyTorch's number for a key padding mask


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.scaled_dot_product_attention.default: attention,
        aten._transformer_encoder_layer_fwd.default: encoder_layer,
        aten._scaled_dot_product_flash_attention_for_cpu.default: trained_attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
    }


# The parameters are those of torch.nn.functional.scaled_dot_product_attention.
def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:
    """softmax(query · keyᵀ · scale + mask) · value, as defined in the documentation of
    torch.nn.functional.scaled_dot_product_attention; fully masked rows give zeros."""
    if dropout_p:
        raise NotImplementedError(f"attention with dropout {dropout_p}; call the module's eval() first")
    if enable_gqa:
        key, value = _for_heads(key, query.shape[-3]), _for_heads(value, query.shape[-3])
    scores = _scores(query, key, attn_mask, is_causal, scale)
    if attn_mask is None:
        return torch.softmax(scores, -1) @ value
    whole = (scores == float("-inf")).all(-1, keepdim=True)
    return torch.where(whole, 0.0, torch.softmax(scores, -1)) @ value


def _scores(query: Any, key: Any, mask: Any, is_causal: bool, scale: float | None) -> Any:
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        rows = torch.arange(query.shape[-2], device=query.device).unsqueeze(-1)
        columns = torch.arange(key.shape[-2], device=query.device)
        scores = torch.where(columns <= rows, scores, float("-inf"))
    if mask is None:
        return scores
    return torch.where(mask, scores, float("-inf")) if mask.dtype == torch.bool else scores + mask


# The parameters are those of aten._scaled_dot_product_flash_attention_for_cpu.
def trained_attention(
    query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: Any = None, scale: float | None = None,
) -> Any:
    """Attention, and the logarithm of the sum of each row's exponentials, which its gradients need."""
    if dropout_p:
        return NotImplemented
    heads = query.shape[-3]
    scores = _scores(query, _for_heads(key, heads), attn_mask, is_causal, scale).float()
    sums = torch.logsumexp(scores, -1)
    return _weights(scores, sums).to(value.dtype) @ _for_heads(value, heads), sums


def _weights(scores: Any, sums: Any) -> Any:
    """The softmax of scores; zeros in rows that are masked completely."""
    sums = sums.unsqueeze(-1)
    return torch.where(sums == float("-inf"), 0.0, torch.exp(scores - sums))


# The parameters are those of aten._scaled_dot_product_flash_attention_for_cpu_backward.
def attention_backward(
    grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, dropout_p: float, is_causal: bool,
    *, attn_mask: Any = None, scale: float | None = None,
) -> Any:
    """The gradients of query, key and value. Source: Dao et al., FlashAttention, appendix B."""
    if dropout_p:
        return NotImplemented
    heads, factor = query.shape[-3], query.shape[-1] ** -0.5 if scale is None else scale
    keys, values = _for_heads(key, heads), _for_heads(value, heads)
    weights = _weights(_scores(query, keys, attn_mask, is_causal, scale).float(), logsumexp)
    of_weights = (grad_out @ values.transpose(-2, -1)).float() - (grad_out * out).float().sum(-1, keepdim=True)
    of_scores = (weights * of_weights * factor).to(query.dtype)
    of_keys = of_scores.transpose(-2, -1) @ query
    of_values = weights.to(value.dtype).transpose(-2, -1) @ grad_out
    return of_scores @ keys, _of_shared(of_keys, key.shape[-3]), _of_shared(of_values, value.shape[-3])


def _of_shared(gradient: Any, heads: int) -> Any:
    """Sums the gradients of heads that `_for_heads` repeated."""
    group = gradient.shape[-3] // heads
    return gradient.unflatten(-3, (heads, group)).sum(-3) if group > 1 else gradient


def _for_heads(x: Any, heads: int) -> Any:
    """Repeats keys or values that several consecutive heads share."""
    group = heads // x.shape[-3]
    return x.repeat_interleave(group, -3) if group > 1 else x


# The parameters are those of aten._transformer_encoder_layer_fwd.
def encoder_layer(
    src: Any, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any, proj_bias: Any,
    use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Any, norm_bias_1: Any, norm_weight_2: Any,
    norm_bias_2: Any, ffn_weight_1: Any, ffn_bias_1: Any, ffn_weight_2: Any, ffn_bias_2: Any, mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    """The fused operator of torch.nn.TransformerEncoderLayer for inference: src is batch × length × embed_dim; a mask
    is non-zero where keys are hidden, and is for each sequence's keys or for all pairs."""
    if mask is not None and mask_type == _PADDING and mask.ndim == 2:
        mask = mask[:, None, None, :]

    def normalised(x: Any, weight: Any, bias: Any) -> Any:
        return functional.layer_norm(x, [embed_dim], weight, bias, eps)

    def attended(x: Any) -> Any:
        batch, length, _ = x.shape
        parts = functional.linear(x, qkv_weight, qkv_bias).chunk(3, -1)
        query, key, value = (
            part.reshape(batch, length, num_heads, embed_dim // num_heads).transpose(1, 2) for part in parts
        )
        scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
        if mask is not None:
            scores = torch.where(mask == 0, scores, float("-inf"))
        together = (torch.softmax(scores, -1) @ value).transpose(1, 2).reshape(batch, length, embed_dim)
        return functional.linear(together, proj_weight, proj_bias)

    def fed_forward(x: Any) -> Any:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        inner = functional.gelu(inner) if use_gelu else functional.relu(inner)
        return functional.linear(inner, ffn_weight_2, ffn_bias_2)

    if norm_first:
        src = src + attended(normalised(src, norm_weight_1, norm_bias_1))
        return src + fed_forward(normalised(src, norm_weight_2, norm_bias_2))
    src = normalised(src + attended(src), norm_weight_1, norm_bias_1)
    return normalised(src + fed_forward(src), norm_weight_2, norm_bias_2)


def settle_attention(program: fx.GraphModule) -> None:
    """Replaces device-specific attention operators, which have additional results for gradients, by the general one, in
    place; views of the results, whose layout may then differ, become reshapes."""
    aten = torch.ops.aten
    biased = (aten._scaled_dot_product_cudnn_attention.default, aten._scaled_dot_product_efficient_attention.default)
    others = (
        aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_flash_attention_for_cpu.default,
    )  # fmt: skip
    graph = program.graph
    changed = False
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in (*biased, *others):
            continue
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
            continue
        given = _arguments(node)
        mask = given["attn_bias"] if node.target in biased else given.get("attn_mask")
        with graph.inserting_before(node):
            new: Any = graph.call_function(
                aten.scaled_dot_product_attention.default,
                (given["query"], given["key"], given["value"], mask, given["dropout_p"], given["is_causal"]),
                {"scale": given["scale"], "enable_gqa": _shares_heads(given)},
            )
        new.meta = {**node.meta, "val": node.meta["val"][0]}
        for user in list(node.users):
            user.replace_all_uses_with(new)
            graph.erase_node(user)
        graph.erase_node(node)
        changed = True
    if changed:
        loosen_views(program)


def loosen_views(program: fx.GraphModule) -> None:
    """Replaces views, which were traced for one layout of their argument, by reshapes, in place."""
    for node in program.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default
    program.recompile()


def _shares_heads(given: dict[str, Any]) -> bool:
    """Whether several query heads share a head of keys or values; device-specific operators do not state it."""
    tensors = [given[name].meta.get("val") for name in ("query", "key", "value")]
    heads = [tensor.shape[-3] for tensor in tensors if tensor is not None]
    return any(each != heads[0] for each in heads[1:])


def _arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of an operator by name, including defaults."""
    target: Any = node.target
    found: dict[str, Any] = {}
    for number, argument in enumerate(target._schema.arguments):
        if not argument.kwarg_only and number < len(node.args):
            found[argument.name] = node.args[number]
        else:
            found[argument.name] = node.kwargs.get(argument.name, argument.default_value)
    return found
