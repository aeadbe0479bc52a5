"""Heads of segmentation and detection: resizing, sampling, pooling, regions, boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch.nn import functional

from benchmarks.corpus.row import Family, Row, text, uniform

VISION = Family("vision", quick=("resize bilinear 1×128×28×28→56×56", "grid sample 1×32×64×64→48×48"))

# Mode, channels, input and output extents: those of DeepLab, FPN, diffusion U-Nets and super-resolution do.
RESIZED = (
    ("bilinear", 128, (28, 28), (56, 56)), ("bilinear", 21, (65, 65), (513, 513)), ("nearest", 320, (32, 32), (64, 64)),
    ("bicubic", 3, (120, 120), (240, 240)), ("bilinear", 64, (56, 56), (37, 41)), ("nearest", 256, (25, 19), (50, 38)),
)
POOLED = (("max", 64, 112, 3, 2, 1), ("average", 96, 56, 2, 2, 0), ("max", 512, 13, 13, 1, 6),
          ("average", 17, 51, 5, 3, 0))


def rows() -> Iterator[Row]:
    for mode, channels, before, after in RESIZED:
        yield _resize(mode, channels, before, after)
    for given in POOLED:
        yield _pool(*given)
    yield VISION.of("global average 8×512×7×7", lambda x: x.mean((2, 3)), (8, 512, 7, 7))
    yield VISION.of("adaptive average 1×256×33×31→6×6", lambda x: functional.adaptive_avg_pool2d(x, 6),
                    (1, 256, 33, 31))
    yield VISION.of("pool 1-d 16×64×1000", lambda x: functional.max_pool1d(x, 3, 2), (16, 64, 1000))
    yield VISION.of("pool 3-d 1×32×16×28×28", lambda x: functional.max_pool3d(x, (2, 3, 3), (2, 2, 2)),
                    (1, 32, 16, 28, 28))
    yield VISION.of("grid sample 1×32×64×64→48×48", _sample, (1, 32, 64, 64), uniform(1, 48, 48, 2))
    yield VISION.of("roi align 1×64×50×50, 32 boxes 7×7", _align, (1, 64, 50, 50), _boxes(32, 200))
    yield VISION.of("intersections of boxes 500×400", _intersections, _boxes(500, 300), _boxes(400, 300))
    yield VISION.of("suppression of 300 boxes", _suppress, _boxes(300, 300), uniform(300))
    yield VISION.of("unfold 1×32×28×28 3×3", lambda x: functional.unfold(x, 3, padding=1), (1, 32, 28, 28))
    yield VISION.of("argmax of classes 1×21×256×256", lambda x: x.argmax(1), (1, 21, 256, 256))
    yield VISION.of("normalise bytes 1×224×224×3", _normalise, lambda: torch.randint(0, 256, (1, 224, 224, 3)).byte())


def fresh(random: Random) -> Row:
    if random.random() < 0.5:
        mode = random.choice(("bilinear", "nearest"))
        before, after = ((random.randint(5, 70), random.randint(5, 70)) for _ in range(2))
        return _resize(mode, random.randint(1, 90), before, after, True)
    window = random.randint(2, 5)
    return _pool(random.choice(("max", "average")), random.randint(1, 130), random.randint(9, 80), window,
                 random.randint(1, 3), random.randint(0, window // 2), True)


def _resize(mode: str, channels: int, before: tuple[int, int], after: tuple[int, int], fresh: bool = False) -> Row:
    align: dict[str, Any] = {} if mode == "nearest" else {"align_corners": False}
    return VISION.of(f"resize {mode} 1×{text(channels, *before)}→{text(*after)}",
                     lambda x: functional.interpolate(x, after, mode=mode, **align), (1, channels, *before),
                     fresh=fresh)


# Parameters: what a pool is.
def _pool(
    kind: str, channels: int, extent: int, window: int, stride: int, padding: int, fresh: bool = False
) -> Row:
    pool: Callable[..., Any] = functional.max_pool2d if kind == "max" else functional.avg_pool2d
    more = f" padding {padding}" if fresh else ""
    return VISION.of(f"{kind} pool 1×{text(channels, extent, extent)} {text(window, window)} stride {stride}{more}",
                     lambda x: pool(x, window, stride, padding), (1, channels, extent, extent), fresh=fresh)


def _sample(image: Any, grid: Any) -> Any:
    return functional.grid_sample(image, grid * 2.2 - 1.1, align_corners=False)


def _align(image: Any, boxes: Any) -> Any:
    from torchvision.ops import roi_align

    return roi_align(image, [boxes], 7, 0.25)


def _suppress(boxes: Any, scores: Any) -> Any:
    from torchvision.ops import nms

    return nms(boxes, scores, 0.5)


def _boxes(count: int, extent: int) -> Callable[[], torch.Tensor]:
    def make() -> torch.Tensor:
        corner = torch.rand(count, 2) * extent * 0.8
        return torch.cat([corner, corner + 2 + torch.rand(count, 2) * extent * 0.2], 1)

    return make


def _intersections(left: Any, right: Any) -> Any:
    """Intersection over union of all pairs."""
    low = torch.maximum(left[:, None, :2], right[None, :, :2])
    size = (torch.minimum(left[:, None, 2:], right[None, :, 2:]) - low).clamp(min=0)
    common = size[..., 0] * size[..., 1]
    areas = [(each[:, 2] - each[:, 0]) * (each[:, 3] - each[:, 1]) for each in (left, right)]
    return common / (areas[0][:, None] + areas[1][None] - common)


def _normalise(pixels: Any) -> Any:
    return ((pixels.permute(0, 3, 1, 2).float() / 255) - 0.45) / 0.22
