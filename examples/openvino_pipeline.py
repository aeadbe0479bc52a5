"""Networks inside OpenVINO's pipeline, with Motet and without: equal results, and the ratio of latencies.

    python examples/openvino_pipeline.py [NETWORK…] [--hint f32 --hint bf16] [--seconds 10]

ResNet-50 and BERT, with random weights, are compiled twice for OpenVINO's device CPU: by OpenVINO alone, and by
`motet.openvino.compile_model`, which replaces the parts that Motet compiles. The listing shows what stays with
OpenVINO. Results are compared with OpenVINO's in f32, relative to the largest element. Calls of both alternate; a ratio
below 1 means that Motet is faster. Needs `pip install 'motet[openvino]'`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

import motet.openvino

sys.path.insert(0, str(Path(__file__).parent))
from models import MODELS

NETWORKS = ("resnet50", "bert")
TOLERANCES = {"f32": 1e-4, "bf16": 5e-2}  # of the largest element; bf16 has eight bits
CPU, PRECISION = "CPU", "INFERENCE_PRECISION_HINT"


@dataclass(frozen=True)
class Row:
    """One network with one hint: errors relative to the largest element; milliseconds of the fastest and the median
    call."""

    name: str
    hint: str
    error: float
    plain_error: float
    times: tuple[float, float]
    plain_times: tuple[float, float]

    @property
    def is_equal(self) -> bool:
        return self.error <= max(TOLERANCES[self.hint], 2 * self.plain_error)

    def __str__(self) -> str:
        fastest, median = (ours / theirs for ours, theirs in zip(self.times, self.plain_times, strict=True))
        verdict = "equal" if self.is_equal else "DIFFERENT"
        return (f"{self.name:10} {self.hint:5} {self.error:9.1e} {self.plain_error:9.1e}  {self.times[0]:9.2f} "
                f"{self.plain_times[0]:9.2f}  {fastest:8.2f} {median:8.2f}  {verdict}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"of examples/models.py; {NETWORKS}")
    parser.add_argument("--hint", action="append", choices=sorted(TOLERANCES), help="precision; by default both")
    parser.add_argument("--seconds", type=float, default=10, help="of measuring, for each network and hint")
    arguments = parser.parse_args()
    unknown = sorted({*arguments.networks} - {*MODELS})
    if unknown:
        parser.error(f"network {unknown[0]!r}: unknown; expected some of {', '.join(sorted(MODELS))}")
    core = ov.Core()
    hints = arguments.hint or list(TOLERANCES)
    rows = [compare(core, name, hint, arguments.seconds) for name in arguments.networks for hint in hints]
    print(f"\n{'network':10} {'hint':5} {'error':>9} {'OpenVINO':>9}  {'Motet ms':>9} {'OpenVINO':>9}  "
          f"{'fastest':>8} {'median':>8}")
    print(*rows, sep="\n")
    return 0 if all(row.is_equal for row in rows) else 1


def compare(core: Any, name: str, hint: str, seconds: float) -> Row:
    """Compiles a network both ways, prints what stays with OpenVINO, and measures."""
    model = core.read_model(MODELS[name]().SerializeToString())
    inputs = [random_input(value) for value in model.inputs]
    exact = core.compile_model(model, CPU, {PRECISION: "f32"})(inputs)
    compiled = [motet.openvino.compile_model(model, CPU, hint), core.compile_model(model, CPU, {PRECISION: hint})]
    print(f"{name}, {hint}:\n{compiled[0].report}", flush=True)
    requests = [each.create_infer_request() for each in compiled]
    errors = [error(request.infer(inputs), exact) for request in requests]
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[1]) < 5:
        for request, taken in zip(requests, times, strict=True):
            start = time.perf_counter()
            request.infer()
            taken.append(1000 * (time.perf_counter() - start))
    ours, plain = ((min(taken), statistics.median(taken)) for taken in times)
    return Row(name, hint, errors[0], errors[1], ours, plain)


def random_input(value: Any) -> np.ndarray:
    """Numbers from a normal distribution, or tokens."""
    random = np.random.default_rng(0)
    if value.get_element_type().is_integral():
        return random.integers(0, 100, list(value.get_shape()), dtype=value.get_element_type().to_dtype())
    return random.standard_normal(list(value.get_shape())).astype(value.get_element_type().to_dtype())


def error(results: Any, exact: Any) -> float:
    """The largest difference of an element, relative to the largest element of its tensor."""
    pairs = zip(results.values(), exact.values(), strict=True)
    return max(float(np.abs(result - wide).max() / np.abs(wide).max()) for result, wide in pairs)


if __name__ == "__main__":
    sys.exit(main())
