"""An artifact that keeps its source is verified without the file that it was compiled from, by any oracle."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import motet
from motet.artifact.reader import Artifact
from motet.artifact.sources import read_source, write_source
from motet.compiler import service
from motet.compiler.service import CompileRequest
from motet.errors import OptionError
from motet.tools.verifying import check_options

onnx = pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")

Run = Callable[..., subprocess.CompletedProcess[str]]
Fails = Callable[..., str]

ROWS = np.random.default_rng(7).standard_normal((3000, 37)).astype(np.float32)
WEIGHT = np.random.default_rng(8).standard_normal((37, 41)).astype(np.float32)
INPUT = ("--input", "3xi64=0,2999,-1")
CHOSEN = np.array([0, 2999, -1])


def write_model(folder: Path, external: bool) -> Path:
    """A model that looks rows up in a table and multiplies them."""
    helper, kinds = onnx.helper, onnx.TensorProto
    tensors = [onnx.numpy_helper.from_array(ROWS, "table"), onnx.numpy_helper.from_array(WEIGHT, "weight")]
    nodes = [helper.make_node("Gather", ["table", "i"], ["x"]), helper.make_node("MatMul", ["x", "weight"], ["y"])]
    graph = helper.make_graph(
        nodes, "look up", [helper.make_tensor_value_info("i", kinds.INT64, ["n"])],
        [helper.make_tensor_value_info("y", kinds.FLOAT, ["n", 41])], tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    folder.mkdir()
    onnx.save_model(model, folder / "m.onnx", save_as_external_data=external, location="w.data", size_threshold=0)
    return folder / "m.onnx"


def remove(folder: Path) -> dict[str, bytes]:
    """Removes a folder's files; their contents."""
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in contents:
        (folder / name).unlink()
    return contents


@pytest.mark.parametrize("external", [False, True])
def test_the_source_comes_back_as_it_was(tmp_path: Path, external: bool) -> None:
    """The table, which is a parameter as it stands, is stored once."""
    path = write_model(tmp_path / "models", external)
    artifact = motet.compile(path, options={"keep-source": True})
    without = motet.compile(path)
    contents = remove(tmp_path / "models")
    assert sorted(contents) == (["m.onnx", "w.data"] if external else ["m.onnx"])
    kept = read_source(artifact)
    assert kept is not None and read_source(without) is None
    restored = write_source(artifact, kept, tmp_path / "restored")
    assert restored.name == "m.onnx"
    assert {each.name: each.read_bytes() for each in restored.parent.iterdir()} == contents
    added = len(artifact.data) - len(without.data)
    assert WEIGHT.nbytes < added < ROWS.nbytes


def test_artifacts_are_verified_without_their_source(motet: Run, fails: Fails, tmp_path: Path) -> None:
    write_model(tmp_path / "models", external=True)
    outcome = motet("compile", "models/m.onnx", "--option", "keep-source=true", "-o", "k.motet")
    assert outcome.returncode == 0, outcome.stderr
    remove(tmp_path / "models")
    outcome = motet("run", "k.motet", *INPUT, "--output", "y.npy", "--verify")
    assert outcome.returncode == 0 and "verified: result 0 (y): agrees" in outcome.stdout, outcome.stderr
    expected = ROWS[CHOSEN].astype(np.float64) @ WEIGHT
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=0, atol=1e-4)
    once = ("--repeat", "1", "--number", "1", "--json")
    outcome = motet("bench", "k.motet", *INPUT, *once, "--verify", "--oracle", "numpy")
    assert outcome.returncode == 0 and "verified: result 0 (y): agrees" in outcome.stderr, outcome.stderr
    assert json.loads(outcome.stdout)["function"] == "main"
    if importlib.util.find_spec("onnxruntime") is None:
        text = fails("bench", "k.motet", *INPUT, "--verify", "--oracle", "onnxruntime")
        assert text == "--oracle onnxruntime needs ONNX Runtime; install it with: pip install onnxruntime"
    else:
        outcome = motet("run", "k.motet", *INPUT, "--verify", "--oracle", "onnxruntime")
        assert outcome.returncode == 0 and "verified: result 0 (y): agrees" in outcome.stdout, outcome.stderr


def test_wrong_results_are_noticed(tmp_path: Path) -> None:
    path = write_model(tmp_path / "models", external=False)
    wrong = (ROWS[CHOSEN] @ WEIGHT).astype(np.float32)
    wrong[2, 40] += 1
    report = service.verify(CompileRequest(None, str(path)), "main", [CHOSEN], [wrong], "numpy")
    assert not report.ok and "1 elements differ, the first at [2, 40]" in report.lines[0]


def test_oracles_that_cannot_judge_say_so(add: Path) -> None:
    with pytest.raises(OptionError, match=r"^--oracle numpy: nothing is compared; expected it with --verify$"):
        check_options(False, "numpy")
    with pytest.raises(OptionError, match=r"no such oracle; expected one of upstream, numpy, onnxruntime, openvino$"):
        check_options(True, "torch")
    ones = np.ones((3, 5), np.float32)
    with pytest.raises(OptionError, match=r"^--oracle numpy runs ONNX models; the source is MLIR; use --oracle up"):
        service.verify(CompileRequest(add.read_text()), "main", [ones, ones], [2 * ones], "numpy")


def test_text_from_nowhere_is_kept(tmp_path: Path, add: Path) -> None:
    artifact = motet.compile(add.read_text(), options={"keep-source": True})
    artifact.save(tmp_path / "k.motet")
    kept = read_source(opened := Artifact.open(tmp_path / "k.motet"))
    assert kept is not None
    assert write_source(opened, kept, tmp_path).read_text() == add.read_text()
