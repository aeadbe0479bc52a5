"""Products and convolutions in bf16 of a dynamic number of images, against numpy in double precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")
import onnx
from onnx import helper, numpy_helper

import motet
from motet.artifact.reader import Artifact

pytestmark = pytest.mark.usefixtures("all_levels")

OPTIONS = {"precision": "bf16"}


def compiled(op: str, shape: list[int | str], weight: np.ndarray, pads: Sequence[int] = ()) -> Artifact:
    """One operator with a constant weight, and a relu."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    node = helper.make_node(op, ["x", "w"], ["p"])
    if pads:
        node.attribute.append(helper.make_attribute("pads", list(pads)))
    nodes = [node, helper.make_node("Relu", ["p"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return motet.compile(model, devices="host{cpu=native}", options=OPTIONS)


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def convolved(x: np.ndarray, w: np.ndarray, pad: int) -> np.ndarray:
    p = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(p, w.shape[2:], (2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, w)


@pytest.mark.parametrize(("channels", "filters", "size", "taps"), [
    (32, 40, 14, 3), (64, 33, 7, 3), (17, 16, 5, 1), (48, 24, 1, 3), (512, 130, 7, 3), (33, 16, 29, 3),
])
def test_convolutions(channels: int, filters: int, size: int, taps: int) -> None:
    rng = np.random.default_rng(channels + size)
    w = rng.standard_normal((filters, channels, taps, taps), np.float32)
    pad = taps // 2
    session = motet.load(compiled("Conv", ["n", channels, size, size], w, pads=[pad] * 4))
    for images in (1, 2, 5, 17):
        x = rng.standard_normal((images, channels, size, size), np.float32)
        wanted = convolved(rounded(x), rounded(w), pad)
        bound = convolved(abs(rounded(x)), abs(rounded(w)), pad) * (w[0].size + 2) * 2.0**-24
        assert (abs(np.asarray(session(x)) - np.maximum(wanted, 0)) <= bound).all()


@pytest.mark.parametrize(("rows", "depth", "columns"), [(8, 96, 64), (1, 33, 17), (127, 64, 1)])
def test_products(rows: int, depth: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    w = rng.standard_normal((depth, columns), np.float32)
    session = motet.load(compiled("MatMul", ["n", rows, depth], w))
    for images in (1, 2, 7):
        x = rng.standard_normal((images, rows, depth), np.float32)
        wanted, bound = rounded(x) @ rounded(w), abs(rounded(x)) @ abs(rounded(w)) * (depth + 2) * 2.0**-24
        assert (abs(np.asarray(session(x)) - np.maximum(wanted, 0)) <= bound).all()


def test_a_constant_weight_is_not_repeated_for_each_image() -> None:
    w = np.ones((96, 64), np.float32)
    kinds = [
        Counter(kernel.kind for kernel in compiled("MatMul", [n, 8, 96], w).manifest.variants[0].kernels)
        for n in ("n", 2)
    ]
    assert kinds[0] == kinds[1]
