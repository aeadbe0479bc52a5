"""Image models of `timm`: one of each family, by its factory function, with few layers and small images."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from conformance.architectures import Architecture, Built, image

_VIT: Mapping[str, Any] = {"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size": 64}
_STAGES: Mapping[str, Any] = {"depths": (1, 1, 2, 1), "dims": (16, 32, 48, 64)}

# name of the model, or module and class; extent of the image; arguments
MODELS: tuple[tuple[str, int, Mapping[str, Any]], ...] = (
    ("resnet18", 64, {}),
    ("resnetv2_50", 64, {"layers": (1, 1, 1, 1)}),
    ("res2net50_26w_4s", 64, {"layers": (1, 1, 1, 1)}),
    ("resnest14d", 64, {"layers": (1, 1, 1, 1)}),
    ("densenet121", 64, {"block_config": (2, 2, 2, 2), "growth_rate": 8}),
    ("dpn48b", 64, {"k_sec": (1, 1, 1, 1)}),
    ("test_efficientnet", 64, {}),
    ("mobilenetv2_050", 64, {}),
    ("mobilenetv3_small_050", 64, {}),
    ("mobilenetv4_conv_small_035", 64, {}),
    ("ghostnet_050", 64, {}),
    ("regnety_002", 64, {}),
    ("rexnetr_100", 64, {"width_mult": 0.3, "depth_mult": 0.4}),
    ("ese_vovnet19b_slim_dw", 64, {}),
    ("convnext_atto", 64, _STAGES),
    ("convnextv2_atto", 64, _STAGES),
    ("convmixer:ConvMixer", 64, {"dim": 32, "depth": 2}),
    ("inception_next_tiny", 64, {"depths": (1, 1, 2, 1), "dims": (32, 48, 64, 96)}),
    ("metaformer:MetaFormer", 64, {"depths": (1, 1, 2, 1), "dims": (16, 32, 48, 64)}),
    ("mambaout_femto", 64, {"depths": (1, 1, 1, 1), "dims": (16, 32, 48, 64)}),
    ("starnet_s1", 64, {"base_dim": 16, "depths": (1, 1, 2, 1)}),
    ("vit_tiny_patch16_224", 64, _VIT),
    ("deit_tiny_distilled_patch16_224", 64, _VIT),
    ("beit_base_patch16_224", 64, _VIT),
    ("eva02_tiny_patch14_224", 56, {"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size": 56}),
    ("cait_xxs24_224", 64, _VIT | {"num_heads": 4}),
    ("xcit_nano_12_p16_224", 64, {"depth": 2, "embed_dim": 48, "num_heads": 4, "img_size": 64}),
    ("swin_tiny_patch4_window7_224", 64, {
        "img_size": 64, "window_size": 4, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)}),
    ("swinv2_tiny_window8_256", 64, {
        "img_size": 64, "window_size": 4, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)}),
    ("mlp_mixer:MlpMixer", 64, {"img_size": 64, "num_blocks": 2, "embed_dim": 48}),
    ("pit_ti_224", 64, {"img_size": 64}),
    ("levit_128s", 64, {"img_size": 64}),
    ("mobilevit_xxs", 64, {}),
    ("mobilevitv2_050", 64, {}),
    ("maxvit_rmlp_pico_rw_256", 64, {"img_size": 64}),
    ("coat_lite_tiny", 64, {"img_size": 64, "serial_depths": (1, 1, 1, 1)}),
    ("edgenext_xx_small", 64, {"depths": (1, 1, 1, 1), "dims": (16, 32, 48, 64)}),
    ("pvt_v2_b0", 64, {"depths": (1, 1, 1, 1)}),
    ("twins_svt_small", 64, {"depths": (1, 1, 1, 1), "img_size": 64}),
    ("focalnet:FocalNet", 64, {"depths": (1, 1, 1, 1), "embed_dim": 16}),
    ("hiera_tiny_224", 64, {"img_size": 64, "embed_dim": 24, "stages": (1, 1, 1, 1)}),
    ("fastvit_t8", 64, {"layers": (1, 1, 1, 1)}),
    ("repvit_m0_9", 64, {"embed_dim": (16, 32, 48, 64), "depth": (1, 1, 1, 1)}),
    ("volo:VOLO", 64, {
        "img_size": 64, "layers": (1, 1, 1, 1), "embed_dims": (32, 48, 48, 48), "num_heads": (2, 4, 4, 4)}),
    ("sequencer:Sequencer2d", 64, {
        "img_size": 64, "layers": (1, 1, 1, 1), "embed_dims": (16, 24, 24, 32), "hidden_sizes": (4, 8, 8, 8),
        "mlp_ratios": (3.0, 3.0, 3.0, 3.0)}),
)  # fmt: skip


def build(model: str, extent: int, arguments: Mapping[str, Any]) -> Built:
    import timm

    place, _, name = model.rpartition(":")
    if place:
        factory: Any = getattr(importlib.import_module(f"timm.models.{place}"), name)
        return factory(num_classes=10, **arguments), [image(extent)]
    module: Any = timm.create_model(model, pretrained=False, num_classes=10, **arguments)
    return module, [image(extent)]


ARCHITECTURES = tuple(
    Architecture(f"timm/{name.rpartition(':')[2]}", partial(build, name, extent, arguments))
    for name, extent, arguments in MODELS
)
