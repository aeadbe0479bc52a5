"""Models of `torchvision`: one of each family, with few layers and small images.

Models whose factory functions take no sizes are built by their classes. Those of detection return boxes, labels and
scores of one image; their thresholds keep all boxes, so that results do not depend on scores that are almost equal.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from conformance.architectures import Architecture, Built, image

_FEW = {"num_classes": 10}


def _models(place: str = "") -> Any:
    return importlib.import_module(f"torchvision.models{place}")


def _named(name: str, extent: int, **arguments: Any) -> Built:
    """A model by its factory function, without the large layers of its classifier."""
    module = getattr(_models(), name)(**_FEW, **arguments)
    if name.startswith(("alexnet", "vgg")):
        channels = 256 if name == "alexnet" else 512
        module.avgpool, module.classifier = nn.AdaptiveAvgPool2d(2), nn.Linear(4 * channels, 10)
    return module, [image(extent)]


def _resnet(block: str, **arguments: Any) -> Any:
    place = _models(".resnet")
    return place.ResNet(getattr(place, block), [1, 1, 1, 1], **_FEW, **arguments)


def _residual(**arguments: Any) -> Built:
    return _resnet("Bottleneck", **arguments), [image(64)]


def _densenet() -> Built:
    return _models(".densenet").DenseNet(8, (2, 2, 2, 2), 16, **_FEW), [image(64)]


def _convnext() -> Built:
    place = _models(".convnext")
    blocks = [place.CNBlockConfig(16, 32, 1), place.CNBlockConfig(32, 48, 1), place.CNBlockConfig(48, None, 2)]
    return place.ConvNeXt(blocks, **_FEW), [image(64)]


def _vit() -> Built:
    sizes = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 4, "hidden_dim": 32, "mlp_dim": 64}
    return _models(".vision_transformer").VisionTransformer(**sizes, **_FEW), [image(32)]


def _swin(version: int) -> Built:
    place = _models(".swin_transformer")
    second: Any = {"block": place.SwinTransformerBlockV2, "downsample_layer": place.PatchMergingV2}
    module = place.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], **_FEW, **(second if version == 2 else {}))
    return module, [image(64)]


def _maxvit() -> Built:
    module = _models(".maxvit").MaxVit((64, 64), 16, 2, [16, 32], [1, 1], 8, 0.1, **_FEW)
    return module, [image(64)]


class Only(nn.Module):
    """One result of a model that returns several by name."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module, self.name = module, name

    def forward(self, x: Any) -> Any:
        return self.module(x)[self.name]


def _layers(layers: dict[str, str], **arguments: Any) -> Any:
    return _models("._utils").IntermediateLayerGetter(_resnet("Bottleneck", **arguments), layers)


def _fcn() -> Built:
    place = _models(".segmentation.fcn")
    return Only(place.FCN(_layers({"layer4": "out"}), place.FCNHead(2048, 5)), "out"), [image(64)]


def _deeplab() -> Built:
    place = _models(".segmentation.deeplabv3")
    dilated = [False, True, True]
    body = _layers({"layer4": "out"}, replace_stride_with_dilation=dilated)
    return Only(place.DeepLabV3(body, place.DeepLabHead(2048, 5)), "out"), [image(64)]


def _lraspp() -> Built:
    module = _models(".segmentation").lraspp_mobilenet_v3_large(weights_backbone=None, num_classes=5)
    return Only(module, "out"), [image(64)]


def _video(name: str, frames: int, extent: int) -> Built:
    return getattr(_models(".video"), name)(**_FEW), [torch.randn(1, 3, frames, extent, extent)]


def _swin3d() -> Built:
    place = _models(".video.swin_transformer")
    module = place.SwinTransformer3d([2, 4, 4], 24, [2, 2], [2, 4], [2, 4, 4], **_FEW)
    return module, [torch.randn(1, 3, 4, 32, 32)]


def _mvit() -> Built:
    place = _models(".video.mvit")
    setting = [
        place.MSBlockConfig(1, 16, 32, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 4, 4]),
        place.MSBlockConfig(2, 32, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 2, 2]),
    ]
    module = place.MViT((32, 32), 4, setting, residual_pool=True, residual_with_cls_embed=False, rel_pos_embed=True,
                        proj_after_attn=True, num_classes=10)
    return module, [torch.randn(1, 3, 4, 32, 32)]


class Flow(nn.Module):
    """RAFT's last flow, after two iterations."""

    def __init__(self) -> None:
        super().__init__()
        self.module = _models(".optical_flow").raft_small()

    def forward(self, first: Any, second: Any) -> Any:
        return self.module(first, second, num_flow_updates=2)[-1]


class Detector(nn.Module):
    """Boxes, labels and scores of one image."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> Any:
        found = self.module([x])[0]
        return found["boxes"], found["labels"], found["scores"]


def _detector(name: str, **arguments: Any) -> Built:
    place = _models(".detection")
    module = getattr(place, name)(weights_backbone=None, num_classes=4, **arguments)
    return Detector(module), [torch.rand(3, 96, 96)]


def _sized(**arguments: Any) -> dict[str, Any]:
    return {"min_size": 96, "max_size": 96, "box_detections_per_img": 8, "rpn_pre_nms_top_n_test": 20,
            "rpn_post_nms_top_n_test": 10, "box_score_thresh": 0.0, **arguments}


BUILDERS: tuple[tuple[str, Callable[[], Built]], ...] = (
    ("alexnet", partial(_named, "alexnet", 64)),
    ("vgg11", partial(_named, "vgg11", 64)),
    ("vgg11_bn", partial(_named, "vgg11_bn", 64)),
    ("resnet18", partial(_named, "resnet18", 64)),
    ("resnet", _residual),
    ("resnext", partial(_residual, groups=8, width_per_group=4)),
    ("wide_resnet", partial(_residual, width_per_group=128)),
    ("squeezenet1_1", partial(_named, "squeezenet1_1", 64)),
    ("densenet", _densenet),
    ("googlenet", partial(_named, "googlenet", 64, aux_logits=False, init_weights=False)),
    ("inception_v3", partial(_named, "inception_v3", 96, aux_logits=False, init_weights=False)),
    ("mobilenet_v2", partial(_named, "mobilenet_v2", 64, width_mult=0.25)),
    ("mobilenet_v3_small", partial(_named, "mobilenet_v3_small", 64)),
    ("mnasnet0_5", partial(_named, "mnasnet0_5", 64)),
    ("shufflenet_v2_x0_5", partial(_named, "shufflenet_v2_x0_5", 64)),
    ("efficientnet_b0", partial(_named, "efficientnet_b0", 64)),
    ("regnet_x_400mf", partial(_named, "regnet_x_400mf", 64)),
    ("regnet_y_400mf", partial(_named, "regnet_y_400mf", 64)),
    ("convnext", _convnext),
    ("vit", _vit),
    ("swin", partial(_swin, 1)),
    ("swin_v2", partial(_swin, 2)),
    ("maxvit", _maxvit),
    ("fcn", _fcn),
    ("deeplabv3", _deeplab),
    ("lraspp_mobilenet_v3_large", _lraspp),
    ("r3d_18", partial(_video, "r3d_18", 4, 32)),
    ("mc3_18", partial(_video, "mc3_18", 4, 32)),
    ("r2plus1d_18", partial(_video, "r2plus1d_18", 4, 32)),
    ("swin3d", _swin3d),
    ("mvit", _mvit),
    ("raft_small", lambda: (Flow(), [image(128, 1), image(128, 1)])),
    ("fasterrcnn", partial(_detector, "fasterrcnn_mobilenet_v3_large_320_fpn", **_sized())),
    ("maskrcnn", partial(_detector, "maskrcnn_resnet50_fpn", **_sized())),
    ("retinanet", partial(_detector, "retinanet_resnet50_fpn", min_size=96, max_size=96, score_thresh=0.0,
                          topk_candidates=20, detections_per_img=8)),
    ("fcos", partial(_detector, "fcos_resnet50_fpn", min_size=96, max_size=96, score_thresh=0.0,
                     topk_candidates=20, detections_per_img=8)),
    ("ssdlite320", partial(_detector, "ssdlite320_mobilenet_v3_large", score_thresh=0.0, topk_candidates=20,
                           detections_per_img=8)),
)  # fmt: skip

ARCHITECTURES = tuple(Architecture(f"torchvision/{name}", build) for name, build in BUILDERS)
