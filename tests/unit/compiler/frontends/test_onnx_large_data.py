"""Large constants of ONNX models are read where they lie, whatever the protobuf around them looks like."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.reading import MAP_BYTES, read_model
from motet.errors import CompileError

onnx = pytest.importorskip("onnx")


def model(arrays: dict[str, np.ndarray], raw: bool = True) -> bytes:
    """A model with these initializers; without `raw`, their values are the protobuf's own."""
    tensors = []
    for name, array in arrays.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        data = array.tobytes() if raw else array.reshape(-1).tolist()
        tensors.append(onnx.helper.make_tensor(name, kind, array.shape, data, raw=raw))
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Abs", ["x"], ["y"])], "graph", [x], [y], tensors)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]).SerializeToString()


def mapped(data: bytes, folder: Path) -> mmap.mmap:
    path = folder / "model.onnx"
    path.write_bytes(data)
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def arrays() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    large = MAP_BYTES // 4
    return {
        "just large": random.normal(size=large).astype(np.float32),
        "small": random.normal(size=(3, 5)).astype(np.float32),
        "just small": random.normal(size=large - 1).astype(np.float32),
        "larger": random.integers(-9, 9, (7, 11, 4001)).astype(np.int64),
        "nothing": np.zeros((0, 4), np.float32),
        "halves": random.normal(size=(513, 129)).astype(np.float16),
        "one": np.array(3.5, np.float32),
    }


def check(read: OnnxModel, expected: dict[str, np.ndarray]) -> None:
    assert list(read.constants) == list(expected)
    for name, array in expected.items():
        assert read.constants[name].dtype == array.dtype and read.constants[name].shape == array.shape
        np.testing.assert_array_equal(read.constants[name], array)
    assert [node.op_type for node in read.proto.graph.node] == ["Abs"]
    assert [value.name for value in read.proto.graph.input] == ["x"]


@pytest.mark.parametrize("raw", [True, False])
def test_constants_are_those_of_the_model(tmp_path: Path, raw: bool) -> None:
    expected = arrays()
    if not raw:
        expected.pop("halves")  # whose values the helper wants as bits
    data = model(expected, raw)
    check(read_model(data, "model"), expected)
    check(read_model(mapped(data, tmp_path), "model"), expected)
    check(read_model(tmp_path / "model.onnx", "model"), expected)


def test_large_constants_are_not_copied(tmp_path: Path) -> None:
    read = read_model(mapped(model(arrays()), tmp_path), "model")
    assert isinstance(read.constants["larger"].base, np.ndarray | mmap.mmap | memoryview)
    assert not read.constants["larger"].flags.owndata and not read.constants["larger"].flags.writeable


def test_fields_that_come_last_or_twice_are_kept(tmp_path: Path) -> None:
    """Two halves of a model, one behind the other, are the model: protobuf merges them."""
    expected = arrays()
    halves = [dict(list(expected.items())[:3]), dict(list(expected.items())[3:])]
    first, second = (onnx.load_from_string(model(half)) for half in halves)
    rest = onnx.ModelProto()
    rest.graph.initializer.extend(second.graph.initializer)
    data = first.SerializeToString() + rest.SerializeToString()
    check(read_model(mapped(data, tmp_path), "model"), expected)


def test_a_constant_of_the_wrong_size_is_one_error() -> None:
    proto = onnx.load_from_string(model(arrays()))
    proto.graph.initializer[0].dims[0] += 1
    with pytest.raises(CompileError, match="initializer 'just large': data does not fit float"):
        read_model(proto.SerializeToString(), "model")


def test_packed_constants_are_unpacked(tmp_path: Path) -> None:
    values = np.arange(-8, 8, dtype=np.int8).repeat(MAP_BYTES // 4)
    packed = (values[0::2] & 15) | (values[1::2] & 15) << 4
    proto = onnx.load_from_string(model({}))
    proto.graph.initializer.append(
        onnx.helper.make_tensor("packed", onnx.TensorProto.INT4, values.shape, packed.astype(np.uint8).tobytes(), True)
    )
    read = read_model(mapped(proto.SerializeToString(), tmp_path), "model")
    np.testing.assert_array_equal(read.constants["packed"].astype(np.int8), values)


@pytest.mark.parametrize("length", [1, 100, MAP_BYTES + 77, 2 * MAP_BYTES, -1, -70, -3000])
def test_what_is_cut_short_is_one_error(tmp_path: Path, length: int) -> None:
    data = model(arrays())[:length]
    with pytest.raises(CompileError, match=r"not an ONNX model|no graph|truncated"):
        read_model(mapped(data, tmp_path), "model")
