"""Small networks, written with torch.nn, of families that timm and transformers lack."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.corpus.row import Made, Row

QUICK = ("segmentation u-net",)


class UNet(nn.Module):
    """Ronneberger 2015, and Çiçek 2016 in three dimensions."""

    def __init__(self, dimensions: int, channels: int, classes: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        conv, norm, up, self.pool = {
            2: (nn.Conv2d, nn.BatchNorm2d, nn.ConvTranspose2d, functional.max_pool2d),
            3: (nn.Conv3d, nn.BatchNorm3d, nn.ConvTranspose3d, functional.max_pool3d),
        }[dimensions]

        def block(inner: int, outer: int) -> nn.Module:
            return nn.Sequential(conv(inner, outer, 3, padding=1), norm(outer), nn.ReLU(),
                                 conv(outer, outer, 3, padding=1), norm(outer), nn.ReLU())

        pairs = list(itertools.pairwise(widths))
        self.down = nn.ModuleList([block(a, b) for a, b in ((channels, widths[0]), *pairs)])
        self.up = nn.ModuleList([up(b, a, 2, 2) for a, b in reversed(pairs)])
        self.join = nn.ModuleList([block(2 * a, a) for a, _ in reversed(pairs)])
        self.out = conv(widths[0], classes, 1)

    def forward(self, x: Any) -> Any:
        kept: list[Any] = []
        for number, block in enumerate(self.down):
            x = block(self.pool(x, 2) if number else x)
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.out(x)


class Recurrent(nn.Module):
    """A language model with a recurrent body."""

    def __init__(self, kind: type[nn.Module], width: int, layers: int) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(2000, width), nn.Linear(width, 2000)
        self.body: Any = kind(width, width, layers, batch_first=True)

    def forward(self, tokens: Any) -> Any:
        return self.out(self.body(self.embed(tokens))[0])


class WaveNet(nn.Module):
    """van den Oord 2016: gated causal convolutions of growing dilation."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, 32, 1)
        self.gates = nn.ModuleList([nn.Conv1d(32, 64, 2, dilation=2**n) for n in range(8)])
        self.skips = nn.ModuleList([nn.Conv1d(32, 32, 1) for _ in range(8)])

    def forward(self, x: Any) -> Any:
        x, total = self.start(x), 0.0
        for number, (gate, skip) in enumerate(zip(self.gates, self.skips, strict=True)):
            found = functional.glu(gate(functional.pad(x, (2**number, 0))), 1)
            total, x = total + skip(found), x + found
        return total


class Recommender(nn.Module):
    """DLRM, Naumov 2019."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(5000, 32) for _ in range(8)])
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(32 + 36, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())

    def forward(self, dense: Any, sparse: Any) -> Any:
        dense = self.bottom(dense)
        rows = torch.stack([dense, *(table(sparse[:, n]) for n, table in enumerate(self.tables))], 1)
        place = torch.tril_indices(9, 9, -1)
        return self.top(torch.cat([dense, torch.bmm(rows, rows.mT)[:, place[0], place[1]]], 1))


class GraphConvolution(nn.Module):
    """Kipf and Welling 2016, sums over edges."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 16)])

    def forward(self, x: Any, edges: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
            x = torch.relu(torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]))
        return x


class Decoder(nn.Module):
    """The decoder of a diffusion model's autoencoder: group norms, upsampling, convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.start, self.out = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(8, width) for _ in range(4)])
        self.convolutions = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(4)])

    def forward(self, x: Any) -> Any:
        x = self.start(x)
        for number, (norm, conv) in enumerate(zip(self.norms, self.convolutions, strict=True)):
            x = x + conv(functional.silu(norm(x)))
            if number % 2:
                x = functional.interpolate(x, scale_factor=2, mode="nearest")
        return torch.tanh(self.out(x))


class PointNet(nn.Module):
    """Qi 2017: shared layers, the maximum over points."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inner, outer in ((3, 64), (64, 128), (128, 512)):
            layers += [nn.Conv1d(inner, outer, 1), nn.BatchNorm1d(outer), nn.ReLU()]
        self.body, self.out = nn.Sequential(*layers), nn.Linear(512, 40)

    def forward(self, points: Any) -> Any:
        return self.out(self.body(points).amax(-1))


class KeywordSpotter(nn.Module):
    """Depthwise separable convolutions over a mel spectrogram, then a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv1d(40, 96, 5, padding=2), nn.ReLU()]
        for _ in range(4):
            layers += [nn.Conv1d(96, 96, 9, padding=4, groups=96), nn.Conv1d(96, 96, 1), nn.BatchNorm1d(96), nn.ReLU()]
        self.body, self.out = nn.Sequential(*layers), nn.Linear(64, 12)
        self.recurrent = nn.GRU(96, 64, batch_first=True)

    def forward(self, mel: Any) -> Any:
        return self.out(self.recurrent(self.body(mel).transpose(1, 2))[0][:, -1])


def _video() -> nn.Module:
    """A small network of R(2+1)D's convolutions, Tran 2018."""
    layers: list[nn.Module] = []
    for inner, outer in ((3, 24), (24, 48), (48, 96)):
        layers += [nn.Conv3d(inner, outer, (1, 3, 3), (1, 2, 2), (0, 1, 1)), nn.BatchNorm3d(outer), nn.ReLU(),
                   nn.Conv3d(outer, outer, (3, 1, 1), padding=(1, 0, 0)), nn.BatchNorm3d(outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(96, 10))


def _super_resolution() -> nn.Module:
    """ESPCN, Shi 2016."""
    return nn.Sequential(nn.Conv2d(3, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
                         nn.Conv2d(32, 27, 3, padding=1), nn.PixelShuffle(3))


NETWORKS: dict[str, Callable[[], Made]] = {
    "segmentation u-net": lambda: (UNet(2, 3, 21, (16, 32, 64, 128)), [torch.randn(1, 3, 160, 160)]),
    "volume u-net": lambda: (UNet(3, 1, 3, (8, 16, 32)), [torch.randn(1, 1, 32, 32, 32)]),
    "lstm language model": lambda: (Recurrent(nn.LSTM, 256, 2), [torch.randint(0, 2000, (1, 50))]),
    "gru language model": lambda: (Recurrent(nn.GRU, 192, 1), [torch.randint(0, 2000, (4, 40))]),
    "wavenet": lambda: (WaveNet(), [torch.randn(1, 1, 4000)]),
    "recommender": lambda: (Recommender(), [torch.randn(256, 13), torch.randint(0, 5000, (256, 8))]),
    "graph convolution": lambda: (GraphConvolution(), [torch.randn(2000, 64), torch.randint(0, 2000, (2, 10000))]),
    "image decoder": lambda: (Decoder(64), [torch.randn(1, 4, 32, 32)]),
    "point cloud": lambda: (PointNet(), [torch.randn(2, 3, 1024)]),
    "keyword spotter": lambda: (KeywordSpotter(), [torch.randn(1, 40, 100)]),
    "video": lambda: (_video(), [torch.randn(1, 3, 8, 80, 80)]),
    "super-resolution": lambda: (_super_resolution(), [torch.randn(1, 3, 100, 100)]),
}


def rows() -> Iterator[Row]:
    for name, make in NETWORKS.items():
        yield Row(name, "network", make, tolerance=5e-3, quick=name in QUICK)
