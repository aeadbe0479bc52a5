"""What a source is follows from what the caller said and from all of its structure, never from a few bytes."""

from __future__ import annotations

import io
import mmap
import zipfile
from pathlib import Path

import numpy as np
import pytest

import motet
from motet.compiler.frontends.kinds import kind_of
from motet.errors import CompileError
from motet.serialized import write_serialized

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

MLIR = "func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> { return %x : tensor<3xf32> }"
STABLEHLO = "func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> { %y = stablehlo.abs %x : tensor<3xf32> }"


def model(**fields: object) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    weight = onnx.numpy_helper.from_array(np.ones(40, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "graph", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], **fields)


def serialized(low: int) -> bytes:
    """A serialized graph whose first bytes are `low`, little endian."""
    at_least = write_serialized(MLIR, {"w": np.ones(40, np.float32)})
    missing = (low - int.from_bytes(at_least[:8], "little")) % (1 << 16)
    data = write_serialized(MLIR + " " * missing, {"w": np.ones(40, np.float32)})
    assert int.from_bytes(data[:2], "little") == low
    return data


def test_a_large_graph_whose_length_begins_as_a_model_is_compiled() -> None:
    """It goes to the compiler as a mapped file, about one in 64 of which begins like this."""
    text = """func.func @main(%x: tensor<4xf32>, %w: tensor<300000x4xf32> {motet.parameter = "w"}) -> tensor<4xf32> {
      %row = tensor.extract_slice %w[1234, 0] [1, 4] [1, 1] : tensor<300000x4xf32> to tensor<4xf32>
      %e = tensor.empty() : tensor<4xf32>
      %y = linalg.add ins(%x, %row : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32>
    }"""
    weights = np.arange(1_200_000, dtype=np.float32).reshape(300_000, 4)
    length = int.from_bytes(write_serialized(text, {"w": weights})[:2], "little")
    data = write_serialized(text + " " * ((0x6508 - length) % (1 << 16)), {"w": weights})
    assert data[:2] == b"\x08\x65"
    with motet.load(motet.compile(data)) as session:
        np.testing.assert_array_equal(session(np.ones(4, np.float32)), weights[1234] + 1)


def archive(name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as opened:
        opened.writestr(name, "{}")
    return stream.getvalue()


def mapped(data: bytes, folder: Path) -> mmap.mmap:
    path = folder / "source"
    path.write_bytes(data)
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


# A header's length may begin as an ONNX model's version does (08 01 … 08 7f), as a zip archive or bytecode.
LENGTHS = [0x0108, 0x0708, 0x6508, 0x7F08, 0x4B50, 0x4C48, 0x3A08, 0x0A10, 0x2208]


@pytest.mark.parametrize("low", LENGTHS, ids=hex)
def test_a_graph_is_none_of_the_others_whatever_its_length(low: int, tmp_path: Path) -> None:
    data = serialized(low)
    assert kind_of(data, "<bytes>") == kind_of(mapped(data, tmp_path), "net.graph") == "graph"
    assert kind_of(data, "<bytes>", "mlir") == "graph"


def test_a_model_is_a_model_whatever_is_in_it(tmp_path: Path) -> None:
    models = [model(ir_version=version).SerializeToString() for version in (3, 8, 10, 13)]
    for name in ('{"__metadata__": {"motet.program": "', "PK\x03\x04", "ML", "func.func @f", "stablehlo.abs"):
        models.append(model(producer_name=name, doc_string=name).SerializeToString())
    whole = model()
    graph, rest = onnx.ModelProto(graph=whole.graph), onnx.ModelProto()
    rest.CopyFrom(whole)
    rest.ClearField("graph")
    models.append(graph.SerializeToString() + rest.SerializeToString())  # fields in another order
    for data in models:
        assert kind_of(data, "<bytes>") == kind_of(mapped(data, tmp_path), "m") == "onnx"
        for end in (2, 5, len(data) // 2, len(data) - 1):  # cut off: its reader says so
            if data[0] == 8:
                assert kind_of(data[:end], "<bytes>") == "onnx"


@pytest.mark.parametrize(("data", "kind"), [
    (MLIR.encode(), "mlir"), (STABLEHLO.encode(), "stablehlo"), (b"\xef\xbb\xbf" + MLIR.encode(), "mlir"),
    (b':"\n' + MLIR.encode(), "mlir"), (b'"b" ' + MLIR.encode(), "mlir"), (b"\n" + STABLEHLO.encode(), "stablehlo"),
    (b"// PK\x03\x04 \x08\x07\n" + MLIR.encode(), "mlir"), (archive("version"), "archive"),
])  # fmt: skip
def test_texts_and_archives(data: bytes, kind: str, tmp_path: Path) -> None:
    assert kind_of(data, "<bytes>") == kind_of(mapped(data, tmp_path), "source") == kind


def test_random_bytes_that_begin_as_a_model_are_none() -> None:
    random = np.random.default_rng(5)
    for _ in range(300):
        data = b"\x08" + random.integers(1, 12, 1, np.uint8).tobytes() + b"\x00" + random.bytes(random.integers(9, 99))
        with pytest.raises(CompileError, match="unknown format"):
            kind_of(data + b"\xff", "<bytes>")


def test_what_the_caller_says_comes_first() -> None:
    data = model(producer_name="pytorch").SerializeToString()
    assert kind_of(MLIR, "net.onnx") == kind_of(archive("version"), "net.ONNX") == "onnx"
    assert kind_of(MLIR.encode(), "<bytes>", "onnx") == "onnx"
    assert kind_of(MLIR, "net.onnx", "mlir") == kind_of(data, "net.onnx", "mlir") == "mlir"
    assert kind_of(MLIR.encode(), "net.mlir", "stablehlo") == "stablehlo"


@pytest.mark.parametrize(("data", "message"), [
    (b"", "empty input"), (b" \n\t", "empty input"), (b"ML\xefR\x01", "bytecode is not supported"),
    (archive("manifest.json"), "an artifact, which is compiled already"), (b"\x89PNG\r\n", "unknown format"),
])  # fmt: skip
def test_what_is_no_program_is_one_error(data: bytes, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        kind_of(data, "<bytes>")
