"""Weights of ONNX models in other files: where they are found, what they are, and what is wrong with them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from motet.compiler.external_data import data_files
from motet.compiler.frontends.onnx.bodies import separate_bodies
from motet.compiler.frontends.onnx.data import DataFiles
from motet.compiler.frontends.onnx.reading import read_model
from motet.errors import CompileError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

RANDOM = np.random.default_rng(11)
W = np.zeros((4, 2), np.float32)


def external(name: str, array: np.ndarray, location: str, offset: int | None = None, length: int | None = None):
    """A tensor like `array` whose data is said to be at `offset` of the file `location`."""
    tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def with_extents(*extents: int):
    tensor = external("w", W, "w")
    tensor.dims[:] = extents
    return tensor


def model(tensors=(), nodes=(), sparse=(), functions=()):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    nodes = [helper.make_node("Abs", ["x"], ["y"], name="last"), *nodes]
    graph = helper.make_graph(nodes, "graph", [x], [y], list(tensors), sparse_initializer=list(sparse))
    domains = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=domains, functions=list(functions))


def save(path: Path, proto) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(proto.SerializeToString())
    return path


def file_of(path: Path, *arrays: np.ndarray, gap: int = 0) -> list[int]:
    """Writes arrays one after the other, with `gap` bytes before each; where they begin."""
    path.parent.mkdir(parents=True, exist_ok=True)
    offsets, content = [], b""
    for array in arrays:
        content += b"\xa5" * gap
        offsets.append(len(content))
        content += array.tobytes()
    path.write_bytes(content)
    return offsets


def numbers(*shape: int, dtype: object = np.float32) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * 8).astype(dtype)


def test_values_are_those_of_the_files(tmp_path: Path) -> None:
    """Several files and folders, offsets that no type is aligned to, every type whose elements are whole bytes."""
    types = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int8, np.uint8,
             np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.bool_]
    arrays = [numbers(5, 7, dtype=dtype) if dtype is not np.bool_ else numbers(9) > 0 for dtype in types]
    arrays += [numbers(0, 4), np.float32(2.5).reshape(()), numbers(1), numbers(300, 101)]
    tensors, expected = [], {}
    for file, (begin, gap) in {"w.data": (0, 0), "parts/b.bin": (1, 3), "./parts/../c": (2, 13)}.items():
        chosen = arrays[begin::3]
        offsets = file_of(tmp_path / file, *chosen, gap=gap)
        for array, offset in reversed(list(zip(chosen, offsets, strict=True))):
            name = f"t{len(tensors)}"
            tensors.append(external(name, array, file, offset, array.nbytes if len(tensors) % 2 else None))
            expected[name] = array
    read = read_model(save(tmp_path / "model.onnx", model(tensors)), "model")
    assert list(read.constants) == list(expected)
    for name, array in expected.items():
        assert read.constants[name].dtype == array.dtype
        np.testing.assert_array_equal(read.constants[name], array)


@pytest.mark.parametrize(("kind", "low", "high"), [("INT4", -8, 8), ("UINT4", 0, 16)])
def test_packed_elements_are_unpacked(tmp_path: Path, kind: str, low: int, high: int) -> None:
    values = RANDOM.integers(low, high, 15).astype(np.int8)
    padded = np.append(values, 0) & 15
    (tmp_path / "w").write_bytes(b"\xff" + (padded[0::2] | padded[1::2] << 4).astype(np.uint8).tobytes())
    tensor = external("w", np.zeros((3, 5), np.int8), "w", 1)
    tensor.data_type = getattr(TensorProto, kind)
    read = read_model(save(tmp_path / "m.onnx", model([tensor])), "model")
    np.testing.assert_array_equal(read.constants["w"].astype(np.int8), values.reshape(3, 5))


def test_tensors_everywhere_are_read(tmp_path: Path) -> None:
    """Constant nodes, initializers of bodies, tensors of attributes, functions, sparse ones."""
    a, b, c, d, e = numbers(4, 3), numbers(3), numbers(2, 2), numbers(1), numbers(2)
    ia, ib, ic, id_, ie = file_of(tmp_path / "w", a, b, c, d, e, gap=1)
    y = helper.make_tensor_value_info("body_y", TensorProto.FLOAT, None)
    inner = helper.make_node("Constant", [], ["k"], value=external("k", b, "w", ib))
    body = helper.make_graph([inner, helper.make_node("Add", ["k", "c"], ["body_y"])], "body", [], [y])
    body.initializer.append(external("c", c, "w", ic))
    nodes = [
        helper.make_node("Constant", [], ["k"], name="constant", value=external("", a, "w", ia)),
        helper.make_node("If", ["flag"], ["z"], then_branch=body, else_branch=body),
        helper.make_node("ConstantOfShape", ["extents"], ["filled"], value=external("", d, "w", id_)),
    ]
    function = helper.make_function(
        "own", "F", [], ["r"], [helper.make_node("Constant", [], ["r"], value=external("", e, "w", ie))],
        [helper.make_opsetid("", 20)],
    )
    proto = model(nodes=nodes, functions=[function])
    read = read_model(save(tmp_path / "m.onnx", proto), "model")
    separate_bodies(read)
    for array in (a, b, b, c, c):
        found = [name for name, value in read.constants.items() if value.shape == array.shape]
        assert found and all(np.array_equal(read.constants[name], array) for name in found)
    assert [node.op_type for node in read.proto.graph.node] == ["Abs", "Identity", "If", "ConstantOfShape"]
    (value,) = read.proto.graph.node[3].attribute
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(value.t), d)
    (value,) = read.proto.functions[0].node[0].attribute
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(value.t), e)
    assert list(data_files(str(tmp_path / "m.onnx"), proto.SerializeToString())) == ["w"]


@pytest.mark.parametrize("flat", [True, False])
def test_sparse_tensors_are_dense(tmp_path: Path, flat: bool) -> None:
    dense = np.zeros((5, 7), np.float32)
    where = [(0, 3), (2, 0), (4, 6)]
    dense[tuple(zip(*where, strict=True))] = values = numbers(3)
    indices = np.array([7 * i + j for i, j in where] if flat else where, np.int64)
    iv, ii = file_of(tmp_path / "w", values, indices)
    sparse = onnx.SparseTensorProto(
        values=external("s", values, "w", iv), indices=external("i", indices, "w", ii), dims=dense.shape
    )
    node = helper.make_node("Constant", [], ["k"], sparse_value=sparse)
    read = read_model(save(tmp_path / "m.onnx", model(nodes=[node], sparse=[sparse])), "model")
    np.testing.assert_array_equal(read.constants["s"], dense)
    np.testing.assert_array_equal(read.constants["k/value"], dense)
    for wrong in (indices + 30, indices - 9, indices[:2]):
        (offset,) = file_of(tmp_path / "v", wrong)
        sparse.indices.CopyFrom(external("i", wrong, "v", offset))
        with pytest.raises(CompileError, match=r"initializer 's': sparse of extents \[5, 7\]: its indices do not fit"):
            read_model(save(tmp_path / "m.onnx", model(sparse=[sparse])), "model")


def test_what_is_large_is_mapped_once(tmp_path: Path) -> None:
    """3 GiB, which neither a protobuf nor much memory could hold."""
    with (tmp_path / "w").open("wb") as file:
        file.truncate(3 << 30)
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(7.5).tobytes())
    tensors = [external("a", W, "w"), external("b", np.empty(1), "w", 512)]
    tensors[0].dims[:] = [3, 1 << 28]
    read = read_model(save(tmp_path / "m.onnx", model(tensors)), "model")
    assert read.constants["a"].nbytes == 3 << 30 and read.constants["a"][2, -1] == 7.5
    owners = [read.constants[name].base for name in "ab"]
    while not all(isinstance(owner, mmap.mmap) for owner in owners):
        owners = [owner.obj if isinstance(owner, memoryview) else owner.base for owner in owners]  # type: ignore[union-attr]
    assert owners[0] is owners[1]


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "missing": (lambda: external("w", W, "none"), "file 'none' is missing; expected it at /.*/none"),
    "short": (lambda: external("w", W, "w", 1), "'w' is too short: expected 32 bytes at offset 1, the file has 32"),
    "beyond": (lambda: external("w", W, "w", 10**18), "expected 32 bytes at offset 1,000,000,000,000,000,000"),
    "empty beyond": (lambda: external("w", W[:0], "w", 33), "too short: expected 0 bytes at offset 33"),
    "huge": (lambda: with_extents(1 << 33, 1 << 31), "too short: expected 73,786,976,294,838,206,464 bytes"),
    "less than none": (lambda: with_extents(-1, -8), r"its extents are \[-1, -8\]; expected none below 0"),
    "length": (lambda: external("w", W, "w", 0, 31), "length .* is 31; expected 32 bytes for float"),
    "negative": (lambda: external("w", W, "w", -4), "offset .* is '-4'; expected a number of bytes"),
    "parent": (lambda: external("w", W, "../w"), r"'\.\./w': outside the model's folder; expected a path below"),
    "sideways": (lambda: external("w", W, "a/../../w"), "outside the model's folder"),
    "absolute": (lambda: external("w", W, "/etc/passwd"), "'/etc/passwd': an absolute path; expected a path below"),
    "unnamed": (lambda: external("w", W, ""), "'': no file is named"),
    "folder": (lambda: external("w", W, "folder"), "folder is no regular file"),
    "pipe": (lambda: external("w", W, "pipe"), "pipe is no regular file"),
    "long": (lambda: external("w", W, "w" * 300), "cannot be read: file name too long"),
    "through a file": (lambda: external("w", W, "w/w"), "'w/w' (is missing|cannot be read: not a directory)"),
    "zero byte": (lambda: external("w", W, "w\0x"), "not the name of a file"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_external_data_is_one_error(tmp_path: Path, case: str) -> None:
    make, message = BAD[case]
    (tmp_path / "folder").mkdir()
    file_of(tmp_path / "folder" / "w", W)
    (tmp_path / "folder" / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe")
    path = save(tmp_path / "folder" / "m.onnx", model([make()]))
    with pytest.raises(CompileError, match=message) as caught:
        read_model(path, "m.onnx")
    assert str(caught.value).startswith("m.onnx: initializer 'w': ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["STRING", "FLOAT6E2M3"])
def test_types_without_bytes_are_refused(tmp_path: Path, kind: str) -> None:
    if not hasattr(TensorProto, kind):
        pytest.skip("this onnx has no such type")
    tensor = external("w", W, "w")
    tensor.data_type = getattr(TensorProto, kind)
    file_of(tmp_path / "w", W)
    with pytest.raises(CompileError, match=f"external data of type {kind.lower()} is not supported"):
        read_model(save(tmp_path / "m.onnx", model([tensor])), "m.onnx")


def test_a_file_that_changes_is_not_read(tmp_path: Path) -> None:
    file_of(tmp_path / "w", W)
    proto = model([external("w", W, "w")])
    path = save(tmp_path / "m.onnx", proto)
    states = data_files(str(path), proto.SerializeToString())
    data = proto.SerializeToString()
    assert read_model(data, "m.onnx", DataFiles(str(path), states)).constants["w"].shape == (4, 2)
    file_of(tmp_path / "w", W, W)
    for known in (states, {}):
        with pytest.raises(CompileError, match="'w' was changed while it was compiled; compile it again"):
            read_model(data, "m.onnx", DataFiles(str(path), known))


def test_links_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to a model, to its folder, and a folder of links, as download caches have."""
    file_of(tmp_path / "store" / "one" / "w.data", numbers(4, 2))
    file_of(tmp_path / "blobs" / "f00d", W + 3)
    save(tmp_path / "store" / "one" / "m.onnx", model([external("w", W, "w.data")]))
    save(tmp_path / "blobs" / "beef", model([external("w", W, "w.data")]))
    (tmp_path / "link.onnx").symlink_to("store/one/m.onnx")
    (tmp_path / "folder").symlink_to("store/one")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "m.onnx").symlink_to("../blobs/beef")
    (tmp_path / "snapshot" / "w.data").symlink_to("../blobs/f00d")
    stored = np.fromfile(tmp_path / "store" / "one" / "w.data", np.float32).reshape(4, 2)
    monkeypatch.chdir(tmp_path / "store")
    for path, expected in {"../link.onnx": stored, "../folder/m.onnx": stored, "one/m.onnx": stored,
                           "../snapshot/m.onnx": W + 3}.items():
        np.testing.assert_array_equal(read_model(Path(path), "m").constants["w"], expected)
        assert list(data_files(path, Path(path).read_bytes())) == ["w.data"]
