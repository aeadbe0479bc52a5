"""GatherBlockQuantized against numpy: rows of a table of 4 or 8 bits, dequantised after they are gathered."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import motet

ROWS = 8000
KINDS = {"uint8": TensorProto.UINT8, "int4": TensorProto.INT4, "uint4": TensorProto.UINT4}


def _stored(name: str, numbers: np.ndarray, kind: str, bits: int) -> onnx.TensorProto:
    if kind != "uint8":
        return helper.make_tensor(name, KINDS[kind], numbers.shape, numbers.flatten().tolist())
    if bits == 8:
        return numpy_helper.from_array(numbers.astype(np.uint8), name)
    even = np.pad(numbers, [(0, 0), (0, numbers.shape[1] % 2)]).astype(np.uint8)
    return numpy_helper.from_array(even[:, ::2] | even[:, 1::2] << np.uint8(4), name)


def _model(kind: str, bits: int, columns: int, zeros: bool, axis: int = 0) -> tuple[bytes, np.ndarray]:
    """The model, and its table in double precision."""
    random = np.random.default_rng(columns)
    low, high = (-8, 8) if kind == "int4" else (0, 1 << bits)
    blocks = -(-columns // 16)
    numbers, points = (random.integers(low, high, (ROWS, count)) for count in (columns, blocks))
    scales = (random.random((ROWS, blocks)) + 0.5).astype(np.float32)
    constants = [_stored("t", numbers, kind, bits), numpy_helper.from_array(scales, "s")]
    if zeros:
        constants.append(_stored("z", points, kind, bits))
    else:
        points = np.full_like(points, 1 << (bits - 1) if kind == "uint8" else 0)
    node = helper.make_node(
        "GatherBlockQuantized", ["t", "i", "s", *(["z"] if zeros else [])], ["y"], domain="com.microsoft", bits=bits,
        block_size=16, gather_axis=axis, quantize_axis=1)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("i", TensorProto.INT64, [2, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, "n", columns])], constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    of = np.arange(columns) // 16
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return model.SerializeToString(), (numbers - points[:, of]) * scales.astype(np.float64)[:, of]


@pytest.mark.parametrize(("kind", "bits", "columns", "zeros"), [
    ("uint8", 4, 64, True), ("uint8", 8, 40, False), ("int4", 4, 50, True), ("uint4", 4, 48, False)])
def test_rows_are_dequantised_after_they_are_gathered(kind: str, bits: int, columns: int, zeros: bool) -> None:
    model, table = _model(kind, bits, columns, zeros)
    artifact = motet.compile(model, devices="host{cpu=x86-64-v3}")
    places = np.array([[0, 3, -1], [ROWS - 1, 7, 7]])
    np.testing.assert_allclose(np.asarray(motet.load(artifact)(places)), table[places], rtol=1e-6)
    assert len(artifact.data) < table.size * 4 / 2  # of the table as floats


def test_another_axis_is_refused() -> None:
    with pytest.raises(motet.CompileError, match=r"GatherBlockQuantized.*gather_axis 0 and quantize_axis 1"):
        motet.compile(_model("int4", 4, 48, False, axis=1)[0], devices="host")
