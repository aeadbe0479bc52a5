"""The host's cost of a call with tensors on a GPU, on a machine with a GPU and PyTorch.

    motet compile examples/fragment.mlir --device cuda -o fragment.motet      on any machine
    python -m benchmarks.gpu_calls fragment.motet --markdown                  on the GPU's

The least of several rounds of many calls, queued without waiting; a round is too short to fill the driver's queue.
Peers compute the same product and sum.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import motet

_CALLS, _ROUNDS = 500, 15


def measure(torch: Any, calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The seconds of each call, in rounds that include all calls."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(_ROUNDS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(_CALLS):
                call()
            least[name] = min(least[name], (time.perf_counter() - begin) / _CALLS)
    torch.cuda.synchronize()
    return least


def captured(torch: Any, work: Callable[[], Any]) -> Callable[[], Any]:
    """`work` as a CUDA graph of PyTorch."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=Path, help="examples/fragment.mlir, compiled for cuda")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    import torch

    with motet.load(arguments.artifact, devices={"": "cuda:0"}) as session:
        lhs, weights = torch.randn(64, 128, device="cuda"), torch.randn(128, 128, device="cuda")
        result, side = torch.empty_like(lhs), torch.cuda.Stream()
        many = cycle([torch.randn(64, 128, device="cuda") for _ in range(32)])
        session(lhs, weights, result)
        expected = lhs.double() @ weights.double() + lhs.double()
        assert (result.double() - expected).abs().max().item() < 1e-3
        times = measure(torch, {
            "motet": lambda: session(lhs, weights, result),
            "motet, on another stream": lambda: session(lhs, weights, result, stream=side),
            "motet, 32 inputs in turn": lambda: session(next(many), weights, result),
            "torch eager": lambda: torch.addmm(lhs, lhs, weights),
            "torch, a CUDA graph": captured(torch, lambda: torch.addmm(lhs, lhs, weights)),
            "motet in a CUDA graph of torch's": captured(torch, lambda: session(lhs, weights, result)),
        })
    line = "| {} | {:.2f} |" if arguments.markdown else "{:36} {:8.2f} us"
    if arguments.markdown:
        print("| 64×128·128×128 + lhs, f32, per call | host, µs |\n|---|---|")
    for name, seconds in times.items():
        print(line.format(name, seconds * 1e6))


if __name__ == "__main__":
    main()
