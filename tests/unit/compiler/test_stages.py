"""The stages between front ends and kernels: every source takes the same ones, and front ends leave devices to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.integration.placed import build_placed
from tests.prepared import load_mlir

from motet import CallError, builder
from motet.artifact.writer import write_artifact
from motet.compiler import pipeline
from motet.compiler.build.normal_form import ASSERTION, DIALECTS
from motet.compiler.frontends import load_source
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.program import Program
from motet.compiler.ir.uses_devices import uses_devices
from motet.compiler.job import PassReports
from motet.compiler.passes.report import PassReporter
from motet.compiler.passes.running import observed
from motet.compiler.placement.place import Place
from motet.compiler.targets.cpu import X86_64_V3
from motet.compiler.targets.device_flags import parse_device_flags
from motet.runtime import Session, load

DEVICES = parse_device_flags(("a=host", "b=null"))
MLIR = """
"motet.device"() {sym_name = "a", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "b", alternatives = ["null"]} : () -> ()
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x {motet.affinity = "b"} : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
LOOP = """
func.func @main(%x: memref<4xf32>, %y: memref<4xf32>) {
  affine.for %i = 0 to 4 {
    %0 = affine.load %x[%i] : memref<4xf32>
    affine.store %0, %y[%i] : memref<4xf32>
  }
  return
}
"""
STABLEHLO = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.exponential %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def onnx_model(*nodes: onnx.NodeProto, weights: Sequence[onnx.TensorProto] = ()) -> bytes:
    """A model from x, four numbers, to y."""
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy")
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4])
    graph = helper.make_graph(nodes, "main", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    return model.SerializeToString()


def built_graph() -> bytes:
    graph = builder.Graph("main")
    graph.result(builder.exp(graph.input("x", [4])), "y")
    return graph.serialize()


SOURCES = {
    "mlir": MLIR, "loops": LOOP, "stablehlo": STABLEHLO, "builder": built_graph(),
    "onnx": onnx_model(helper.make_node("Exp", ["x"], ["y"])),
}  # fmt: skip
ANY = pytest.mark.parametrize("source", [pytest.param(source, id=name) for name, source in SOURCES.items()])


@ANY
def test_every_source_takes_the_same_stages(source: str | bytes) -> None:
    written: list[str] = []
    reporter = PassReporter(PassReports(times=True), written.append)
    program = load_source(source, "source")
    with observed(reporter):
        pipeline.prepare(program, Place(DEVICES))
        with program.module.context, ir.Location.unknown():
            pipeline.normalise(program)
    reporter.finish()
    rows = [line[26:] for line in written[0].splitlines()[1:-2]]
    stages = ["lower-to-tensors", "shard", "place", "normal-form", "normalise"]
    assert [row for row in rows if not row.startswith(" ")] == stages


@ANY
def test_front_ends_return_before_placement(source: str | bytes) -> None:
    program = load_source(source, "source")
    assert names_of_devices(program) == [] and uses_devices(program.module) == (source is MLIR)
    pipeline.prepare(program, Place(DEVICES))
    assert names_of_devices(program) == ["a", "b"]


def names_of_devices(program: Program) -> list[str]:
    return [] if program.placement is None else [each.name for each in program.placement.devices]


@ANY
def test_every_source_ends_in_normal_form(source: str | bytes) -> None:
    program = load_source(source, "source")
    pipeline.prepare(program)
    names = {op.name for op in all_operations(program.module)}
    assert {name.split(".")[0] for name in names - {ASSERTION}} <= DIALECTS
    assert not names & {"math.exp", "func.call"} or "linalg.generic" in names


def session_of(source: str | bytes) -> Session:
    program = load_source(source, "source")
    pipeline.prepare(program)
    with program.module.context, ir.Location.unknown():
        built = pipeline.build(program, [X86_64_V3], 1, lambda what, fraction: None)
    return load(write_artifact(built.manifest, built.members, built.parameters))


def test_parameters_of_onnx_may_be_unsigned() -> None:
    weights = np.random.default_rng(0).integers(0, 256, (64, 128)).astype(np.uint8)
    source = onnx_model(
        helper.make_node("Cast", ["x"], ["i"], to=onnx.TensorProto.INT64),
        helper.make_node("Gather", ["w", "i"], ["g"]),
        helper.make_node("Cast", ["g"], ["y"], to=onnx.TensorProto.FLOAT),
        weights=[onnx.numpy_helper.from_array(weights, "w")],
    )
    with session_of(source) as session:
        np.testing.assert_array_equal(session["main"](np.array([5, 0, 63, 7], np.float32)), weights[[5, 0, 63, 7]])


def test_a_uniform_operand_of_a_product_in_onnx_is_packed() -> None:
    """The initial state of a recurrent cell: a contraction, where a constant in the kernel would be plain loops."""
    state = helper.make_node("Constant", [], ["h"], value=onnx.numpy_helper.from_array(np.zeros((3, 4), np.float32)))
    shape = helper.make_node("Constant", [], ["s"], value=onnx.numpy_helper.from_array(np.array([4, 1])))
    source = onnx_model(
        state, shape, helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("MatMul", ["h", "r"], ["y"])
    )
    with session_of(source) as session:
        assert [kernel.kind for kernel in session.variants[0].kernels if kernel.kind != "renaming"] == ["contraction"]
        assert session["main"](np.ones(4, np.float32)).tolist() == [[0.0]] * 3


def test_assertions_of_users_are_checked() -> None:
    with session_of("""func.func @main(%x: tensor<4xf32>, %p: i1) -> tensor<4xf32> {
      cf.assert %p, "p must hold"
      return %x : tensor<4xf32>
    }""") as session:
        x = np.ones(4, np.float32)
        np.testing.assert_array_equal(session["main"](x, np.array(True)), x)
        with pytest.raises(CallError, match=r"source:2:7: cf.assert: p must hold"):
            session["main"](x, np.array(False))


VALUED = """
"motet.device"() {sym_name = "a", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "b", alternatives = ["null"]} : () -> ()
func.func @main(%x: tensor<4x6xf32>, %r: tensor<1xi64>) -> tensor<?x6xf32> {
  %c0 = arith.constant 0 : index
  %0 = tensor.extract %r[%c0] : tensor<1xi64>
  %n = arith.index_cast %0 : i64 to index
  %y = math.exp %x {motet.affinity = "b"} : tensor<4x6xf32>
  %s = tensor.extract_slice %y[0, 0] [%n, 6] [1, 1] : tensor<4x6xf32> to tensor<?x6xf32>
  %z = arith.mulf %s, %s {motet.affinity = "a"} : tensor<?x6xf32>
  return %z : tensor<?x6xf32>
}
"""


def test_extents_that_follow_from_values_are_known_to_placement() -> None:
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    with load(build_placed(VALUED, ())) as session:
        for rows in (0, 1, 3):
            found = session["main"](x, np.array([rows]))
            np.testing.assert_allclose(found, np.exp(x[:rows].astype(np.float64)) ** 2, rtol=1e-5)


def test_extents_of_constants_need_no_function() -> None:
    text = VALUED.replace("%0 = tensor.extract %r[%c0] : tensor<1xi64>", "%0 = arith.constant 2 : i64")
    placement = load_mlir(text, "test.mlir", Place()).placement
    assert placement is not None and list(placement.plans) == ["main"]
