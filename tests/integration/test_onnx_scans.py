"""Scans of ONNX along other axes, and from the last slice to the first, against loops of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import motet

onnx: Any = pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")

F32 = np.float32


def _scan(axes: tuple[int, int], backwards: tuple[int, int], extents: list[Any]) -> bytes:
    """q = x - p for each slice of x along `axes[0]`, stacked along `axes[1]`, in the directions `backwards`."""
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [h.make_node("Sub", ["slice", "p"], ["q"]), h.make_node("Identity", ["q"], ["each"])]
    states = [h.make_tensor_value_info(name, kind, [2, 4]) for name in ("p", "slice", "q", "each")]
    body = h.make_graph(nodes, "step", states[:2], states[2:])
    node = h.make_node("Scan", ["first", "x"], ["last", "all"], "scan", body=body, num_scan_inputs=1,
                       scan_input_axes=[axes[0]], scan_output_axes=[axes[1]], scan_input_directions=[backwards[0]],
                       scan_output_directions=[backwards[1]])
    graph = h.make_graph(
        [node], "scanned", [h.make_tensor_value_info("first", kind, [2, 4]),
                            h.make_tensor_value_info("x", kind, extents)],
        [h.make_tensor_value_info("last", kind, [2, 4]), h.make_tensor_value_info("all", kind, None)])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10).SerializeToString()


@pytest.mark.parametrize("axes", [(0, 0), (1, -1), (-1, 1)])
@pytest.mark.parametrize("backwards", [(1, 0), (0, 1), (1, 1)])
def test_scan_in_any_direction(axes: tuple[int, int], backwards: tuple[int, int]) -> None:
    chance = np.random.default_rng(3)
    slices, value = chance.standard_normal((5, 2, 4)).astype(F32), chance.standard_normal((2, 4)).astype(F32)
    x = np.ascontiguousarray(np.moveaxis(slices, 0, axes[0]))
    session = motet.load(motet.compile(_scan(axes, backwards, list(x.shape)), cache=False))
    last, every = (np.asarray(each) for each in session(value, x))
    found: list[Any] = []
    for each in slices[:: -1 if backwards[0] else 1]:
        value = each - value
        found.append(value)
    np.testing.assert_allclose(last, value, rtol=1e-5, atol=1e-6)
    wanted = np.moveaxis(np.stack(found[:: -1 if backwards[1] else 1]), 0, axes[1])
    np.testing.assert_allclose(every, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axes", [(0, 0), (1, -1)])
@pytest.mark.parametrize("backwards", [(0, 0), (1, 1)])
def test_scan_over_a_number_of_slices_that_a_call_gives(axes: tuple[int, int], backwards: tuple[int, int]) -> None:
    extents: list[Any] = [2, 4]
    extents.insert(axes[0], "n")
    session = motet.load(motet.compile(_scan(axes, backwards, extents), cache=False))
    chance = np.random.default_rng(4)
    for count in (5, 1, 0, 33):
        slices, value = chance.standard_normal((count, 2, 4)).astype(F32), chance.standard_normal((2, 4)).astype(F32)
        last, every = (np.asarray(each) for each in session(value, np.moveaxis(slices, 0, axes[0]).copy()))
        found = np.zeros((count, 2, 4), F32)
        for step in range(count):
            found[step] = value = slices[count - 1 - step if backwards[0] else step] - value
        np.testing.assert_allclose(last, value, rtol=1e-4, atol=1e-5)
        wanted = np.moveaxis(found[:: -1 if backwards[1] else 1], 0, axes[1])
        np.testing.assert_allclose(every, wanted, rtol=1e-4, atol=1e-5)
