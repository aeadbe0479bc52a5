"""Models with dynamic extents in OpenVINO's pipeline, with Motet and without: the ratio of latencies for each extent.

    python -m benchmarks.openvino_dynamic [--hint f32] [--seconds 2]

Calls of both alternate, and their minima are compared; a ratio below 1 means that Motet is faster. `alternating` calls
each model with all extents in turn, so that no call has the extents of the one before. Results are compared, too.
"""

# openvino need not be installed, and has no types for its bindings.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as ops

import motet.openvino

WIDTH, HEADS = 256, 4
EQUAL = {"f32": 1e-4, "bf16": 5e-2}  # of the largest element


def _weights(*shape: int) -> Any:
    numbers = np.random.default_rng(sum(shape)).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return ops.constant(numbers.astype(np.float32))


def perceptron() -> tuple[Any, list[list[int]]]:
    """Three layers over any number of rows."""
    x = ops.parameter([-1, WIDTH], np.float32)
    value = ops.relu(ops.matmul(x, _weights(1024, WIDTH), False, True))
    value = ops.relu(ops.matmul(value, _weights(1024, 1024), False, True))
    return ov.Model([ops.matmul(value, _weights(64, 1024), False, True)], [x]), [[1, WIDTH], [7, WIDTH], [64, WIDTH]]


def network() -> tuple[Any, list[list[int]]]:
    """Convolutions over any number of images of any extents."""
    x = ops.parameter([-1, 3, -1, -1], np.float32)
    value: Any = x
    for before, after, stride in ((3, 32, 2), (32, 64, 1), (64, 64, 1)):
        value = ops.convolution(value, _weights(after, before, 3, 3), [stride] * 2, [1, 1], [1, 1], [1, 1])
        value = ops.relu(ops.add(value, _weights(1, after, 1, 1)))
    mean = ops.reduce_mean(value, ops.constant(np.array([2, 3])), False)
    return ov.Model([mean], [x]), [[1, 3, 64, 64], [4, 3, 64, 64], [1, 3, 97, 131]]


def encoder() -> tuple[Any, list[list[int]]]:
    """A layer of a transformer over any number of sequences of any length."""
    x = ops.parameter([-1, -1, WIDTH], np.float32)
    heads = [
        ops.transpose(ops.reshape(ops.matmul(x, _weights(WIDTH, WIDTH), False, True),
                                  ops.constant(np.array([0, 0, HEADS, WIDTH // HEADS])), True),
                      ops.constant(np.array([0, 2, 1, 3]))) for _ in range(3)
    ]  # fmt: skip
    scores = ops.multiply(ops.matmul(heads[0], heads[1], False, True), ops.constant(np.float32(0.125)))
    mixed = ops.matmul(ops.softmax(scores, 3), heads[2], False, False)
    mixed = ops.transpose(mixed, ops.constant(np.array([0, 2, 1, 3])))
    value = ops.add(x, ops.reshape(mixed, ops.constant(np.array([0, 0, WIDTH])), True))
    value = ops.mvn(value, ops.constant(np.array([2])), True, 1e-5, "inside_sqrt")
    hidden = ops.gelu(ops.matmul(value, _weights(1024, WIDTH), False, True), "erf")
    value = ops.add(value, ops.matmul(hidden, _weights(WIDTH, 1024), False, True))
    return ov.Model([value], [x]), [[1, 16, WIDTH], [4, 50, WIDTH], [1, 128, WIDTH]]


MODELS = {"perceptron": perceptron, "convolutions": network, "encoder layer": encoder}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hint", choices=sorted(EQUAL), default="f32")
    parser.add_argument("--seconds", type=float, default=2, help="for each extent")
    options = parser.parse_args()
    print("| model | extents | Motet ms | OpenVINO ms | ratio | difference |\n|---|---|---|---|---|---|")
    for name, build in MODELS.items():
        model, extents = build()
        both = [motet.openvino.compile_model(model, "CPU", options.hint),
                ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": options.hint})]
        requests = [each.create_infer_request() for each in both]
        given = [np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in extents]
        for shape, array in zip(extents, given, strict=True):
            _print_row(name, "x".join(map(str, shape)), requests, [array], options)
        _print_row(name, "alternating", requests, given, options)


def _print_row(name: str, what: str, requests: Sequence[Any], given: Sequence[Any], options: Any) -> None:
    found = [[np.array(request.infer([array])[0]) for array in given] for request in requests]
    error = max(float(np.abs(ours - theirs).max() / np.abs(theirs).max()) for ours, theirs in zip(*found, strict=True))
    if error > EQUAL[options.hint]:
        raise SystemExit(f"{name}, {what}: the results differ by {error:.1e} of the largest element")
    ours, theirs = _fastest(requests, given, options.seconds)
    print(f"| {name} | {what} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} | {error:.0e} |", flush=True)


def _fastest(requests: Sequence[Any], given: Sequence[Any], seconds: float) -> list[float]:
    """Milliseconds of the fastest round of calls of each request, one call for each array."""
    best = [float("inf")] * len(requests)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number, request in enumerate(requests):
            start = time.perf_counter()
            for array in given:
                request.infer([array])
            best[number] = min(best[number], 1000 * (time.perf_counter() - start))
    return best


if __name__ == "__main__":
    main()
