"""Convolutions of images, audio, volumes and videos, and transposed convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from torch import nn

from benchmarks.corpus.row import Family, Function, Row, text

IMAGE = Family("convolution", quick=(
    "conv2d 128×28×28→128 3×3", "conv2d 96×56×56→96 7×7 depthwise", "conv2d transposed 64×28×28→32 4×4 stride 2"))
SOUND = Family("convolution 1-d", quick=("conv1d 64×4000→64 7 dilation 3",))
VOLUME = Family("convolution 3-d", quick=("conv3d 16×24×24×24→32 3×3×3",))

# Channels, extent, filters, window, further arguments of torch.
IMAGES: tuple[tuple[int, int, int, int, dict[str, Any]], ...] = (
    (3, 224, 64, 7, {"stride": 2, "padding": 3}), (64, 56, 64, 3, {"padding": 1}), (128, 28, 128, 3, {"padding": 1}),
    (256, 14, 256, 3, {"padding": 1}), (512, 7, 512, 3, {"padding": 1}), (64, 56, 256, 1, {}),
    (256, 56, 128, 1, {"stride": 2}), (1024, 14, 512, 1, {}), (3, 224, 32, 3, {"stride": 2, "padding": 1}),
    (32, 112, 32, 3, {"padding": 1, "groups": 32}), (144, 56, 144, 5, {"padding": 2, "stride": 2, "groups": 144}),
    (96, 56, 96, 7, {"padding": 3, "groups": 96}), (384, 14, 384, 7, {"padding": 3, "groups": 384}),
    (3, 224, 96, 4, {"stride": 4}), (3, 224, 768, 16, {"stride": 16}), (128, 56, 128, 3, {"padding": 1, "groups": 32}),
    (256, 28, 256, 3, {"padding": 1, "groups": 2}), (64, 33, 64, 3, {"padding": 2, "dilation": 2}),
    (256, 28, 64, 3, {"padding": 12, "dilation": 12}), (320, 32, 320, 3, {"padding": 1}), (17, 31, 23, 5, {}),
    (512, 16, 1, 3, {"padding": 1}), (1, 128, 16, 9, {"padding": 4}),
)
# Channels, length, filters, window, further arguments of torch: wav2vec2, Whisper, WaveNet, EnCodec, HiFi-GAN, text.
SOUNDS: tuple[tuple[int, int, int, int, dict[str, Any]], ...] = (
    (1, 16000, 512, 10, {"stride": 5}), (512, 999, 512, 3, {"stride": 2}), (80, 1000, 384, 3, {"padding": 1}),
    (384, 1000, 384, 3, {"stride": 2, "padding": 1}), (64, 4000, 64, 7, {"padding": 9, "dilation": 3}),
    (128, 4000, 128, 3, {"padding": 1}), (256, 500, 256, 31, {"padding": 15, "groups": 256}), (32, 8000, 1, 7, {}),
    (768, 49, 768, 128, {"padding": 64, "groups": 16}), (1536, 200, 1536, 4, {"padding": 3, "groups": 1536}),
)
VOLUMES: tuple[tuple[int, tuple[int, int, int], int, tuple[int, int, int], dict[str, Any]], ...] = (
    (3, (8, 56, 56), 24, (3, 7, 7), {"stride": (1, 2, 2), "padding": (1, 3, 3)}),
    (16, (24, 24, 24), 32, (3, 3, 3), {"padding": 1}), (32, (16, 28, 28), 32, (1, 3, 3), {"padding": (0, 1, 1)}),
    (32, (16, 28, 28), 32, (3, 1, 1), {"padding": (1, 0, 0)}), (24, (8, 28, 28), 54, (1, 1, 1), {}),
    (54, (8, 28, 28), 54, (3, 3, 3), {"padding": 1, "groups": 54}), (1, (32, 32, 32), 16, (5, 5, 5), {"stride": 2}),
)
# Channels, extents, filters, window, stride, padding.
TRANSPOSED = (
    (64, (28, 28), 32, 4, 2, 1), (128, (16, 16), 64, 2, 2, 0), (100, (1, 1), 256, 4, 1, 0), (32, (31, 29), 16, 3, 2, 1),
    (128, (200,), 64, 16, 8, 4), (256, (50,), 128, 4, 2, 1), (32, (12, 12, 12), 16, 2, 2, 0),
)  # fmt: skip
KINDS: Sequence[Callable[..., nn.Module]] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED_KINDS: Sequence[Callable[..., nn.Module]] = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def rows() -> Iterator[Row]:
    for channels, extent, filters, window, how in IMAGES:
        yield _row(IMAGE, channels, (extent, extent), filters, (window, window), how)
    for channels, length, filters, window, how in SOUNDS:
        yield _row(SOUND, channels, (length,), filters, (window,), how)
    for channels, extents, filters, windows, how in VOLUMES:
        yield _row(VOLUME, channels, extents, filters, windows, how)
    for channels, extents, filters, window, stride, padding in TRANSPOSED:
        rank = len(extents)
        family = (SOUND, IMAGE, VOLUME)[rank - 1]
        kind = TRANSPOSED_KINDS[rank - 1]
        yield family.layer(
            f"conv{rank}d transposed {text(channels, *extents)}→{filters} {text(*[window] * rank)} stride {stride}",
            lambda kind=kind, a=(channels, filters, window, stride, padding): kind(*a), (1, channels, *extents))
    how = {"padding": 1}
    yield _row(IMAGE, 64, (56, 56), 64, (3, 3), how, batch=8)
    for dtype in ("bf16", "f16", "f64"):
        yield _row(IMAGE, 64, (28, 28), 64, (3, 3), how, dtype=dtype)
    yield IMAGE.layer("conv2d channels last 56×56×64→64 3×3", _channels_last, (1, 56, 56, 64))
    yield IMAGE.layer("conv2d + norm + relu 64×56×56→64 3×3", lambda: nn.Sequential(
        nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()), (1, 64, 56, 56))


def fresh(random: Random) -> Row:
    rank = random.choice((1, 2, 2, 2, 3))
    extents = tuple(random.randint(7, (3000, 60, 17)[rank - 1]) for _ in range(rank))
    windows = tuple(random.choice((1, 2, 3, 5)) for _ in range(rank))
    groups = random.choice((1, 1, 1, 3))
    channels, filters = groups * random.randint(1, 50), groups * random.randint(1, 50)
    how = {"padding": random.randint(0, 2), "stride": random.choice((1, 1, 2, 3)), "groups": groups}
    return _row((SOUND, IMAGE, VOLUME)[rank - 1], channels, extents, filters, windows, how, fresh=True)


# Parameters: what a convolution is.
def _row(
    family: Family, channels: int, extents: tuple[int, ...], filters: int, windows: tuple[int, ...],
    how: dict[str, Any], *, batch: int = 1, dtype: str = "f32", fresh: bool = False,
) -> Row:
    rank = len(extents)
    words = [f"conv{rank}d {f'{batch}×' if batch > 1 else ''}{text(channels, *extents)}→{filters} {text(*windows)}"]
    if how.get("groups", 1) > 1:
        words.append("depthwise" if how["groups"] == channels == filters else f"groups {how['groups']}")
    words += [f"{name} {how[name]}" for name in ("stride", "dilation") if how.get(name, 1) != 1]
    words += [f"padding {how.get('padding', 0)}"] * fresh
    kind = KINDS[rank - 1]
    return family.layer(" ".join(words), lambda: kind(channels, filters, windows, **how), (batch, channels, *extents),
                        dtype=dtype, fresh=fresh)


def _channels_last() -> nn.Module:
    """The image and the result in the order height, width, channels."""
    return Function(lambda conv, x: conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1), [nn.Conv2d(64, 64, 3, padding=1)])
