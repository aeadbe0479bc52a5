"""Architectures written here with `torch.nn`: images, sequences, sound, physics and reinforcement learning."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

from conformance.architectures import Architecture, image, token_ids


class UNet(nn.Module):
    """Ronneberger, 2015: an encoder and a decoder of two levels with skip connections."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self._block(3, 8), self._block(8, 16)])
        self.middle = self._block(16, 32)
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.join = nn.ModuleList([self._block(32, 16), self._block(16, 8)])
        self.out = nn.Conv2d(8, 2, 1)

    @staticmethod
    def _block(inner: int, outer: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(),
                             nn.Conv2d(outer, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU())

    def forward(self, x: Any) -> Any:
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.out(x)


class VariationalAutoencoder(nn.Module):
    """Kingma and Welling, 2013, with its noise as an input, and the divergence as a result."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(64, 32), nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))
        self.mean, self.logarithm = nn.Linear(32, 8), nn.Linear(32, 8)

    def forward(self, x: Any, noise: Any) -> Any:
        hidden = torch.relu(self.encode(x))
        mean, logarithm = self.mean(hidden), self.logarithm(hidden)
        divergence = -0.5 * (1 + logarithm - mean**2 - logarithm.exp()).sum(-1)
        return torch.sigmoid(self.decode(mean + noise * torch.exp(logarithm / 2))), divergence


class VectorQuantised(nn.Module):
    """van den Oord, 2017: the nearest code for each position of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.codes = nn.Conv2d(3, 8, 4, 4), nn.Embedding(16, 8)
        self.decode = nn.ConvTranspose2d(8, 3, 4, 4)

    def forward(self, x: Any) -> Any:
        found = self.encode(x).permute(0, 2, 3, 1)
        nearest = torch.cdist(found.reshape(-1, 8), self.codes.weight).argmin(-1)
        taken = self.codes(nearest).view(found.shape)
        return self.decode(taken.permute(0, 3, 1, 2)), nearest


def generator() -> nn.Module:
    """DCGAN's, Radford, 2015."""
    return nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )


def discriminator() -> nn.Module:
    spectral = nn.utils.parametrizations.spectral_norm
    return nn.Sequential(
        spectral(nn.Conv2d(3, 16, 4, 2, 1)), nn.LeakyReLU(0.2), spectral(nn.Conv2d(16, 32, 4, 2, 1)),
        nn.InstanceNorm2d(32, affine=True), nn.LeakyReLU(0.2), nn.Flatten(), spectral(nn.Linear(32 * 16, 1)),
    )


class Recurrent(nn.Module):
    """A layer of torch.nn and a classifier of its last states."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.out = nn.LazyLinear(3)

    def forward(self, x: Any) -> Any:
        found, states = self.layer(x)
        return self.out(found), states


def recurrent(layer: Any) -> tuple[nn.Module, list[Any]]:
    module, x = Recurrent(layer), torch.randn(2, 7, 12)
    module(x)
    return module, [x]


class Cells(nn.Module):
    """A decoder of LSTM and GRU cells, one token after the other, with attention over the encoder's states."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.encode = nn.Embedding(99, 16), nn.GRU(16, 16, batch_first=True)
        self.first, self.second, self.out = nn.LSTMCell(32, 16), nn.GRUCell(16, 16), nn.Linear(16, 99)

    def forward(self, tokens: Any, targets: Any) -> Any:
        states, last = self.encode(self.embed(tokens))
        hidden = cell = second = last[0]
        found = []
        for place in range(targets.shape[1]):
            weights = torch.softmax(torch.einsum("bld,bd->bl", states, second), -1)
            context = torch.einsum("bl,bld->bd", weights, states)
            hidden, cell = self.first(torch.cat([self.embed(targets[:, place]), context], -1), (hidden, cell))
            second = self.second(hidden, second)
            found.append(self.out(second))
        return torch.stack(found, 1)


class GraphConvolution(nn.Module):
    """Kipf and Welling, 2016, by sums over edges."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 4)])

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges[0], edges[1]
        degree = torch.ones(x.shape[0], dtype=x.dtype).scatter_add(0, target, torch.ones_like(source, dtype=x.dtype))
        weight = (degree[source] * degree[target]).rsqrt().unsqueeze(-1)
        for layer in self.layers:
            x = layer(x)
            x = torch.relu((x / degree.unsqueeze(-1)).index_add(0, target, x[source] * weight))
        return x


class GraphAttention(nn.Module):
    """Veličković, 2017: a softmax over the edges into each node, by scatters that reduce."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.from_source, self.to_target = nn.Linear(8, 16), nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges[0], edges[1]
        x = self.project(x)
        score = functional.leaky_relu((self.from_source(x)[source] + self.to_target(x)[target]).squeeze(-1), 0.2)
        most = torch.full_like(x[:, 0], -1e9).scatter_reduce(-1, target, score, "amax")
        exponent = (score - most[target]).exp()
        total = torch.zeros_like(x[:, 0]).scatter_add(-1, target, exponent)
        weight = exponent / total[target]
        places = target.unsqueeze(-1).expand(-1, x.shape[1])
        return torch.zeros_like(x).scatter_add(-2, places, x[source] * weight.unsqueeze(-1))


class GraphSage(nn.Module):
    """Hamilton, 2017: the mean over neighbours, and a mean over each graph of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.others, self.out = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x: Any, edges: Any, graph: Any) -> Any:
        places = edges[1].unsqueeze(-1).expand(-1, x.shape[1])
        mean = torch.zeros_like(x).scatter_reduce(0, places, x[edges[0]], "mean", include_self=False)
        x = functional.normalize(torch.relu(self.own(x) + self.others(mean)), dim=-1)
        pooled = torch.zeros(2, 16, dtype=x.dtype).index_reduce(0, graph, x, "amax", include_self=False)
        return self.out(pooled)


class Recommender(nn.Module):
    """DLRM, Naumov, 2019: bags of embeddings, and all products of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(50, 8, mode="sum"), nn.EmbeddingBag(20, 8, mode="mean")])
        self.bottom, self.top = nn.Sequential(nn.Linear(5, 8), nn.ReLU()), nn.Linear(8 + 3, 1)

    def forward(self, dense: Any, first: Any, second: Any) -> Any:
        dense = self.bottom(dense)
        rows = torch.stack([dense, self.bags[0](first), self.bags[1](second)], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))
        place = torch.tril_indices(3, 3, -1)
        return torch.sigmoid(self.top(torch.cat([dense, products[:, place[0], place[1]]], 1)))


class Factorised(nn.Module):
    """DeepFM, Guo, 2017: second-order products of embeddings, a linear part and a deep one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.embed = nn.Embedding(100, 1), nn.Embedding(100, 8)
        self.deep = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.PReLU(), nn.Dropout(0.5), nn.Linear(16, 1))
        self.register_buffer("offsets", torch.tensor([0, 25, 50, 75]))

    def forward(self, fields: Any) -> Any:
        fields = fields + self.offsets
        rows = self.embed(fields)
        second = (rows.sum(1) ** 2 - (rows**2).sum(1)).sum(-1, keepdim=True) / 2
        return torch.sigmoid(self.linear(fields).sum(1) + second + self.deep(rows.flatten(1)))


class Experts(nn.Module):
    """A sparse mixture of experts: the two best experts of each token, combined by index_add."""

    def __init__(self) -> None:
        super().__init__()
        self.route = nn.Linear(16, 4)
        self.inner, self.outer = (nn.Parameter(torch.randn(4, *shape) / 4) for shape in ((16, 32), (32, 16)))

    def forward(self, x: Any) -> Any:
        flat = x.reshape(-1, 16)
        weight, chosen = torch.topk(torch.softmax(self.route(flat), -1), 2, -1)
        counts = torch.histc(chosen.float(), bins=4, min=0, max=3)
        tokens = torch.arange(flat.shape[0]).repeat_interleave(2)
        order = torch.argsort(chosen.reshape(-1), stable=True)
        expert, token = chosen.reshape(-1)[order], tokens[order]
        found = functional.silu(torch.einsum("td,tdh->th", flat[token], self.inner[expert]))
        found = torch.einsum("th,thd->td", found, self.outer[expert]) * weight.reshape(-1)[order].unsqueeze(-1)
        return torch.zeros_like(flat).index_add(0, token, found).view(x.shape), counts


class Spectrogram(nn.Module):
    """A classifier of a short-time Fourier transform's logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.out = nn.Sequential(nn.Conv1d(17, 8, 3), nn.GELU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3))

    def forward(self, sound: Any) -> Any:
        found = torch.stft(sound, 32, 8, window=self.window.to(sound.dtype), return_complex=True)
        return self.out(torch.log1p(found.abs() ** 2))


class Denoiser(nn.Module):
    """A mask of the spectrum, and back to sound by the inverse transform."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.mask = nn.Conv1d(17, 17, 3, padding=1)

    def forward(self, sound: Any) -> Any:
        window = self.window.to(sound.dtype)
        found = torch.stft(sound, 32, 8, window=window, return_complex=True)
        found = found * torch.sigmoid(self.mask(found.abs()))
        return torch.istft(found, 32, 8, window=window, length=sound.shape[-1])


class WaveNet(nn.Module):
    """van den Oord, 2016: causal convolutions with increasing dilation, and gates."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, 8, 1)
        self.gates = nn.ModuleList([nn.Conv1d(8, 16, 2, dilation=2**n) for n in range(4)])
        self.skips = nn.ModuleList([nn.Conv1d(8, 8, 1) for _ in range(4)])

    def forward(self, x: Any) -> Any:
        x, total = self.start(x), 0.0
        for number, (gate, skip) in enumerate(zip(self.gates, self.skips, strict=True)):
            found = functional.glu(gate(functional.pad(x, (2**number, 0))), 1)
            total, x = total + skip(found), x + found
        return total


class Duelling(nn.Module):
    """Wang, 2015: values of actions from the state's value and the actions' advantages, and the best action."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 8, 4, 2), nn.ReLU(), nn.Flatten())
        self.value, self.advantage = nn.LazyLinear(1), nn.LazyLinear(6)

    def forward(self, frames: Any) -> Any:
        hidden = self.body(frames / 255.0)
        advantage = self.advantage(hidden)
        values = self.value(hidden) + advantage - advantage.mean(-1, keepdim=True)
        return values, values.argmax(-1)


class ActorCritic(nn.Module):
    """PPO's policy, Schulman, 2017: logarithms of an action's probability, entropy, value."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.mean, self.value = nn.Linear(6, 32), nn.Linear(32, 2), nn.Linear(32, 1)
        self.spread = nn.Parameter(torch.zeros(2))

    def forward(self, state: Any, action: Any) -> Any:
        hidden = torch.tanh(self.body(state))
        policy = torch.distributions.Normal(self.mean(hidden), self.spread.exp(), validate_args=False)
        return policy.log_prob(action).sum(-1), policy.entropy().sum(-1), self.value(hidden)


class StateSpace(nn.Module):
    """S4D, Gu, 2022: a diagonal state space as a long convolution, by Fourier transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.decay, self.frequency = nn.Parameter(torch.rand(8, 4)), nn.Parameter(torch.rand(8, 4) * 3)
        self.weight, self.step = nn.Parameter(torch.randn(8, 4)), nn.Parameter(torch.rand(8) / 10)

    def forward(self, x: Any) -> Any:
        length = x.shape[-1]
        time = torch.arange(length, dtype=x.dtype) * self.step.exp().unsqueeze(-1)
        phase = self.frequency.unsqueeze(-1) * time.unsqueeze(1)
        kernel = (self.weight.unsqueeze(-1) * torch.exp(-self.decay.exp().unsqueeze(-1) * time.unsqueeze(1))
                  * torch.cos(phase)).sum(1)
        product = torch.fft.rfft(kernel, n=2 * length) * torch.fft.rfft(x, n=2 * length)
        return functional.gelu(torch.fft.irfft(product, n=2 * length)[..., :length] + x)


class FourierOperator(nn.Module):
    """Li, 2020: products of the low modes of a field in two dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.local, self.out = nn.Conv2d(1, 6, 1), nn.Conv2d(6, 6, 1), nn.Conv2d(6, 1, 1)
        self.weight = nn.Parameter(torch.randn(6, 6, 4, 4, dtype=torch.complex64) / 6)

    def forward(self, x: Any) -> Any:
        x = self.lift(x)
        found = torch.fft.rfft2(x)
        low = torch.einsum("bixy,ioxy->boxy", found[:, :, :4, :4], self.weight.to(found.dtype))
        found = functional.pad(low, (0, found.shape[-1] - 4, 0, found.shape[-2] - 4))
        return self.out(functional.gelu(torch.fft.irfft2(found, s=x.shape[-2:]) + self.local(x)))


class SelectiveScan(nn.Module):
    """A gated linear recurrence in its parallel form, by cumulative sums of logarithms."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value, self.out = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        decay = functional.logsigmoid(self.gate(x)).cumsum(1)
        difference = decay.unsqueeze(2) - decay.unsqueeze(1)
        length = x.shape[1]
        seen = torch.ones(length, length, dtype=torch.bool).tril().unsqueeze(-1)
        weight = torch.exp(difference.masked_fill(~seen, float("-inf")))
        return self.out(torch.einsum("bijd,bjd->bid", weight, self.value(x)))


class NeuralEquation(nn.Module):
    """Chen, 2018: a differential equation by four steps of Runge and Kutta."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x: Any) -> Any:
        step = 0.25
        for _ in range(4):
            a = self.field(x)
            b = self.field(x + step / 2 * a)
            c = self.field(x + step / 2 * b)
            x = x + step / 6 * (a + 2 * b + 2 * c + self.field(x + step * c))
        return x


class RadianceField(nn.Module):
    """Mildenhall, 2020: colours along rays, weighted by transmittance."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, origin: Any, direction: Any) -> Any:
        depth = torch.linspace(0.1, 2.0, 8, dtype=origin.dtype)
        points = origin.unsqueeze(1) + direction.unsqueeze(1) * depth.unsqueeze(-1)
        scaled = points.unsqueeze(-1) * (2.0 ** torch.arange(4, dtype=origin.dtype)) * math.pi
        found = self.body(torch.cat([scaled.sin(), scaled.cos()], -1).flatten(-2))
        opacity = 1 - torch.exp(-functional.softplus(found[..., 3]) * 0.25)
        through = torch.cumprod(torch.cat([torch.ones_like(opacity[:, :1]), 1 - opacity], 1), 1)[:, :-1]
        return ((opacity * through).unsqueeze(-1) * torch.sigmoid(found[..., :3])).sum(1)


class Diffusion(nn.Module):
    """DDPM's block, Ho, 2020: an image and a time step, group normalisation, attention over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
        self.start, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16)
        self.again = nn.Conv2d(16, 16, 3, padding=1)
        self.attend, self.out = nn.MultiheadAttention(16, 2, batch_first=True), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: Any, step: Any) -> Any:
        frequency = torch.exp(torch.arange(8, dtype=x.dtype) * (-math.log(10000) / 8))
        angle = step.to(x.dtype).unsqueeze(-1) * frequency
        time = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        x = self.start(x)
        x = x + self.again(functional.silu(self.norm(x) + time[:, :, None, None]))
        places = x.flatten(2).transpose(1, 2)
        x = x + self.attend(places, places, places, need_weights=False)[0].transpose(1, 2).unflatten(-1, x.shape[2:])
        return self.out(functional.interpolate(x, scale_factor=2, mode="nearest"))


class DiffusionTransformer(nn.Module):
    """DiT, Peebles, 2022: patches, and normalisations that a condition shifts and scales."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.condition = nn.Conv2d(3, 32, 4, 4), nn.Linear(32, 192)
        self.label, self.norm = nn.Embedding(10, 32), nn.LayerNorm(32, elementwise_affine=False)
        self.qkv, self.feed, self.out = nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 48)

    def forward(self, x: Any, label: Any) -> Any:
        batch, _, height, width = x.shape
        x = self.patch(x).flatten(2).transpose(1, 2)
        parts = self.condition(functional.silu(self.label(label))).unsqueeze(1).chunk(6, -1)
        qkv = self.qkv(self.norm(x) * (1 + parts[0]) + parts[1]).view(batch, -1, 3, 4, 8).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = x + parts[2] * attended.transpose(1, 2).reshape(x.shape)
        x = x + parts[5] * functional.gelu(self.feed(self.norm(x) * (1 + parts[3]) + parts[4]), approximate="tanh")
        x = self.out(x).view(batch, height // 4, width // 4, 4, 4, 3)
        return torch.einsum("bhwpqc->bchpwq", x).reshape(batch, 3, height, width)


class GroupedDecoder(nn.Module):
    """A causal decoder with two heads of keys for four of queries, and a mask by each sequence's length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(99, 32)
        self.query, self.keys, self.out = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 99)

    def forward(self, tokens: Any, lengths: Any) -> Any:
        x = self.embed(tokens)
        length = tokens.shape[1]
        query = self.query(x).unflatten(-1, (4, 8)).transpose(1, 2)
        key, value = self.keys(x).unflatten(-1, (2, 2, 8)).permute(2, 0, 3, 1, 4).unbind(0)
        place = torch.arange(length)
        mask = (place <= place.unsqueeze(-1)) & (place < lengths[:, None, None, None])
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
        return self.out(x + found.transpose(1, 2).flatten(2))


class Branches(nn.Module):
    """torch.cond: one of two bodies, selected by the sum of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 4), nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, self.first, self.second, (x,))


class Capsules(nn.Module):
    """Sabour, 2017: three rounds of routing by agreement."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.weight = nn.Conv2d(1, 16, 5, 3), nn.Parameter(torch.randn(1, 50, 3, 6, 8) / 10)

    @staticmethod
    def _squash(x: Any) -> Any:
        norm = (x**2).sum(-1, keepdim=True)
        return norm / (1 + norm) * x / (norm + 1e-8).sqrt()

    def forward(self, x: Any) -> Any:
        x = self._squash(self.start(x).reshape(x.shape[0], 8, -1).transpose(1, 2))
        votes = (self.weight @ x[:, :, None, :, None]).squeeze(-1)
        logits = torch.zeros_like(votes[..., 0])
        found = votes
        for _ in range(3):
            found = self._squash((torch.softmax(logits, -1).unsqueeze(-1) * votes).sum(1))
            logits = logits + (votes * found.unsqueeze(1)).sum(-1)
        return torch.linalg.vector_norm(found, dim=-1)


class PointNet(nn.Module):
    """Qi, 2017: shared layers, a learned transform, the maximum over points; then the nearest neighbours of each."""

    def __init__(self) -> None:
        super().__init__()
        self.transform = nn.Sequential(
            nn.Conv1d(3, 16, 1), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(16, 9)
        )
        self.body, self.out = nn.Sequential(nn.Conv1d(6, 16, 1), nn.BatchNorm1d(16), nn.ReLU()), nn.Linear(16, 4)

    def forward(self, points: Any) -> Any:
        matrix = self.transform(points).view(-1, 3, 3) + torch.eye(3, dtype=points.dtype)
        moved = torch.bmm(points.transpose(1, 2), matrix)
        near = torch.cdist(moved, moved).topk(4, dim=-1, largest=False).indices
        gathered = moved.unsqueeze(1).expand(-1, moved.shape[1], -1, -1).gather(
            2, near.unsqueeze(-1).expand(-1, -1, -1, 3)).mean(2)
        return self.out(self.body(torch.cat([moved, gathered], -1).transpose(1, 2)).amax(-1))


class TextConvolution(nn.Module):
    """Kim, 2014: several widths of convolutions over words, and their maxima."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(99, 16, padding_idx=0), nn.Linear(24, 3)
        self.widths = nn.ModuleList([nn.Conv1d(16, 8, width) for width in (2, 3, 4)])

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens).transpose(1, 2)
        return functional.log_softmax(self.out(torch.cat([torch.relu(c(x)).amax(-1) for c in self.widths], -1)), -1)


class Flow(nn.Module):
    """RealNVP, Dinh, 2016: couplings of halves, the logarithm of their determinant."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 6)) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        total = torch.zeros_like(x[:, 0])
        for part in self.parts:
            kept, changed = x.chunk(2, -1)
            scale, shift = part(kept).chunk(2, -1)
            scale = torch.tanh(scale)
            total, x = total + scale.sum(-1), torch.cat([changed * scale.exp() + shift, kept], -1).flip(-1)
        return x, total - 0.5 * (x**2 + math.log(2 * math.pi)).sum(-1)


class SpatialTransformer(nn.Module):
    """Jaderberg, 2015: an image sampled at positions given by an affine map computed from it."""

    def __init__(self) -> None:
        super().__init__()
        self.locate = nn.Sequential(
            nn.Conv2d(1, 4, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 6)
        )

    def forward(self, x: Any) -> Any:
        grid = functional.affine_grid(self.locate(x).view(-1, 2, 3), list(x.shape), align_corners=False)
        return functional.grid_sample(x, grid, align_corners=False)


def super_resolution() -> nn.Module:
    """ESPCN, Shi, 2016."""
    return nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.Tanh(), nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2))


class KolmogorovArnold(nn.Module):
    """KAN, Liu, 2024: splines of each input by de Boor's recursion."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("knots", torch.linspace(-2, 2, 12))
        self.weight, self.base = nn.Parameter(torch.randn(4, 8, 6) / 4), nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        knots, at = self.knots.to(x.dtype), x.unsqueeze(-1)
        found = ((at >= knots[:-1]) & (at < knots[1:])).to(x.dtype)
        for k in range(1, 4):
            left = (at - knots[: -(k + 1)]) / (knots[k:-1] - knots[: -(k + 1)]) * found[..., :-1]
            found = left + (knots[k + 1 :] - at) / (knots[k + 1 :] - knots[1:-k]) * found[..., 1:]
        return self.base(functional.silu(x)) + torch.einsum("bik,oki->bo", found, self.weight)


class RandomField(nn.Module):
    """A conditional random field over tags: the best path's score and its tags, by the Viterbi algorithm."""

    def __init__(self) -> None:
        super().__init__()
        self.emit, self.move = nn.Linear(8, 5), nn.Parameter(torch.randn(5, 5))

    def forward(self, x: Any) -> Any:
        emitted = self.emit(x)
        score = best = emitted[:, 0]
        back = []
        for place in range(1, x.shape[1]):
            score = torch.logsumexp(score.unsqueeze(-1) + self.move, 1) + emitted[:, place]
            most, come = (best.unsqueeze(-1) + self.move).max(1)
            best = most + emitted[:, place]
            back.append(come)
        tags = [best.argmax(-1, keepdim=True)]
        for come in reversed(back):
            tags.append(come.gather(-1, tags[-1]))
        return torch.logsumexp(score, -1), torch.cat(tags[::-1], -1)


class MaskedEncoder(nn.Module):
    """torch.nn's encoder with padding masked, and the mean over the rest."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
        self.embed, self.body = nn.Embedding(99, 32), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: Any) -> Any:
        hidden = tokens == 0
        found = self.body(self.embed(tokens), src_key_padding_mask=hidden)
        kept = (~hidden).unsqueeze(-1).to(found.dtype)
        return (found * kept).sum(1) / kept.sum(1)


class Windows(nn.Module):
    """Overlapping windows by strides, unfolded and folded again, at any length of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        rows = x.unfold(-1, 8, 4)
        found = self.inner(rows)
        folded = functional.fold(found.transpose(1, 2), (1, x.shape[-1]), (1, 8), stride=(1, 4))
        return folded.view(x.shape[0], -1), torch.as_strided(x, (x.shape[0], 3), (x.shape[1], 2), 1)


def _padded(count: int, length: int) -> torch.Tensor:
    tokens = token_ids(count, length)
    tokens[1:, length - 3 :] = 0
    return tokens


def _edges() -> torch.Tensor:
    return torch.stack([torch.randint(0, 10, (24,)), torch.randint(0, 10, (24,))])


def _duelling() -> tuple[nn.Module, list[Any]]:
    module, frames = Duelling(), torch.rand(2, 4, 36, 36) * 255
    module(frames)
    return module, [frames]


_BATCH, _LENGTH = Dim("batch", max=64), Dim("length", min=4, max=64)

ARCHITECTURES = (
    Architecture("unet", lambda: (UNet(), [image(32)])),
    Architecture("variational-autoencoder", lambda: (VariationalAutoencoder(), [torch.rand(3, 64), torch.randn(3, 8)])),
    Architecture("vector-quantised-autoencoder", lambda: (VectorQuantised(), [image(16)])),
    Architecture("gan-generator", lambda: (generator(), [torch.randn(3, 16, 1, 1)])),
    Architecture("gan-discriminator", lambda: (discriminator(), [image(16)])),
    Architecture("lstm-bidirectional", lambda: recurrent(nn.LSTM(12, 8, 2, batch_first=True, bidirectional=True))),
    Architecture("lstm-projected", lambda: recurrent(nn.LSTM(12, 8, 2, proj_size=5))),
    Architecture("gru-bidirectional", lambda: recurrent(nn.GRU(12, 8, 2, batch_first=True, bidirectional=True))),
    Architecture("rnn-relu", lambda: recurrent(nn.RNN(12, 8, 2, nonlinearity="relu", batch_first=True))),
    Architecture("lstm-through-compile", lambda: recurrent(nn.LSTM(12, 8, 2, bidirectional=True)),
                 through_compile=True),
    Architecture("gru-through-compile", lambda: recurrent(nn.GRU(12, 8, batch_first=True)), through_compile=True),
    Architecture("sequence-to-sequence", lambda: (Cells(), [token_ids(2, 6), token_ids(2, 4)])),
    Architecture("graph-convolution", lambda: (GraphConvolution(), [torch.randn(10, 8), _edges()])),
    Architecture("graph-attention", lambda: (GraphAttention(), [torch.randn(10, 8), _edges()])),
    Architecture("graph-sage", lambda: (GraphSage(), [torch.randn(10, 8), _edges(), torch.arange(10) // 5])),
    Architecture("recommender-dlrm", lambda: (
        Recommender(), [torch.randn(4, 5), torch.randint(0, 50, (4, 3)), torch.randint(0, 20, (4, 2))])),
    Architecture("recommender-deepfm", lambda: (Factorised(), [torch.randint(0, 25, (4, 4))])),
    Architecture("mixture-of-experts", lambda: (Experts(), [torch.randn(2, 6, 16)])),
    Architecture("spectrogram-classifier", lambda: (Spectrogram(), [torch.randn(2, 160)])),
    Architecture("spectral-denoiser", lambda: (Denoiser(), [torch.randn(2, 160)])),
    Architecture("wavenet", lambda: (WaveNet(), [torch.randn(2, 1, 40)])),
    Architecture("duelling-q-network", _duelling),
    Architecture("actor-critic", lambda: (ActorCritic(), [torch.randn(5, 6), torch.randn(5, 2)])),
    Architecture("state-space-s4d", lambda: (StateSpace(), [torch.randn(2, 8, 20)])),
    Architecture("fourier-operator", lambda: (FourierOperator(), [torch.randn(2, 1, 12, 12)])),
    Architecture("selective-scan", lambda: (SelectiveScan(), [torch.randn(2, 9, 16)])),
    Architecture("neural-differential-equation", lambda: (NeuralEquation(), [torch.randn(5, 4)])),
    Architecture("radiance-field", lambda: (RadianceField(), [torch.randn(6, 3), torch.randn(6, 3)])),
    Architecture("diffusion-unet", lambda: (Diffusion(), [image(8), torch.tensor([3, 500])])),
    Architecture("diffusion-transformer", lambda: (DiffusionTransformer(), [image(16), torch.tensor([1, 7])])),
    Architecture("grouped-query-decoder", lambda: (GroupedDecoder(), [token_ids(2, 9), torch.tensor([9, 5])]),
                 ({0: _BATCH, 1: _LENGTH}, {0: _BATCH}), lambda: [token_ids(3, 14), torch.tensor([14, 5, 1])]),
    Architecture("branches", lambda: (Branches(), [torch.randn(3, 8)]), None, lambda: [-torch.rand(3, 8)]),
    Architecture("capsules", lambda: (Capsules(), [torch.randn(2, 1, 17, 17)])),
    Architecture("point-net", lambda: (PointNet(), [torch.randn(2, 3, 16)])),
    Architecture("text-convolution", lambda: (TextConvolution(), [token_ids(3, 11)])),
    Architecture("normalising-flow", lambda: (Flow(), [torch.randn(4, 6)])),
    Architecture("spatial-transformer", lambda: (SpatialTransformer(), [torch.randn(2, 1, 16, 16)])),
    Architecture("super-resolution", lambda: (super_resolution(), [image(12)]),
                 ({0: _BATCH, 2: Dim("height", max=64), 3: Dim("width", max=64)},), lambda: [image(9, 3)]),
    Architecture("kolmogorov-arnold", lambda: (KolmogorovArnold(), [torch.randn(5, 6)])),
    Architecture("conditional-random-field", lambda: (RandomField(), [torch.randn(3, 6, 8)])),
    Architecture("masked-encoder", lambda: (MaskedEncoder(), [_padded(3, 10)]),
                 ({0: _BATCH, 1: _LENGTH},), lambda: [_padded(2, 15)]),
    Architecture("encoder-decoder", lambda: (
        nn.Transformer(32, 4, 1, 1, 64, batch_first=True), [torch.randn(2, 7, 32), torch.randn(2, 5, 32)])),
    Architecture("strided-windows", lambda: (Windows(), [torch.randn(2, 28)]), ({0: _BATCH},),
                 lambda: [torch.randn(5, 28)]),
)  # fmt: skip
