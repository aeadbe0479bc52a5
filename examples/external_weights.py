"""Compiles an ONNX model whose weights are in a file next to it: `python examples/external_weights.py`.

Writes build/external.onnx and its data file, by PyTorch's exporter if torch and onnxscript are installed, by onnx
otherwise; compiles the model by its path, and compares it with the same network in numpy, in float64. Run the model by

    motet run build/external.onnx --input 3x300xf32=random:1 --verify
"""

from __future__ import annotations

import importlib.util
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

import motet

MODEL = Path("build/external.onnx")
ROWS = 3
WIDTHS = (300, 512, 257, 10)
TOLERANCE = 1e-5  # relative to the largest result

Layers = list[tuple[np.ndarray, np.ndarray]]


def main() -> int:
    random = np.random.default_rng(0)
    layers: Layers = [
        (random.normal(0, (2 / m) ** 0.5, (m, n)).astype(np.float32), random.normal(0, 0.1, n).astype(np.float32))
        for m, n in pairwise(WIDTHS)
    ]
    MODEL.parent.mkdir(exist_ok=True)
    has_torch = all(importlib.util.find_spec(name) for name in ("torch", "onnxscript"))
    (write_by_torch if has_torch else write_by_onnx)(layers)
    data = MODEL.with_name(f"{MODEL.name}.data")
    print(f"{MODEL}: {MODEL.stat().st_size:,} bytes, weights in {data}: {data.stat().st_size:,} bytes, "
          f"written by {'torch' if has_torch else 'onnx'}")

    x = random.standard_normal((ROWS, WIDTHS[0])).astype(np.float32)
    expected = reference(layers, x)
    with motet.load(motet.compile(MODEL)) as session:
        error = float(np.abs(session(x) - expected).max())
    largest = float(np.abs(expected).max())
    print(f"motet.compile({str(MODEL)!r}): max abs error {error:.2g}, largest result {largest:.3g}")
    return 0 if error <= TOLERANCE * largest else 1


def reference(layers: Layers, x: np.ndarray) -> np.ndarray:
    """The network's results in float64."""
    value = x.astype(np.float64)
    for index, (weight, bias) in enumerate(layers):
        value = (np.maximum(value, 0) if index else value) @ weight.astype(np.float64) + bias
    return value


def write_by_torch(layers: Layers) -> None:
    import torch

    modules: list[torch.nn.Module] = []
    for weight, bias in layers:
        linear = torch.nn.Linear(*weight.shape)
        linear.load_state_dict({"weight": torch.from_numpy(weight.T.copy()), "bias": torch.from_numpy(bias)})
        modules += [linear, torch.nn.ReLU()]
    network = torch.nn.Sequential(*modules[:-1]).eval()
    torch.onnx.export(network, (torch.zeros(ROWS, WIDTHS[0]),), MODEL, external_data=True, verbose=False)


def write_by_onnx(layers: Layers) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[onnx.NodeProto] = []
    initializers: list[onnx.TensorProto] = []
    value = "x"
    for index, (weight, bias) in enumerate(layers):
        if index:
            nodes.append(helper.make_node("Relu", [value], [f"relu{index}"]))
            value = f"relu{index}"
        names = f"weight{index}", f"bias{index}"
        arrays = zip((weight, bias), names, strict=True)
        initializers += [numpy_helper.from_array(array, name) for array, name in arrays]
        result = "y" if index == len(layers) - 1 else f"linear{index}"
        nodes.append(helper.make_node("Gemm", [value, *names], [result]))
        value = result
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, WIDTHS[0]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, WIDTHS[-1]])
    graph = helper.make_graph(nodes, "external", [x], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    # onnx appends to an existing data file
    MODEL.with_name(f"{MODEL.name}.data").unlink(missing_ok=True)
    onnx.save_model(model, MODEL, save_as_external_data=True, location=f"{MODEL.name}.data")


if __name__ == "__main__":
    sys.exit(main())
