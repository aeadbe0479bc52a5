"""A transformer whose heads and hidden units are spread over four ranks (tensor parallel), and the same on one.

    mpiexec -n 4 python examples/sharded_transformer.py
    python examples/sharded_transformer.py                     all devices are this process

Each device has the columns of the weights of its heads and hidden units, and a copy of the activations. After the
attention and after the hidden layer, the devices' products are summed over all of them: each sums its share of the rows
and sends that to the others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

import motet
from motet import builder as mb
from motet import ranks
from motet.artifact.reader import Artifact

DEVICES = ["d0", "d1", "d2", "d3"]
_EPSILON = 1e-5


class Weights:
    """The weights of one layer, in f32: `width` numbers a token, four times as many hidden units."""

    def __init__(self, width: int, random: np.random.Generator) -> None:
        def matrix(rows: int, columns: int) -> np.ndarray:
            return (random.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)

        self.q, self.k, self.v, self.out = (matrix(width, width) for _ in range(4))
        self.up, self.down = matrix(width, 4 * width), matrix(4 * width, width)
        self.scales = np.ones((2, width), np.float32)


def part(matrix: np.ndarray, number: int, axis: int) -> np.ndarray:
    """The share of a device of a matrix' rows (axis 0) or columns (axis 1)."""
    return np.ascontiguousarray(np.split(matrix, len(DEVICES), axis)[number])


def sharded(layers: Sequence[Weights], tokens: int, width: int, head: int) -> mb.Graph:
    """The graph over all devices."""
    with mb.Graph("main") as graph:
        x = graph.input("x", (tokens, width))
        copies = [x for _ in DEVICES]
        for layer in layers:
            copies = _residual(copies, lambda h, n, layer=layer: _attention(graph, h, layer, n, head), layer.scales[0])
            copies = _residual(copies, lambda h, n, layer=layer: _hidden(graph, h, layer, n), layer.scales[1])
        graph.result(copies[0], name="y")
    return graph


def _residual(
    copies: list[mb.Tensor], block: Callable[[mb.Tensor, int], mb.Tensor], scale: np.ndarray
) -> list[mb.Tensor]:
    """The copies plus a block of their normalisation, which each device computes in part."""
    graph = copies[0].graph
    normal = [
        mb.layernorm(x, graph.constant(scale), graph.constant(0 * scale), device=device)
        for x, device in zip(copies, DEVICES, strict=True)
    ]
    sums = all_reduce([block(h, number) for number, h in enumerate(normal)])
    return [mb.add(x, s, device=device) for x, s, device in zip(copies, sums, DEVICES, strict=True)]


def _attention(graph: mb.Graph, x: mb.Tensor, layer: Weights, number: int, head: int) -> mb.Tensor:
    """The part of the heads of one device."""
    device, tokens = DEVICES[number], x.shape[0]

    def heads(weights: np.ndarray) -> mb.Tensor:
        columns = mb.matmul(x, graph.constant(part(weights, number, 1)), device=device)
        apart = mb.reshape(columns, [tokens, -1, head], device=device)
        return mb.transpose(apart, [1, 0, 2], device=device)

    q, k, v = heads(layer.q), heads(layer.k), heads(layer.v)
    scores = mb.matmul(q, mb.transpose(k, [0, 2, 1], device=device), device=device)
    scores = mb.mul(scores, graph.constant(np.float32(head**-0.5)), device=device)
    mixed = mb.matmul(mb.softmax(scores, device=device), v, device=device)
    joined = mb.reshape(mb.transpose(mixed, [1, 0, 2], device=device), [tokens, -1], device=device)
    return mb.matmul(joined, graph.constant(part(layer.out, number, 0)), device=device)


def _hidden(graph: mb.Graph, x: mb.Tensor, layer: Weights, number: int) -> mb.Tensor:
    """The part of the hidden units of one device."""
    device = DEVICES[number]
    units = mb.relu(mb.matmul(x, graph.constant(part(layer.up, number, 1)), device=device), device=device)
    return mb.matmul(units, graph.constant(part(layer.down, number, 0)), device=device)


def all_reduce(parts: Sequence[mb.Tensor]) -> list[mb.Tensor]:
    """The sum of one tensor of each device, on each: each sums a share of the rows."""
    rows, width = parts[0].shape
    step = int(rows) // len(DEVICES)
    shares: list[mb.Tensor] = []
    for number, device in enumerate(DEVICES):
        own = [
            mb.slice(each, [number * step, 0], [(number + 1) * step, width], device=home)
            for each, home in zip(parts, DEVICES, strict=True)
        ]
        total = own[0]
        for each in own[1:]:
            total = mb.add(total, each, device=device)
        shares.append(total)
    return [mb.concat(shares, 0, device=device) for device in DEVICES]


def reference(layers: Sequence[Weights], x: np.ndarray, head: int) -> np.ndarray:
    """The same in numpy, in f64, on whole matrices."""
    x = x.astype(np.float64)

    def normal(x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + _EPSILON)

    for layer in layers:
        h = normal(x)
        q, k, v = ((h @ w).reshape(len(x), -1, head).swapaxes(0, 1) for w in (layer.q, layer.k, layer.v))
        scores = np.exp(q @ k.swapaxes(1, 2) * head**-0.5)
        mixed = scores / scores.sum(-1, keepdims=True) @ v
        x = x + mixed.swapaxes(0, 1).reshape(x.shape) @ layer.out
        x = x + np.maximum(normal(x) @ layer.up, 0) @ layer.down
    return x


def main() -> None:
    parser = argparse.ArgumentParser(description="A transformer over four ranks.")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=64)
    given = parser.parse_args()
    random = np.random.default_rng(0)
    layers, head = [Weights(given.width, random) for _ in range(given.layers)], 32
    x = random.standard_normal((given.tokens, given.width)).astype(np.float32)
    transport = ranks.transport_of_launcher() if ranks.launched() > 1 else ranks.InProcessWorld(1).transport(0)
    content = None
    if transport.rank == 0:
        graph = sharded(layers, given.tokens, given.width, head)
        content = bytes(motet.compile(graph, devices=dict.fromkeys(DEVICES, "host")).data)
    artifact = Artifact.from_bytes(transport.broadcast(content, 0, 600.0))
    places = {name: f"rank:{number % transport.size}/host" for number, name in enumerate(DEVICES)}
    with ranks.load(artifact, devices=places, transport=transport, threads=1, results="root") as session:
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            y = session(x)
            times.append(time.perf_counter() - begin)
        if transport.rank == 0:
            alone = motet.load(artifact, devices=dict.fromkeys(DEVICES, "host"), threads=1)(x)
            error = np.abs(y - reference(layers, x, head)).max()
            proof = session.proofs["main"]
            print(f"{transport.size} ranks: {proof.messages} messages a call, {min(times) * 1e3:.2f} ms")
            print(f"equal to one rank: {bool((y == alone).all())}; max abs error against numpy in f64: {error:.1e}")


if __name__ == "__main__":
    main()
