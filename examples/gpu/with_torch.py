"""Calls the fragment with PyTorch's tensors on a GPU, without copies or waits, on PyTorch's stream.

    python with_torch.py fragment.motet              on a machine with a GPU and PyTorch
    python with_torch.py fragment.motet --dry-run    anywhere: shows the device that would run it
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import motet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    if arguments.dry_run:
        for device in motet.devices():
            if device.family == "cuda":
                print(f"{device.uri}: {device.name if device.available else device.reason}")
        return
    import torch

    session = motet.load(arguments.artifact, devices="cuda:0")
    lhs, weights = torch.randn(64, 128, device="cuda"), torch.randn(128, 128, device="cuda")
    result = torch.empty_like(lhs)
    session(lhs, weights, result)  # the fragment writes its last argument
    expected = lhs.double() @ weights.double() + lhs.double()
    print("largest difference:", (result.double() - expected).abs().max().item())

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    session(lhs, weights, result, stream=side)
    torch.cuda.current_stream().wait_stream(side)

    for name, call in (("motet", lambda: session(lhs, weights, result)), ("torch", lambda: lhs @ weights + lhs)):
        for _ in range(100):
            call()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(10_000):
            call()
        seconds = time.perf_counter() - begin
        torch.cuda.synchronize()
        print(f"{name}: {seconds / 10_000 * 1e6:.2f} us a call for the host")


if __name__ == "__main__":
    main()
