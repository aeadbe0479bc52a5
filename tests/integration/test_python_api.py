"""The public names from end to end: what compile takes, what load gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import motet
from motet import builder

TEXT = """
func.func @main(%x: tensor<?x6xf32>) -> tensor<?x6xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x6xf32>
  %empty = tensor.empty(%n) : tensor<?x6xf32>
  %y = linalg.mul ins(%x, %x : tensor<?x6xf32>, tensor<?x6xf32>) outs(%empty : tensor<?x6xf32>)
    -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}
"""


def onnx_square() -> onnx.ModelProto:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 6]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "x"], ["y"])], "square", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def built_square() -> builder.Graph:
    with builder.Graph("main") as graph:
        x = graph.input("x", ("n", 6))
        graph.result(x * x, name="y")
    return graph


@pytest.mark.parametrize("form", ["text", "bytes", "path", "string path", "onnx", "onnx bytes", "graph"])
def test_every_form_of_a_program_is_compiled(form: str, tmp_path: Path) -> None:
    path = tmp_path / "square.mlir"
    path.write_text(TEXT)
    forms = {
        "text": TEXT, "bytes": TEXT.encode(), "path": path, "string path": str(path), "onnx": onnx_square(),
        "onnx bytes": onnx_square().SerializeToString(), "graph": built_square(),
    }
    x = np.random.default_rng(5).standard_normal((7, 6)).astype(np.float32)
    with motet.load(motet.compile(forms[form])) as session:
        np.testing.assert_array_equal(session(x), x * x)


@pytest.mark.parametrize("source", [3, None, [TEXT], object()], ids=["int", "None", "list", "object"])
def test_what_is_no_program_is_refused(source: object) -> None:
    with pytest.raises(motet.OptionError, match="expected a path, MLIR text with a line break"):
        motet.compile(source)


def test_missing_path_is_named() -> None:
    with pytest.raises(motet.OptionError, match=r"none\.mlir: cannot be read: no such file"):
        motet.compile("none.mlir")


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(motet.OptionError, match="format 'caffe': no such format"):
        motet.compile(TEXT, format="caffe")  # type: ignore[arg-type]
    with pytest.raises(motet.OptionError, match="the source is onnx"):
        motet.compile(onnx_square(), format="mlir")
    with pytest.raises(motet.OptionError, match="nonsense"):
        motet.compile(TEXT, options={"nonsense": True})
    with pytest.raises(motet.OptionError, match="column 6: expected an ordinal"):
        motet.compile(TEXT, devices="cuda[x]")


def test_mistake_in_a_program_has_its_place() -> None:
    with pytest.raises(motet.CompileError) as caught:
        motet.compile("func.func @main() {\n  %x = nonsense.op\n  return\n}\n")
    assert caught.value.location is not None
    assert caught.value.location.line == 2


def test_artifact_is_saved_and_loaded(tmp_path: Path) -> None:
    artifact = motet.compile(TEXT, devices={"cpu": "host"})
    artifact.save(tmp_path / "square.motet")
    x = np.full((2, 6), 3, np.float32)
    for source in (tmp_path / "square.motet", str(tmp_path / "square.motet"),
                   (tmp_path / "square.motet").read_bytes(), artifact):
        session = motet.load(source, threads=1)
        np.testing.assert_array_equal(session.main(x), x * x)
        np.testing.assert_array_equal(session["main"](x), x * x)


def test_devices_are_those_of_this_machine() -> None:
    assert any(device.uri == "host" and device.available for device in motet.devices())
