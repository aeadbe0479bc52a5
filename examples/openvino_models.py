"""Small models in OpenVINO's IR, with random weights: `python examples/openvino_models.py mlp mlp.xml`.

`mlp` has two products over any number of rows of 1024 features. `average` keeps a running mean of rows in states,
which a session keeps between calls.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import openvino  # pyright: ignore[reportMissingImports]
from openvino import opset13 as ops  # pyright: ignore[reportMissingImports]


def mlp(features: int = 1024, hidden: int = 2048) -> Any:
    random = np.random.default_rng(0)

    def layer(x: Any, inputs: int, outputs: int) -> Any:
        weights = (random.standard_normal((outputs, inputs)) * (2.0 / inputs) ** 0.5).astype(np.float32)
        bias = (random.standard_normal((1, outputs)) * 0.1).astype(np.float32)
        return ops.add(ops.matmul(x, ops.constant(weights), False, True), ops.constant(bias))

    x = ops.parameter([-1, features], np.float32, name="x")
    y = layer(ops.gelu(layer(x, features, hidden), "erf"), hidden, features)
    y.output(0).set_names({"y"})
    return openvino.Model([y], [x], "mlp")


def average(features: int = 4) -> Any:
    x = ops.parameter([1, features], np.float32, name="x")
    kind, zeros = openvino.Type.f32, np.zeros((1, features), np.float32)
    total = ops.add(ops.read_value(ops.constant(zeros), "total", kind, openvino.PartialShape([1, features])), x)
    one = ops.constant(np.ones((1, 1), np.float32))
    none = ops.constant(np.zeros((1, 1), np.float32))
    count = ops.add(ops.read_value(none, "count", kind, openvino.PartialShape([1, 1])), one)
    mean = ops.divide(total, count)
    mean.output(0).set_names({"mean"})
    sinks = [ops.assign(total, "total"), ops.assign(count, "count")]
    results = [ops.result(mean)]
    return openvino.Model(results, sinks, [x], "average")


MODELS = {"mlp": mlp, "average": average}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("file", type=Path, help="the .xml; the weights are written to the .bin next to it")
    given = parser.parse_args()
    openvino.save_model(MODELS[given.model](), given.file, compress_to_fp16=False)


if __name__ == "__main__":
    main()
