"""Runs an ONNX model through onnxruntime with Motet's execution provider, and compares results and times.

    python examples/onnxruntime_ep.py [MODEL.onnx] [--calls N]

The default model is ResNet-50. Three ways to run it: onnxruntime alone, onnxruntime with the provider, Motet alone.
The latter two are measured in turns; the last line has the ratio of the medians with the provider and of Motet alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from models import MODELS

import motet
import motet.onnxruntime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=Path("build/resnet50.onnx"))
    parser.add_argument("--calls", type=int, default=30)
    parsed = parser.parse_args()
    try:
        import onnxruntime
    except ImportError:
        print("error: onnxruntime is not installed: pip install 'onnxruntime>=1.23'", file=sys.stderr)
        return 1
    if not parsed.model.exists():
        parsed.model.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(MODELS[parsed.model.stem](), parsed.model)
    return compare(onnxruntime, parsed.model, parsed.calls)


def compare(onnxruntime: Any, model: Path, calls: int) -> int:
    """Runs a model in the three ways; 1 if the results differ."""
    devices = motet.onnxruntime.register_provider()
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(devices, {})
    provided = onnxruntime.InferenceSession(str(model), options)
    plain = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    alone = motet.load(motet.compile(model))
    generator = np.random.default_rng(0)
    feeds = {each.name: generator.standard_normal([extent if isinstance(extent, int) else 1 for extent in each.shape])
             .astype(np.float32) for each in plain.get_inputs()}
    ways: dict[str, Callable[[], Any]] = {
        "onnxruntime": lambda: plain.run(None, feeds),
        "onnxruntime with Motet's provider": lambda: provided.run(None, feeds),
        "Motet alone": lambda: alone(*feeds.values()),
    }
    expected, got = ways["onnxruntime"]()[0], ways["onnxruntime with Motet's provider"]()[0]
    error = float(np.abs(expected - got).max() / np.abs(expected).max())
    print(f"{model.name}: providers {', '.join(provided.get_providers())}; largest relative difference {error:.1e}")
    # onnxruntime's own threads spin after a call, so it is not measured in between.
    first, *others = ways
    times = measure({first: ways[first]}, calls) | measure({name: ways[name] for name in others}, calls)
    for name, seconds in times.items():
        print(f"{name:34} median {statistics.median(seconds) * 1e3:8.3f} ms, minimum {min(seconds) * 1e3:8.3f} ms")
    with_provider, without = (times[name] for name in list(ways)[1:])
    medians = statistics.median(with_provider) / statistics.median(without)
    print(f"provider / Motet alone: medians {medians:.3f}, minima {min(with_provider) / min(without):.3f}")
    return int(error > 1e-4)


def measure(ways: dict[str, Callable[[], Any]], calls: int) -> dict[str, list[float]]:
    """The seconds of `calls` calls of each, one of each after the other."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(calls + 3):
        for name, call in ways.items():
            begin = time.perf_counter()
            call()
            if repeat >= 3:
                times[name].append(time.perf_counter() - begin)
    return times


if __name__ == "__main__":
    sys.exit(main())
