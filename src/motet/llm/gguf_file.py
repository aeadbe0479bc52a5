"""GGUF files: their settings as a configuration, their tensors by the decoder's names, their tokenizer.

Blocks are kept as numbers, scales and shifts where those express them exactly: Q4_0, Q4_K (4 bits), Q5_K, Q6_K, Q8_0
(8 bits). Other quantised types are rounded to Q8_0's form, with a note. The `gguf` package reads the container.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from motet.errors import OptionError
from motet.llm.architecture import Architecture, Config, Rotation
from motet.llm.blocks import BlockMatrix, quantise
from motet.llm.gguf_tokenizer import read_tokenizer
from motet.llm.model_source import ModelSource
from motet.llm.registry import find_family
from motet.llm.tensors import Tensors, Weight, divided

ARCHITECTURES = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe",
    "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3_text", "phi2": "phi", "phi3": "phi3", "gpt2": "gpt2",
}
_SETTINGS = {
    "context_length": ("max_position_embeddings", "n_positions"), "embedding_length": ("hidden_size", "n_embd"),
    "block_count": ("num_hidden_layers", "n_layer"), "feed_forward_length": ("intermediate_size",),
    "attention.head_count": ("num_attention_heads", "n_head"), "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",), "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon"), "rope.freq_base": ("rope_theta",),
    "attention.sliding_window": ("sliding_window",), "expert_count": ("num_experts", "num_local_experts"),
    "expert_used_count": ("num_experts_per_tok",), "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
}
_NAMES = {
    "token_embd": "model.embed_tokens", "position_embd": "model.positions", "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "post_attention_norm": "after_attention", "post_ffw_norm": "after_feed_forward",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
_EXPERTS = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}
_FREQUENCY_FACTORS = "rope_freqs.weight"


def open_gguf(path: Path) -> ModelSource:
    """The model in the file `path`. Raises OptionError if it is damaged, or its architecture is not known."""
    try:
        gguf = importlib.import_module("gguf")
    except ModuleNotFoundError:
        raise OptionError(f"{path}: GGUF files need gguf; pip install 'motet[llm]'") from None
    with path.open("rb") as opened:
        if opened.read(4) != b"GGUF":
            raise OptionError(f"{path}: it is not a GGUF file; expected one, or a model's folder")
    try:
        reader = gguf.GGUFReader(path)
        settings = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:  # the package raises what numpy and its parser raise
        raise OptionError(f"{path}: truncated or damaged: {type(error).__name__}: {error}; expected a GGUF file"
                          ) from None
    notes: list[str] = []
    stored = {tensor.name: _weight(path, gguf, tensor, notes) for tensor in reader.tensors}
    config = _config(path, settings, stored)
    architecture = find_family(config).read(config)
    architecture = _rotated(architecture, stored.pop(_FREQUENCY_FACTORS, None))
    tensors = _renamed(settings["general.architecture"], architecture, config, stored)
    tokenizer, special = read_tokenizer(path, settings, architecture.vocabulary)
    template = settings.get("tokenizer.chat_template")
    return ModelSource(architecture, tensors, tokenizer, template if isinstance(template, str) else None, special, True,
                       notes)


def _config(path: Path, settings: Mapping[str, Any], stored: Tensors) -> Config:
    """The settings by the names of config.json."""
    name = settings.get("general.architecture")
    if name not in ARCHITECTURES:
        raise OptionError(f"{path}: general.architecture: {name!r} is not known; expected one of "
                          f"{', '.join(ARCHITECTURES)}")
    if "token_embd.weight" not in stored:
        raise OptionError(f"{path}: it has no tensor token_embd.weight; expected a language model")
    vocabulary = stored["token_embd.weight"].shape[0]
    values: dict[str, Any] = {
        "model_type": ARCHITECTURES[name], "vocab_size": vocabulary,
        "tie_word_embeddings": "output.weight" not in stored,
        "eos_token_id": settings.get("tokenizer.ggml.eos_token_id"),
    }
    for key, names in _SETTINGS.items():
        value = settings.get(f"{name}.{key}")
        if value is not None and not (key == "attention.sliding_window" and value == 0):
            values.update(dict.fromkeys(names, value))
    if name == "llama" and values.get("num_experts"):
        values["model_type"] = "mixtral"
    if name == "qwen3moe":
        values["norm_topk_prob"] = True
    config = Config(path, values)
    _add_head_settings(name, settings, config)
    kind, factor = settings.get(f"{name}.rope.scaling.type"), settings.get(f"{name}.rope.scaling.factor")
    if kind not in (None, "none"):
        values["rope_scaling"] = {"rope_type": kind, "factor": factor}
    return config


def _add_head_settings(name: str, settings: Mapping[str, Any], config: Config) -> None:
    """What follows from the size of a head. The largest Gemmas scale scores by another size, which files do not say."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    size = config.optional_integer("head_dim") or hidden // heads
    rotated = settings.get(f"{name}.rope.dimension_count")
    if isinstance(rotated, int) and size:
        config.values["partial_rotary_factor"] = rotated / size
    if name in ("gemma2", "gemma3"):
        largest = config.integer("num_hidden_layers") == {"gemma2": 46, "gemma3": 62}[name]
        config.values["query_pre_attn_scalar"] = hidden // heads if largest else size
    if name == "gemma3":
        config.values["rope_local_base_freq"] = 10000.0


def _rotated(architecture: Architecture, factors: Weight | None) -> Architecture:
    """The architecture, with the angles divided by what the file has for each."""
    if factors is None or not isinstance(factors, np.ndarray):
        return architecture
    first, *others = architecture.rotations
    divided_by = Rotation(first.frequencies / factors.astype(np.float32), first.factor)
    return replace(architecture, rotations=(divided_by, *others))


# -- tensors -------------------------------------------------------------------------------------------------


def _renamed(name: str, a: Architecture, config: Config, stored: Tensors) -> Tensors:
    """The tensors by the decoder's names. Llama's queries and keys have the rows of each head in another order."""
    result: dict[str, Weight] = {}
    for key, tensor in stored.items():
        whole, _, last = key.rpartition(".")
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)", whole)
        if match is None:
            if whole in _NAMES:
                result[f"{_NAMES[whole]}.{last}"] = tensor
            continue
        prefix, part = f"model.layers.{match[1]}", match[2]
        if part in _EXPERTS:
            for expert, own in enumerate(_divided_experts(tensor, a)):
                result[f"{prefix}.mlp.experts.{expert}.{_EXPERTS[part]}.{last}"] = own
        elif part in _LAYER:
            if name == "llama" and part in ("attn_q", "attn_k"):
                tensor = tensor[_unpermuted(a.heads if part == "attn_q" else a.key_heads, a.head_size)]
            result[f"{prefix}.{_LAYER[part]}.{last}"] = tensor
    keys = a.key_heads * a.head_size
    parts = {"qkv_proj": (("q_proj", a.heads * a.head_size), ("k_proj", keys), ("v_proj", keys))}
    if name == "phi3":
        width = config.integer("intermediate_size")
        result = {key.replace("mlp.up_proj", "mlp.gate_up_proj"): tensor for key, tensor in result.items()}
        return divided(result, {**parts, "gate_up_proj": (("gate_proj", width), ("up_proj", width))})
    return divided(result, parts)


def _divided_experts(tensor: Weight, a: Architecture) -> list[Weight]:
    count = a.experts.count if a.experts is not None else 1
    rows = tensor.shape[0] // count
    return [tensor[number * rows : (number + 1) * rows] for number in range(count)]


def _unpermuted(heads: int, size: int) -> np.ndarray:
    """The rows of queries or keys in the order in which pairs are half of a head apart."""
    return np.arange(heads * size).reshape(heads, size // 2, 2).swapaxes(1, 2).reshape(-1)


def _weight(path: Path, gguf: Any, tensor: Any, notes: list[str]) -> Weight:
    """A tensor, 3-dimensional ones as their matrices one after the other."""
    shape = [int(extent) for extent in reversed(tensor.shape)]
    kind = tensor.tensor_type.name
    try:
        if kind in ("F32", "F16", "F64"):
            return tensor.data.reshape(-1, shape[-1]) if len(shape) > 2 else tensor.data
        raw = np.ascontiguousarray(tensor.data).view(np.uint8)
        if kind == "BF16":
            return raw.view(ml_dtypes.bfloat16).reshape(shape if len(shape) < 3 else (-1, shape[-1]))
        _, each = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
        blocks = raw.reshape(-1, each)
        if kind in _READERS:
            numbers, scales, shifts = _READERS[kind](blocks)
            rows = numbers.size // shape[-1]
            sides = [None if side is None else side.reshape(rows, -1) for side in (scales, shifts)]
            assert sides[0] is not None
            return BlockMatrix(numbers.reshape(rows, shape[-1]), sides[0], sides[1], 4 if kind[1] == "4" else 8)
        wide = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(-1, shape[-1])
    except Exception as error:
        raise OptionError(f"{path}: {tensor.name}: {kind}: cannot be read: {error}; expected a GGUF file") from None
    notes.append(f"{tensor.name}: {kind} is stored as 8 bits in blocks of 32, rounded")
    return quantise(wide, 8, 32)


_Parts = tuple[np.ndarray, np.ndarray, np.ndarray | None]  # numbers, scales, shifts


def _q4_0(blocks: np.ndarray) -> _Parts:
    pairs = blocks[:, 2:]
    numbers = np.concatenate([pairs & 15, pairs >> 4], axis=1).view(np.int8) - np.int8(8)
    return numbers, _halves(blocks, 0), None


def _q8_0(blocks: np.ndarray) -> _Parts:
    return blocks[:, 2:].view(np.int8), _halves(blocks, 0), None


def _q4_k(blocks: np.ndarray) -> _Parts:
    scales, shifts = _k_sides(blocks)
    return _k_nibbles(blocks[:, 16:]).view(np.int8), scales, shifts


def _q5_k(blocks: np.ndarray) -> _Parts:
    scales, shifts = _k_sides(blocks)
    high = (blocks[:, 16:48, None] >> np.arange(8, dtype=np.uint8)) & 1  # [block, element, group]
    numbers = _k_nibbles(blocks[:, 48:]) | (high.swapaxes(1, 2).reshape(len(blocks), -1) << 4)
    return numbers.view(np.int8), scales, shifts


def _q6_k(blocks: np.ndarray) -> _Parts:
    count = len(blocks)
    low = blocks[:, :128].reshape(count, 2, 1, 64) >> np.array([0, 4], np.uint8)[:, None]
    high = blocks[:, 128:192].reshape(count, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    numbers = (low & 15).reshape(count, 256) | ((high & 3).reshape(count, 256) << 4)
    scales = _halves(blocks, 208).astype(np.float32) * blocks[:, 192:208].view(np.int8)
    return numbers.view(np.int8) - np.int8(32), scales, None


_READERS: dict[str, Callable[[np.ndarray], _Parts]] = {
    "Q4_0": _q4_0, "Q8_0": _q8_0, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k,
}


def _halves(blocks: np.ndarray, at: int) -> np.ndarray:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16)


def _k_sides(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and shifts of 8 groups of 32, from 6 bits each and two common factors."""
    first, second, joined = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, (joined & 15) | ((first >> 2) & 48)], axis=1)
    lows = np.concatenate([second & 63, (joined >> 4) | ((second >> 2) & 48)], axis=1)
    wide = _halves(blocks, 0).astype(np.float32) * scales
    return wide, -(_halves(blocks, 2).astype(np.float32) * lows)


def _k_nibbles(data: np.ndarray) -> np.ndarray:
    """256 numbers of 4 bits: 32 low halves, then the 32 high halves of the same bytes."""
    groups = data.reshape(len(data), 4, 1, 32) >> np.array([0, 4], np.uint8)[:, None]
    return (groups & 15).reshape(len(data), 256)
