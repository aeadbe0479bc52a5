"""Programs over several devices give what the same programs give on one, wherever their operations run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.integration.placed import build_placed, expected, random_program

import motet
from motet.errors import CallError
from motet.runtime import Session, load

# The second flag's device is the host too where the binding wants it.
FLAGS = ("a=host", "b=null[1],host", "c=null[2],@a")
BINDINGS: list[dict[str, str]] = [{}, {"c": "null/1"}, {"b": "host", "c": "host"}, {"b": "null/3?queues=1"}]


def results_of(session: Session, inputs: list[np.ndarray]) -> list[np.ndarray]:
    results = session(*inputs)
    return list(results) if isinstance(results, tuple) else [results]


def check(session: Session, inputs: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for _ in range(2):  # the second call takes what the first prepared
        for result, value in zip(results_of(session, inputs), wanted, strict=True):
            np.testing.assert_allclose(result, value, rtol=2e-4, atol=2e-5)


def test_a_product_that_fills_a_tensor_of_a_device_uploads_its_other_operand_only() -> None:
    text = """
    func.func @main(%a: memref<24x40xf32>, %b: memref<40x16xf32> {memref.on_device},
                    %c: memref<24x16xf32> {memref.on_device}) {
      %zero = arith.constant 0.0 : f32
      linalg.fill ins(%zero : f32) outs(%c : memref<24x16xf32>)
      linalg.matmul ins(%a, %b : memref<24x40xf32>, memref<40x16xf32>) outs(%c : memref<24x16xf32>)
      return
    }"""
    random = np.random.default_rng(5)
    a, b = (random.standard_normal(shape, np.float32) for shape in ((24, 40), (40, 16)))
    with load(build_placed(text, ("cpu=host", "acc=null"))) as session:
        weights, out = session.put(b, "acc"), session.put(np.full((24, 16), 9, np.float32), "acc")
        for scale in (1, 2):
            _, events = session["main"].trace(scale * a, weights, out)
            moved = [each.event.bytes for each in events if each.event.kind in ("write", "read")]
            assert moved == [a.nbytes]
            np.testing.assert_allclose(np.asarray(out), scale * a @ b, rtol=1e-4, atol=1e-4)


_QUICK = 30  # programs; the others take minutes


@pytest.mark.parametrize(
    "seed", [*range(_QUICK), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(_QUICK, 100))]
)
def test_random_programs_agree_with_the_oracle(seed: int) -> None:
    program = random_program(seed)
    session = load(build_placed(program.graph, FLAGS), devices=BINDINGS[seed % len(BINDINGS)], threads=2)
    with session:
        check(session, program.inputs, expected(program.graph, program.inputs))


@pytest.mark.parametrize("placed", ["before", "asserting", "behind"])
@pytest.mark.parametrize("operator", ["Tile", "TopK"])
def test_assertions_about_data_hold_wherever_operators_run(operator: str, placed: str) -> None:
    """An assertion has no result by which the region that it is in could be found."""
    made, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    right, wrong, more = {"Tile": ([2, 1], [1, -2], {}), "TopK": ([3], [4], {"axis": 1})}[operator]
    results = ["made", "places"] if operator == "TopK" else ["made"]
    nodes = [
        node("Neg", ["x"], ["less"], "before"), node(operator, ["less", "n"], results, "asserting", **more),
        node("Abs", ["made"], ["y"], "behind"),
    ]
    numbers = np.array(right, np.int64)
    graph = onnx.helper.make_graph(
        nodes, "main", [made("x", onnx.TensorProto.FLOAT, [2, 3]), made("n", onnx.TensorProto.INT64, numbers.shape)],
        [made("y", onnx.TensorProto.FLOAT, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    devices = {"a": "host{cpu=x86-64-v3}", "b": "null,@a"}
    session = motet.load(motet.compile(model, devices=devices, place={placed: "b"}))
    x = np.array([[1, -2, 3], [-4, 5, 6]], np.float32)
    wanted = np.abs(np.tile(x, (2, 1)) if operator == "Tile" else np.sort(-x, 1)[:, ::-1])
    for _ in range(2):
        np.testing.assert_array_equal(session(x, numbers), wanted)
        with pytest.raises(CallError, match=f'{operator} "asserting": '):
            session(x, np.array(wrong, np.int64))
