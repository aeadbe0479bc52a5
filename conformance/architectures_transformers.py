"""Models of `transformers`: one of each family, with a small configuration of few and narrow layers."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from conformance.architectures import Architecture, Built, Inputs, image, token_ids

# Names of the same options in different configurations; each configuration takes those that it has.
_TINY: Mapping[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "d_model": 32, "num_hidden_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2, "num_attention_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 64, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "d_ff": 64, "d_kv": 8, "ffn_dim": 64,
    "moe_intermediate_size": 32, "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1, "use_cache": False,
}  # fmt: skip

_MLA: Mapping[str, Any] = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8,
    "num_key_value_heads": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
_SMALL_VIT: Mapping[str, Any] = {"image_size": 32, "patch_size": 8}
_CONVOLVED: Mapping[str, Any] = {
    "conv_dim": (16, 16, 16), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3), "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip

# name of the configuration, kind of inputs, further options of the configuration
MODELS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    # encoders
    ("bert", "masked", {}),
    ("roberta", "masked", {"pad_token_id": 1, "bos_token_id": 0}),
    ("albert", "masked", {"embedding_size": 16}),
    ("deberta", "masked", {}),
    ("deberta-v2", "masked", {}),
    ("mobilebert", "masked", {"intra_bottleneck_size": 16, "embedding_size": 16}),
    ("convbert", "masked", {"embedding_size": 32}),
    ("fnet", "tokens", {}),
    ("roformer", "masked", {}),
    ("esm", "masked", {"mask_token_id": 98, "token_dropout": False}),
    ("modernbert", "masked", {"local_attention": 4}),
    ("xlnet", "masked", {"max_position_embeddings": None, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    ("longformer", "masked", {"attention_window": 4}),
    ("big_bird", "masked", {"attention_type": "original_full"}),
    ("perceiver", "perceived", {"num_latents": 8, "d_latents": 32, "num_blocks": 1, "num_self_attends_per_block": 2,
                                "num_self_attention_heads": 4, "num_cross_attention_heads": 4}),
    # decoders
    ("gpt2", "tokens", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    ("gpt_neo", "tokens", {"attention_types": [[["global", "local"], 1]], "window_size": 4}),
    ("gpt_neox", "tokens", {}),
    ("gptj", "tokens", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64}),
    ("opt", "tokens", {"word_embed_proj_dim": 32}),
    ("bloom", "masked", {"n_layer": 2, "n_head": 4}),
    ("falcon", "tokens", {"head_dim": None}),
    ("mpt", "tokens", {"n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
    ("llama", "masked", {}),
    ("mistral", "tokens", {"sliding_window": 4}),
    ("gemma2", "tokens", {"sliding_window": 4}),
    ("gemma3_text", "tokens", {"sliding_window": 4}),
    ("qwen3", "tokens", {}),
    ("phi", "tokens", {}),
    ("phi3", "tokens", {}),
    ("ctrl", "tokens", {"n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 64, "n_positions": 64}),
    # mixtures of experts
    ("mixtral", "tokens", {}),
    ("qwen2_moe", "tokens", {"shared_expert_intermediate_size": 32}),
    ("qwen3_moe", "tokens", {}),
    ("phimoe", "tokens", {}),
    ("granitemoe", "tokens", {}),
    ("deepseek_v2", "tokens", _MLA),
    ("deepseek_v3", "tokens", {**_MLA, "head_dim": 4}),
    ("gpt_oss", "tokens", {"sliding_window": 4}),
    ("switch_transformers", "masked pair", {"expert_capacity": 8, "num_sparse_encoder_layers": 1,
                                            "num_sparse_decoder_layers": 1}),
    # state spaces and recurrences
    ("mamba", "tokens", {"state_size": 4, "time_step_rank": 4}),
    ("mamba2", "tokens", {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 4}),
    ("rwkv", "tokens", {"rescale_every": 0, "attention_hidden_size": 32, "context_length": 64}),
    ("recurrent_gemma", "tokens", {"lru_width": 32, "attention_window_size": 8,
                                   "block_types": ["recurrent", "attention"]}),
    ("lfm2", "tokens", {"layer_types": ["conv", "full_attention"]}),
    # encoders and decoders
    ("t5", "pair", {}),
    ("bart", "pair", {}),
    ("prophetnet", "pair", {"num_hidden_layers": None, "num_encoder_layers": 2,
                            "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4}),
    # images
    ("vit", "image", _SMALL_VIT),
    ("dinov2", "image", _SMALL_VIT),
    ("swin", "image", {"num_layers": None, "num_attention_heads": None, "num_hidden_layers": None,
                       "image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2],
                       "window_size": 4}),
    ("segformer", "image", {"num_attention_heads": [1, 1, 2, 2], "depths": [1, 1, 1, 1],
                            "hidden_sizes": [16, 16, 32, 32]}),
    ("detr", "image", {"use_timm_backbone": False, "backbone": None, "num_queries": 4}),
    ("clip", "clip", {}),
    ("siglip_vision_model", "image", _SMALL_VIT),
    ("sam_vision_model", "image", {"image_size": 32, "patch_size": 8, "window_size": 2, "global_attn_indexes": [1],
                                   "output_channels": 16, "num_pos_feats": 16, "mlp_dim": 64}),
    # sound and series
    ("wav2vec2", "sound", _CONVOLVED),
    ("whisper", "spectrogram", {"num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 32,
                                "suppress_tokens": []}),
    ("audio-spectrogram-transformer", "frames", {"num_mel_bins": 16, "max_length": 32, "patch_size": 8,
                                                 "frequency_stride": 8, "time_stride": 8}),
    ("encodec", "wave", {"num_filters": 4, "upsampling_ratios": [4, 2], "codebook_size": 16, "codebook_dim": 32}),
    ("patchtst", "series", {"num_input_channels": 2, "context_length": 32, "patch_length": 8, "patch_stride": 8}),
    ("decision_transformer", "decisions", {"state_dim": 5, "act_dim": 2, "n_layer": 2, "n_head": 4}),
)  # fmt: skip

_NARROW = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_CLIP: Mapping[str, Any] = {
    "text_config": {**_NARROW, "vocab_size": 99, "max_position_embeddings": 16, "eos_token_id": 2},
    "vision_config": {**_NARROW, **_SMALL_VIT}, "projection_dim": 16,
}  # fmt: skip


def _inputs(kind: str) -> Inputs:
    """Two examples of each kind, of 12 tokens or as many elements as the tiny configurations take."""
    tokens = token_ids(2, 12)
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 9:] = 0
    corner = torch.randint(0, 500, (2, 12, 2))
    given: Mapping[str, Any] = {
        "tokens": {"input_ids": tokens},
        "masked": {"input_ids": tokens, "attention_mask": mask},
        "pair": {"input_ids": tokens, "decoder_input_ids": token_ids(2, 7)},
        "masked pair": {"input_ids": tokens, "attention_mask": mask, "decoder_input_ids": token_ids(2, 7),
                        "decoder_attention_mask": torch.ones(2, 7, dtype=torch.int64)},
        "boxes": {"input_ids": tokens, "bbox": torch.cat([corner, corner + 20], -1)},
        "perceived": {"inputs": torch.randn(2, 12, 32)},
        "image": {"pixel_values": image(32)},
        "clip": {"input_ids": tokens, "pixel_values": image(32)},
        "sound": {"input_values": torch.randn(2, 800)},
        "wave": {"input_values": torch.randn(2, 1, 320)},
        "spectrogram": {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": token_ids(2, 7)},
        "frames": {"input_values": torch.randn(2, 32, 16)},
        "series": {"past_values": torch.randn(2, 32, 2)},
        "decisions": {
            "states": torch.randn(2, 4, 5), "actions": torch.randn(2, 4, 2), "rewards": torch.randn(2, 4, 1),
            "returns_to_go": torch.randn(2, 4, 1), "timesteps": torch.arange(4).expand(2, 4),
            "attention_mask": torch.ones(2, 4),
        },
    }
    return given[kind]


def build(family: str, kind: str, arguments: Mapping[str, Any]) -> Built:
    from transformers import AutoConfig, AutoModel

    names = AutoConfig.for_model(family)
    config: Any
    if family == "clip":
        config = AutoConfig.for_model(family, **_CLIP)
    else:
        tiny = {name: value for name, value in _TINY.items() if hasattr(names, name)}
        given = {name: value for name, value in {**tiny, **arguments}.items() if value is not None}
        config = AutoConfig.for_model(family, **given)
    return AutoModel.from_config(config), _inputs(kind)


ARCHITECTURES = tuple(
    Architecture(f"transformers/{family}", partial(build, family, kind, arguments))
    for family, kind, arguments in MODELS
)
