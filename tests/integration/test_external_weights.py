"""ONNX models whose weights are in other files, from every entry, as exporters write them."""

from __future__ import annotations

import os
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import motet

Run = Callable[..., subprocess.CompletedProcess[str]]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "external_weights.py"
X = np.random.default_rng(3).standard_normal((3, 37)).astype(np.float32)


def weights(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((37, 41)).astype(np.float32)


def write_product(path: Path, weight: np.ndarray) -> onnx.ModelProto:
    """Writes a model that multiplies by `weight`, which is in PATH.data."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 37])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 41])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    graph = helper.make_graph(nodes, "product", [x], [y], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path.parent.mkdir(exist_ok=True)
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)
    onnx.save_model(model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=0)
    return onnx.load(path, load_external_data=False)


def check(source: object, weight: np.ndarray) -> None:
    with motet.load(motet.compile(source)) as session:
        np.testing.assert_allclose(session(X), X.astype(np.float64) @ weight, rtol=0, atol=1e-4)


def test_every_form_of_a_path_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler runs in a process that may have another folder than the caller."""
    write_product(tmp_path / "models" / "m.onnx", weights(1))
    write_product(tmp_path / "linked.onnx", weights(2))
    write_product(tmp_path / "moved.onnx", weights(4))
    (tmp_path / "models" / "link.onnx").symlink_to("../linked.onnx")
    (tmp_path / "moved.onnx").rename(tmp_path / "model of no suffix")
    check(str(tmp_path / "models" / "m.onnx"), weights(1))
    monkeypatch.chdir(tmp_path / "models")
    check("../models/link.onnx", weights(2))
    monkeypatch.chdir(tmp_path)
    check(Path("model of no suffix"), weights(4))


def test_a_changed_data_file_is_another_program(tmp_path: Path) -> None:
    """Also one of the same size that was changed at the same time, as clocks of file systems have it."""
    path, data = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    write_product(path, weights(1))
    check(path, weights(1))
    status = data.stat()
    data.write_bytes(weights(2).tobytes())
    os.utime(data, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert data.stat().st_mtime_ns == status.st_mtime_ns
    check(path, weights(2))


def test_a_model_without_its_files_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what is in the caller's folder is not the model's
    model = write_product(tmp_path / "m.onnx", weights(1))
    for source in (model, model.SerializeToString()):
        with pytest.raises(motet.CompileError, match=(
            r"initializer 'w': its data is in the file 'm\.onnx\.data', but the model was given as bytes or as an "
            r"onnx\.ModelProto without it; give the path of the model"
        )):
            motet.compile(source)
    (tmp_path / "m.onnx.data").write_bytes(weights(1).tobytes()[:-1])
    with pytest.raises(motet.CompileError, match=r"^m\.onnx: initializer 'w': .* is too short: expected 6,068 bytes at "
                       "offset 0, the file has 6,067$"):
        motet.compile("m.onnx")


def test_weights_of_bodies_are_compiled(tmp_path: Path) -> None:
    tensors = {name: weights(seed)[:, :37] for name, seed in (("a", 1), ("b", 2), ("c", 3))}
    y = helper.make_tensor_value_info("out", TensorProto.FLOAT, [3, 37])

    def branch(name: str, inner: str) -> onnx.GraphProto:
        nodes = [helper.make_node("MatMul", ["x", inner], ["out"])]
        return helper.make_graph(nodes, name, [], [y], [numpy_helper.from_array(tensors[inner], inner)])

    nodes = [
        helper.make_node("If", ["flag"], ["z"], then_branch=branch("then", "a"), else_branch=branch("else", "b")),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(tensors["c"], "k")),
        helper.make_node("MatMul", ["z", "k"], ["out"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 37]),
              helper.make_tensor_value_info("flag", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "bodies", inputs, [y])
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path = tmp_path / "m.onnx"
    split = onnx.ModelProto()
    split.CopyFrom(whole)
    data = b""
    branches, constant = split.graph.node[0].attribute, split.graph.node[1].attribute[0].t
    for tensor in (*(item.g.initializer[0] for item in branches), constant):
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "w"), ("offset", len(data)), ("length", len(tensor.raw_data))):
            tensor.external_data.add(key=key, value=str(value))
        data += tensor.raw_data
        tensor.ClearField("raw_data")
    path.write_bytes(split.SerializeToString())
    (tmp_path / "w").write_bytes(data)
    evaluator = ReferenceEvaluator(whole)
    with motet.load(motet.compile(path)) as session:
        for flag in (True, False):
            (expected,) = evaluator.run(None, {"x": X, "flag": np.array(flag)})
            np.testing.assert_allclose(session(X, np.array(flag)), expected, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_the_command_line_takes_such_models(motet: Run, fails: Callable[..., str], tmp_path: Path) -> None:
    write_product(tmp_path / "models" / "m.onnx", weights(1))
    np.save(tmp_path / "x.npy", X)
    outcome = motet("run", "models/m.onnx", "--input", "@x.npy", "--output", "y.npy", "--verify")
    assert outcome.returncode == 0 and "verified: result 0 (y): agrees" in outcome.stdout, outcome.stderr
    expected = X.astype(np.float64) @ weights(1)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=0, atol=1e-4)
    outcome = motet("compile", "models/m.onnx", "--parameters", "external", "-o", "out.motet")
    assert outcome.returncode == 0, outcome.stderr
    (tmp_path / "models" / "m.onnx.data").unlink()
    check_artifact(tmp_path / "out.motet", expected)
    text = fails("inspect", "models/m.onnx")
    where = tmp_path / "models" / "m.onnx.data"
    assert text == ("models/m.onnx: initializer 'w': its external data file 'm.onnx.data' is missing; "
                    f"expected it at {where}")


def check_artifact(path: Path, expected: np.ndarray) -> None:
    with motet.load(path) as session:
        np.testing.assert_allclose(session(X), expected, rtol=0, atol=1e-4)


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(EXAMPLE))["main"]() == 0
    assert "motet.compile('build/external.onnx'): max abs error" in capsys.readouterr().out
    assert (tmp_path / "build" / "external.onnx.data").stat().st_size > 1 << 20
