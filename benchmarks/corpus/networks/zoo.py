"""Networks of timm and transformers, one of each family, with random weights; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from benchmarks.corpus.row import Made, Row

QUICK = ("convnext_atto", "gpt2")
TIMM = (
    "resnet50", "convnext_atto", "mobilenetv3_small_100", "efficientnet_b0", "regnety_004", "densenet121",
    "ghostnet_100", "res2net50_26w_4s", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "mobilevit_xxs",
    "poolformer_s12", "mixer_s32_224", "xcit_nano_12_p16_224", "edgenext_xx_small", "pvt_v2_b0",
)
_WIDTH: Mapping[str, Any] = {
    "vocab_size": 2000, "hidden_size": 256, "d_model": 256, "n_embd": 256, "num_hidden_layers": 4, "num_layers": 4,
    "n_layer": 4, "encoder_layers": 4, "decoder_layers": 4, "num_decoder_layers": 4, "num_attention_heads": 4,
    "num_heads": 4, "n_head": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "intermediate_size": 768, "encoder_ffn_dim": 768, "decoder_ffn_dim": 768, "d_ff": 768, "d_kv": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "use_cache": False,
}  # fmt: skip
# Family, inputs, further configuration.
TRANSFORMERS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("bert", "tokens", {}), ("deberta-v2", "tokens", {}), ("gpt2", "tokens", {"n_positions": 256}),
    ("llama", "tokens", {}), ("gemma3_text", "tokens", {"sliding_window": 64}), ("mixtral", "tokens", {
        "num_local_experts": 4, "intermediate_size": 256}),
    ("t5", "pair", {}), ("mamba", "tokens", {"state_size": 8, "num_hidden_layers": 2}),
    ("segformer", "image", {"hidden_sizes": [32, 64, 160, 256], "num_attention_heads": [1, 2, 5, 8],
                            "depths": [2, 2, 2, 2]}),
    ("dinov2", "image", {"image_size": 224, "patch_size": 14}),
    ("wav2vec2", "sound", {"num_conv_pos_embeddings": 64}),
    ("whisper", "spectrogram", {"num_mel_bins": 80, "max_source_positions": 500, "suppress_tokens": []}),
    ("encodec", "wave", {}), ("patchtst", "series", {"num_input_channels": 7, "context_length": 336}),
)  # fmt: skip


def rows() -> Iterator[Row]:
    for name in TIMM:
        yield Row(f"timm {name}", "network", lambda name=name: _timm(name), tolerance=5e-3, quick=name in QUICK)
    for family, kind, more in TRANSFORMERS:
        yield Row(f"transformers {family}", "network", lambda a=(family, kind, more): _transformer(*a), tolerance=5e-3,
                  quick=family in QUICK)


def _timm(name: str) -> Made:
    import timm

    return timm.create_model(name, pretrained=False), [torch.randn(1, 3, 224, 224)]


class _Positional(nn.Module):
    """A model of transformers with positional arguments and only its first result."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Any) -> Any:
        return self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]


def _transformer(family: str, kind: str, more: Mapping[str, Any]) -> Made:
    from transformers import AutoConfig, AutoModel

    known = AutoConfig.for_model(family)
    given = {name: value for name, value in _WIDTH.items() if hasattr(known, name)} | dict(more)
    if isinstance(given.get("num_attention_heads"), list):
        given.pop("num_hidden_layers", None)
    model = AutoModel.from_config(AutoConfig.for_model(family, **given, attn_implementation="sdpa")
                                  if family not in ("deberta-v2", "mamba", "encodec", "segformer", "t5")
                                  else AutoConfig.for_model(family, **given))
    inputs = _inputs(kind)
    return _Positional(model, list(inputs)), list(inputs.values())


def _inputs(kind: str) -> dict[str, torch.Tensor]:
    tokens = torch.randint(3, 2000, (1, 128))
    return {
        "tokens": {"input_ids": tokens},
        "pair": {"input_ids": tokens, "decoder_input_ids": tokens[:, :32]},
        "image": {"pixel_values": torch.randn(1, 3, 224, 224)},
        "sound": {"input_values": torch.randn(1, 16000)},
        "wave": {"input_values": torch.randn(1, 1, 8000)},
        "spectrogram": {"input_features": torch.randn(1, 80, 1000), "decoder_input_ids": tokens[:, :16]},
        "series": {"past_values": torch.randn(4, 336, 7)},
    }[kind]
