"""Models that OpenVINO runs with parts compiled by Motet, against numpy in f64."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ov = pytest.importorskip("openvino", reason="needs OpenVINO: make intel")
pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")

from openvino import opset13 as ops  # noqa: E402

import motet.openvino  # noqa: E402
from motet.errors import ArtifactError, CallError, CompileError, MotetError, OptionError  # noqa: E402
from motet.openvino.compiling import compile_with  # noqa: E402
from motet.openvino.replace import Lowering  # noqa: E402
from motet.openvino.settings import Settings  # noqa: E402

Array = np.ndarray[Any, Any]


class Cube(ov.Op):  # type: ignore[name-defined,misc]
    """An operation that only OpenVINO runs."""

    def __init__(self, inputs: Any = None) -> None:
        super().__init__(self, inputs)

    def validate_and_infer_types(self) -> None:
        self.set_output_type(0, self.get_input_element_type(0), self.get_input_partial_shape(0))

    def clone_with_new_inputs(self, inputs: Any) -> Cube:
        return Cube(inputs)

    def has_evaluate(self) -> bool:
        return True

    def evaluate(self, outputs: Any, inputs: Any) -> bool:
        outputs[0].shape = inputs[0].shape
        outputs[0].data[...] = inputs[0].data ** 3
        return True

    def visit_attributes(self, visitor: Any) -> bool:
        return True


class Perceptron:
    """Two layers over rows and their numbers, with a Cube between them if `divided`; results f32, boolean and i64."""

    def __init__(self, rows: int = -1, *, divided: bool = True, width: int = 24) -> None:
        chance = np.random.default_rng(7)
        self.first = chance.standard_normal((width, 32)).astype(np.float32) / 8
        self.second = chance.standard_normal((5, 32)).astype(np.float32) / 8
        self.width, self.divided = width, divided
        x = ops.parameter([rows, width], np.float32, name="x")
        n = ops.parameter([rows, 1], np.int64, name="n")
        hidden = ops.tanh(ops.add(ops.matmul(x, ops.constant(self.first), False, False), ops.convert(n, "f32")))
        middle = Cube([hidden]) if divided else ops.multiply(ops.multiply(hidden, hidden), hidden)
        middle.set_friendly_name("middle")
        sums = ops.matmul(ops.relu(ops.add(middle, hidden)), ops.constant(self.second), False, True)
        more = ops.add(n, ops.constant(np.int64(3)))
        y = ops.sigmoid(ops.multiply(sums, ops.constant(np.float32(0.5))))
        large = ops.greater(y, ops.constant(np.float32(0.5)))
        results = [ops.result(y, name="y"), ops.result(large, name="large"), ops.result(more, name="more")]
        self.model = ov.Model(results, [x, n], "perceptron")

    def inputs(self, rows: int, seed: int = 0) -> list[Array]:
        chance = np.random.default_rng([rows, seed])
        return [chance.standard_normal((rows, self.width)).astype(np.float32), chance.integers(-2, 3, (rows, 1))]

    def expected(self, x: Array, n: Array) -> tuple[Array, Array]:
        hidden = np.tanh(x.astype(np.float64) @ self.first + n)
        sums = np.maximum(hidden**3 + hidden, 0) @ self.second.T.astype(np.float64)
        return 1 / (1 + np.exp(-0.5 * sums)), n + 3

    def check(self, results: Any, inputs: list[Array], tolerance: float = 2e-6) -> None:
        y, more = self.expected(*inputs)
        np.testing.assert_allclose(results[0], y, rtol=0, atol=tolerance)
        assert results[1].dtype == np.bool_ and results[2].dtype == np.int64
        is_clear = np.abs(y - 0.5) > tolerance
        np.testing.assert_array_equal(results[1][is_clear], y[is_clear] > 0.5)
        np.testing.assert_array_equal(results[2], more)


@pytest.fixture(scope="module")
def dynamic() -> tuple[Perceptron, Any]:
    given = Perceptron()
    return given, motet.openvino.compile_model(given.model, "CPU", "f32", smallest=2)


@pytest.fixture(scope="module")
def whole() -> tuple[Perceptron, Any]:
    given = Perceptron(19, divided=False)
    return given, motet.openvino.compile_model(given.model, "CPU", "f32")


def test_results_are_equal_for_any_number_of_rows(dynamic: tuple[Perceptron, Any]) -> None:
    given, compiled = dynamic
    for rows in (4, 1, 0, 7, 64, 33, 4):
        inputs = given.inputs(rows)
        for _ in range(2):  # the second call is a bound one
            given.check(compiled(inputs), inputs)


def test_the_report_names_what_stays_with_openvino_and_why(dynamic: tuple[Perceptron, Any]) -> None:
    _, compiled = dynamic
    (left,) = [left for left in compiled.report.left if left.type == "Cube"]
    assert left.name == "middle" and "Cube" in f"{left}" and left.reason
    kinds = [kind for part in compiled.report.replaced for kind in part.types]
    assert kinds.count("MatMul") == 2 and "Tanh" in kinds and "Cube" not in kinds
    assert left.between == "motet0 → motet1"
    lines = [re.split("  +", line.strip()) for line in str(compiled.report).splitlines()]
    assert lines[3][:2] == ["motet0", str(compiled.report.replaced[0].types.total())]
    assert ["OpenVINO", "1", "Cube middle", "motet0 → motet1", left.reason] in lines
    types = [node.get_type_name() for node in compiled.model.get_ordered_ops()]
    assert types.count("MotetCall") == len(compiled.report.replaced) == 2


def test_the_given_model_stays_as_it_was(dynamic: tuple[Perceptron, Any]) -> None:
    given, compiled = dynamic
    assert "MotetCall" not in [node.get_type_name() for node in given.model.get_ordered_ops()]
    assert [output.get_names() for output in compiled.outputs] == [{"y"}, {"large"}, {"more"}]
    assert [output.get_element_type() for output in compiled.outputs] == [ov.Type.f32, ov.Type.boolean, ov.Type.i64]


def test_a_call_works_on_the_tensors_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = ops.parameter([37, 20], np.float32), ops.parameter([37, 20], np.float32)
    model = ov.Model([ops.tanh(ops.exp(ops.add(x, ops.sigmoid(y))))], [x, y])
    compiled = motet.openvino.compile_model(model, "CPU", "f32")
    (runner,) = compiled.runners
    seen: list[tuple[set[int], int]] = []
    run = type(runner).run
    monkeypatch.setattr(type(runner), "run", lambda self, inputs, results: (
        seen.append(({array.ctypes.data for array in inputs}, results[0].ctypes.data)), run(self, inputs, results)))
    given = [np.random.default_rng(seed).standard_normal((37, 20)).astype(np.float32) for seed in (0, 1)]
    out = np.zeros((37, 20), np.float32)
    request = compiled.create_infer_request()
    for index, array in enumerate(given):
        request.set_input_tensor(index, ov.Tensor(array, shared_memory=True))
    request.set_output_tensor(0, ov.Tensor(out, shared_memory=True))
    for _ in range(3):
        request.infer()
    assert seen == [({array.ctypes.data for array in given}, out.ctypes.data)] * 3
    kinds = [str(node.get_rt_info()["layerType"].astype(str)) for node in compiled.get_runtime_model().get_ops()]
    assert sorted(kinds) == ["Input", "Input", "Output", "Reference"]  # and no reorder, which would be a copy
    wide = [array.astype(np.float64) for array in given]
    np.testing.assert_allclose(out, np.tanh(np.exp(wide[0] + 1 / (1 + np.exp(-wide[1])))), rtol=2e-6)


def test_parts_with_equal_inputs_stay_different(tmp_path: Path) -> None:
    """OpenVINO merges operations with equal inputs and attributes."""
    x = ops.parameter([-1, 4], np.float32)
    places = ops.non_zero(ops.greater(ops.relu(ops.sin(x)), ops.constant(np.float32(0.2))), "i64")
    results = [ops.tanh(ops.exp(x)), places, ops.is_nan(ops.add(x, x)), ops.sigmoid(ops.cos(x))]
    compiled = motet.openvino.compile_model(ov.Model(results, [x]), "CPU", "f32", smallest=1)
    assert len(compiled.report.replaced) == 4
    compiled.save(tmp_path / "parts.xml")
    for lines in (lambda text: text, lambda text: re.sub(r'<data part="motet\d" ?/>', "", text)):
        (tmp_path / "parts.xml").write_text(lines((tmp_path / "parts.xml").read_text()))
        for made in (compiled, motet.openvino.compile_model(tmp_path / "parts.xml", "CPU", "f32")):
            given = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
            given[2, 3] = np.nan
            wide = given.astype(np.float64)
            found = [np.array(value) for value in made([given]).values()]
            np.testing.assert_allclose(found[0], np.tanh(np.exp(wide)), rtol=1e-6)
            np.testing.assert_array_equal(found[1], np.nonzero(np.maximum(np.sin(wide), 0) > 0.2))
            np.testing.assert_array_equal(found[2], np.isnan(given))
            np.testing.assert_allclose(found[3], 1 / (1 + np.exp(-np.cos(wide))), rtol=1e-6)


def test_requests_run_at_once(dynamic: tuple[Perceptron, Any]) -> None:
    given, _ = dynamic
    config = {"NUM_STREAMS": "2", "INFERENCE_NUM_THREADS": 2}
    compiled = motet.openvino.compile_model(given.model, "CPU", "f32", smallest=2, config=config)
    assert [runner.threads for runner in compiled.runners] == [1, 1]
    inputs = [given.inputs(rows, rows) for rows in (3, 8, 1, 17, 0, 40)]
    results: dict[int, list[Array]] = {}
    queue = ov.AsyncInferQueue(compiled, 4)
    queue.set_callback(lambda request, key: results.__setitem__(
        key, [tensor.data.copy() for tensor in request.output_tensors]))
    for key in range(60):
        queue.start_async(inputs[key % len(inputs)], key)
    queue.wait_all()
    assert len(results) == 60
    for key, values in results.items():
        given.check(values, inputs[key % len(inputs)])


_PINNED = """
import os, sys, threading
import numpy as np, openvino as ov
from openvino import opset13 as ops
import motet.openvino
x = ops.parameter([512, 512], np.float32)
w = ops.constant(np.ones((512, 512), np.float32))
model = ov.Model([ops.tanh(ops.relu(ops.matmul(ops.sigmoid(x), w, False, False)))], [x])
config = {"ENABLE_CPU_PINNING": True, "INFERENCE_NUM_THREADS": 2}
compiled = motet.openvino.compile_model(model, "CPU", "f32", config=config)
own = os.sched_getaffinity(0)
compiled(np.ones((512, 512), np.float32))
for thread in threading.enumerate():
    if thread.name.startswith("motet-"):
        print(os.sched_getaffinity(thread.native_id) == own)
"""


def test_threads_do_not_share_the_processor_of_the_thread_that_openvino_pinned() -> None:
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two processors")
    done = subprocess.run([sys.executable, "-c", _PINNED], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True"], done.stdout + done.stderr


def test_an_error_in_a_call_is_one_line(dynamic: tuple[Perceptron, Any]) -> None:
    given, compiled = dynamic
    wrong = [given.inputs(5)[0], given.inputs(4)[1]]
    with pytest.raises(CallError, match=r"\A[^\n]*5[^\n]*\Z") as error:
        compiled(wrong)
    assert "4" in str(error.value)
    request = compiled.create_infer_request()
    request.start_async(wrong)
    with pytest.raises(CallError, match=r"\A[^\n]*\Z"):
        request.wait()
    with pytest.raises(CallError, match=r'\Ainput "x": axis 1 is 23; expected 24\Z'):
        compiled([given.inputs(5)[0][:, :-1], given.inputs(5)[1]])
    with pytest.raises(CallError, match=r"\A[^\n]*could not convert[^\n]*\Z"):
        compiled([np.full((5, 24), "word"), given.inputs(5)[1]])
    given.check(compiled(given.inputs(5)), given.inputs(5))


def test_a_saved_model_runs_without_the_compiler(whole: tuple[Perceptron, Any], tmp_path: Path) -> None:
    given, compiled = whole
    inputs = given.inputs(19)
    compiled.save(tmp_path / "saved.xml")
    np.savez(tmp_path / "inputs.npz", *inputs)
    script = f"""
import sys, numpy as np, openvino as ov, motet.openvino
core = ov.Core()
core.add_extension(motet.openvino.MotetCall)
inputs = np.load({str(tmp_path / "inputs.npz")!r})
results = core.compile_model({str(tmp_path / "saved.xml")!r}, "CPU")([inputs["arr_0"], inputs["arr_1"]])
np.savez({str(tmp_path / "results.npz")!r}, *results.values())
assert not [name for name in sys.modules if name.startswith(("motet.compiler", "mlir", "llvmlite"))]
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    results = np.load(tmp_path / "results.npz")
    given.check([results[name] for name in results.files], inputs)


def test_a_saved_model_is_compiled_again(dynamic: tuple[Perceptron, Any], tmp_path: Path) -> None:
    given, compiled = dynamic
    compiled.save(tmp_path / "saved.xml")
    core = ov.Core()
    core.add_extension(Cube)
    again = motet.openvino.compile_model(tmp_path / "saved.xml", "CPU", "f32", core=core)
    assert len(again.runners) == 2 and not again.report.replaced
    for rows in (6, 11):
        given.check(again(given.inputs(rows)), given.inputs(rows))


def test_damaged_code_in_a_saved_model_is_one_line(whole: tuple[Perceptron, Any], tmp_path: Path) -> None:
    _, compiled = whole
    compiled.save(tmp_path / "saved.xml")
    path = tmp_path / "saved.bin"
    content = path.read_bytes()
    for damaged in (bytes(len(content)), content[::-1], content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(OptionError, match=r"\A[^\n]*saved.xml: cannot be read: [^\n]*(artifact|saved.bin)[^\n]*\Z"):
            motet.openvino.compile_model(tmp_path / "saved.xml")


def test_caches_that_grow_stay_with_openvino() -> None:
    x = ops.parameter([1, -1, 8], np.float32, name="x")
    empty = ops.constant(np.zeros((1, 0, 8), np.float32))
    past = ops.read_value(empty, "cache", ov.Type.f32, ov.PartialShape([1, -1, 8]))
    now = ops.concat([past, x], 1)
    mixed = ops.matmul(ops.softmax(ops.matmul(x, now, False, True), 2), now, False, False)
    model = ov.Model([ops.result(ops.add(mixed, x))], [ops.assign(now, "cache")], [x], "cached")
    compiled = motet.openvino.compile_model(model, "CPU", "f32")
    assert len(compiled.report.replaced) == 1
    request, seen = compiled.create_infer_request(), np.zeros((1, 0, 8))
    for step, count in enumerate((5, 1, 1, 3)):
        given = np.random.default_rng(step).standard_normal((1, count, 8)).astype(np.float32)
        seen = np.concatenate([seen, given], 1)
        scores = np.exp(given @ seen.swapaxes(1, 2))
        wanted = scores / scores.sum(2, keepdims=True) @ seen + given
        np.testing.assert_allclose(request.infer([given])[0], wanted, rtol=1e-4, atol=1e-5)


def test_the_precision_follows_the_hint(whole: tuple[Perceptron, Any]) -> None:
    given, exact = whole
    if "BF16" not in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("OpenVINO computes in f32 on this processor")
    compiled = motet.openvino.compile_model(given.model, "CPU", ov.Type.bf16)
    inputs = given.inputs(19)
    given.check(compiled(inputs), inputs, tolerance=0.02)
    assert np.abs(compiled(inputs)[0] - exact(inputs)[0]).max() > 1e-5
    assert compiled.get_property("INFERENCE_PRECISION_HINT") == ov.Type.bf16


def test_the_precision_follows_the_execution_mode(whole: tuple[Perceptron, Any]) -> None:
    given, exact = whole
    accurate = motet.openvino.compile_model(given.model, "CPU", config={"EXECUTION_MODE_HINT": "ACCURACY"})
    inputs = given.inputs(19)
    np.testing.assert_array_equal(accurate(inputs)[0], exact(inputs)[0])


def test_states_stay_with_openvino() -> None:
    x = ops.parameter([3, 8], np.float32)
    state = ops.read_value(ops.constant(np.ones((3, 8), np.float32)), "sum", ov.Type.f32, ov.PartialShape([3, 8]))
    total = ops.tanh(ops.exp(ops.multiply(ops.add(state, x), ops.constant(np.float32(0.5)))))
    model = ov.Model([ops.result(total)], [ops.assign(total, "sum")], [x], "stateful")
    compiled = motet.openvino.compile_model(model, "CPU", "f32")
    assert {"ReadValue", "Assign"} <= {left.type for left in compiled.report.left if "state" in left.reason}
    assert len(compiled.report.replaced) == 1
    request = compiled.create_infer_request()
    given = np.random.default_rng(3).standard_normal((3, 8)).astype(np.float32)
    for _ in range(2):
        expected = np.ones((3, 8))
        for _ in range(3):
            expected = np.tanh(np.exp(0.5 * (expected + given)))
            np.testing.assert_allclose(request.infer([given])[0], expected, rtol=5e-6)
        request.reset_state()


def test_a_part_that_fails_is_divided_at_the_operation_that_its_error_names() -> None:
    given = Perceptron(6, divided=False)
    middle = given.model.clone()
    seen: list[list[str]] = []

    def compile_part(part: Any) -> Any:
        names = [node.get_friendly_name() for node in part.get_ordered_ops()]
        seen.append(names)
        if "middle" in names:
            raise CompileError("Multiply 'middle': refused")
        return motet.compile(part, devices="host{cpu=native}")

    lowering = Lowering(lambda node: "no lowering" if node.get_type_name() == "Greater" else "", compile_part, 2)
    compiled = compile_with(ov.Core(), middle, "CPU", Settings({"INFERENCE_PRECISION_HINT": "f32"}, "f32"), lowering)
    assert "middle" in seen[0] and all("middle" not in names for names in seen[1:])
    reasons = {left.name: left.reason for left in compiled.report.left}
    assert reasons["middle"] == "Multiply 'middle': refused"
    assert sum(part.types["MatMul"] for part in compiled.report.replaced) == 2
    given.check(compiled(given.inputs(6)), given.inputs(6))


@pytest.mark.parametrize("kind", [CompileError, ArtifactError])
def test_a_part_that_fails_is_divided_where_its_error_names_no_operation(kind: type[MotetError]) -> None:
    given = Perceptron(6, divided=False)
    compiled = motet_without(given.model, lambda names: "middle" in names, kind("the compiler refuses it"))
    reasons = {left.name: left.reason for left in compiled.report.left}
    assert reasons["middle"] == "the compiler refuses it"
    assert sum(part.types["MatMul"] for part in compiled.report.replaced) == 2
    given.check(compiled(given.inputs(6)), given.inputs(6))


def test_a_part_that_fails_is_divided_at_the_operation_whose_body_its_error_names() -> None:
    x, wanted = ops.parameter([4, 5], np.float32, name="x"), ops.parameter([], np.bool_, name="wanted")
    inner = ops.parameter([4, 5], np.float32)
    deep = ops.exp(inner)
    deep.set_friendly_name("deep")
    branch = ops.if_op(wanted)
    branch.set_then_body(ov.Model([ops.result(deep)], [inner], "then"))
    other = ops.parameter([4, 5], np.float32)
    branch.set_else_body(ov.Model([ops.result(ops.tanh(other))], [other], "else"))
    branch.set_input(ops.tanh(ops.sin(ops.abs(x))).output(0), inner, other)
    chosen = branch.set_output(branch.get_then_body().get_results()[0], branch.get_else_body().get_results()[0])
    branch.set_friendly_name("branch")
    model = ov.Model([ops.result(ops.relu(ops.sin(ops.exp(chosen))))], [x, wanted], "branches")
    compiled = motet_without(model, lambda names: "branch" in names, CompileError("Exp 'deep': refused"))
    assert {left.name: left.reason for left in compiled.report.left}["branch"] == "Exp 'deep': refused"
    kinds = [kind for part in compiled.report.replaced for kind in part.types]
    assert sorted(kinds) == ["Abs", "Exp", "Relu", "Sin", "Sin", "Tanh"]
    given = np.random.default_rng(4).standard_normal((4, 5)).astype(np.float32)
    middle = np.tanh(np.sin(np.abs(given.astype(np.float64))))
    for chosen_one, found in ((True, np.exp(middle)), (False, np.tanh(middle))):
        wide = np.maximum(np.sin(np.exp(found)), 0)
        np.testing.assert_allclose(compiled([given, np.array(chosen_one)])[0], wide, rtol=1e-4, atol=1e-6)


def motet_without(model: Any, is_refused: Callable[[list[str]], bool], error: MotetError) -> Any:
    """A model compiled with a compiler that refuses parts by the names of their operations."""

    def compile_part(part: Any) -> Any:
        if is_refused([node.get_friendly_name() for node in part.get_ordered_ops()]):
            raise error
        return motet.compile(part, devices="host{cpu=native}")

    lowering = Lowering(lambda node: "no lowering" if node.get_type_name() == "Greater" else "", compile_part, 2)
    settings = Settings({"INFERENCE_PRECISION_HINT": "f32"}, "f32")
    return compile_with(ov.Core(), model.clone(), "CPU", settings, lowering)


@pytest.mark.slow
def test_the_example_compares_networks() -> None:
    example = Path(__file__).parents[2] / "examples" / "openvino_pipeline.py"
    arguments = ["mlp_small", "--hint", "f32", "--seconds", "0.1"]
    done = subprocess.run([sys.executable, str(example), *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].split()[:2] == ["mlp_small", "f32"] and "OpenVINO: 0" in done.stdout


def test_an_operation_without_a_lowering_that_reads_constants_alone_is_the_only_one_left() -> None:
    x = ops.parameter([2, 3], np.float32)
    shape = ops.constant(np.array([2, 3]))
    chance = ops.random_uniform(shape, ops.constant(np.float32(0)), ops.constant(np.float32(1)), "f32", 7, 9)
    model = ov.Model([ops.exp(ops.tanh(ops.sin(ops.add(x, ops.multiply(chance, ops.constant(np.float32(0)))))))], [x])
    compiled = motet.openvino.compile_model(model, "CPU", "f32")
    assert [left.type for left in compiled.report.left] == ["RandomUniform"]
    given = np.random.default_rng(3).standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(compiled([given])[0], np.exp(np.tanh(np.sin(given.astype(np.float64)))), rtol=1e-6)


def test_bounds_of_extents_are_kept_and_checked() -> None:
    bounds = ov.PartialShape([ov.Dimension(1, 8), ov.Dimension(3, -1), 13])
    x, y = ops.parameter(bounds, np.float32, name="x"), ops.parameter(bounds, np.float32)
    both = ops.sigmoid(ops.add(ops.tanh(x), ops.exp(y)))
    twice = ops.sin(ops.concat([both, both], 0))
    twice.set_friendly_name("twice")
    model = ov.Model([ops.result(ops.cos(Cube([both]))), ops.result(twice)], [x, y], "bounded")
    compiled = motet.openvino.compile_model(model, "CPU", "f32")
    for made in (compiled, model):
        shapes = [str(output.get_partial_shape()) for output in made.outputs]
        assert shapes == ["[1..8,3..,13]", "[2..16,3..,13]"]
    for given in ((1, 3, 13), (8, 20, 13)):
        arrays = [np.random.default_rng(seed).standard_normal(given).astype(np.float32) for seed in (1, 2)]
        wide = 1 / (1 + np.exp(-(np.tanh(arrays[0].astype(np.float64)) + np.exp(arrays[1].astype(np.float64)))))
        found = compiled(arrays)
        np.testing.assert_allclose(found[0], np.cos(wide**3), rtol=1e-5)
        np.testing.assert_allclose(found[1], np.sin(np.concatenate([wide, wide])), rtol=1e-5)
    for given, text in (((9, 4, 13), "axis 0 is 9; expected 1..8"), ((0, 4, 13), "axis 0 is 0; expected 1..8"),
                        ((2, 2, 13), r"axis 1 is 2; expected 3.."), ((2, 4), "2 axes given; expected 3")):
        with pytest.raises(CallError, match=rf'\Ainput "x": {text}\Z'):
            compiled([np.zeros(given, np.float32), np.zeros((2, 4, 13), np.float32)])


@pytest.mark.parametrize("rows", [-1, 3])
def test_bodies_that_stay_with_openvino_are_divided(rows: int, tmp_path: Path) -> None:
    """An operation without a lowering in a loop's body, which has a branch, keeps no other from Motet."""
    chance = np.random.default_rng(rows + 5)
    weights = chance.standard_normal((7, 7)).astype(np.float32) / 4
    x, n = ops.parameter([rows, 7], np.float32, name="x"), ops.parameter([], np.int64, name="n")
    number, carried = ops.parameter([], np.int64), ops.parameter([rows, 7], np.float32)
    drawn = ops.random_uniform(ops.constant([1, 7]), ops.constant(np.float32(0)), ops.constant(np.float32(1)), "f32", 5)
    cubes = Cube([ops.sigmoid(ops.matmul(ops.tanh(ops.add(carried, ops.floor(drawn))), weights, False, False))])
    branch = ops.if_op(ops.equal(ops.floor_mod(number, ops.constant(np.int64(2))), ops.constant(np.int64(0))).output(0))
    even, odd = ops.parameter([rows, 7], np.float32), ops.parameter([rows, 7], np.float32)
    branch.set_then_body(ov.Model([ops.result(ops.sin(ops.cos(Cube([even]))))], [even], "even"))
    branch.set_else_body(ov.Model([ops.result(ops.cos(ops.exp(Cube([odd]))))], [odd], "odd"))
    branch.set_input(ops.sin(cubes).output(0), even, odd)
    chosen = branch.set_output(*[each.get_results()[0] for each in (branch.get_then_body(), branch.get_else_body())])
    body = ov.Model([ops.result(ops.constant(np.bool_(True))), ops.result(chosen)], [number, carried], "body")
    loop = ops.loop(n.output(0), ops.constant(np.bool_(True)).output(0))
    loop.set_function(body)
    loop.set_special_body_ports([0, 0])
    loop.set_merged_input(carried, x.output(0), body.results[1].output(0))
    model = ov.Model([ops.result(loop.get_iter_value(body.results[1].output(0), -1))], [x, n], "loop")
    compiled = motet.openvino.compile_model(model, "CPU", "f32", smallest=2)
    kinds = [kind for part in compiled.report.replaced for kind in part.types.elements()]
    assert sorted(kinds) == sorted(
        ["Add", "Floor", "Tanh", "MatMul", "Sigmoid", "FloorMod", "Equal", "Sin", "Cos", "Cos", "Exp"])
    assert Counter(left.type for left in compiled.report.left) == {
        "Loop": 1, "If": 1, "RandomUniform": 1, "Cube": 3, "Sin": 1}
    core = ov.Core()
    for extension in (Cube, motet.openvino.MotetCall):
        core.add_extension(extension)
    compiled.save(tmp_path / "loop.xml")
    saved = motet.openvino.compile_model(tmp_path / "loop.xml", "CPU", "f32", core=core)
    assert len(saved.runners) == len(compiled.runners) == len(compiled.report.replaced)
    given = chance.standard_normal((3, 7)).astype(np.float32)
    wide = given.astype(np.float64)
    for times in range(1, 4):
        wide = np.sin((1 / (1 + np.exp(-np.tanh(wide) @ weights))) ** 3) ** 3
        wide = np.sin(np.cos(wide)) if times % 2 else np.cos(np.exp(wide))
        for made in (compiled, saved):
            np.testing.assert_allclose(made([given, np.array(times)])[0], wide, rtol=1e-5)


def test_a_small_part_stays_with_openvino() -> None:
    x = ops.parameter([4], np.float32)
    compiled = motet.openvino.compile_model(ov.Model([ops.relu(x)], [x]), "CPU", "f32")
    assert not compiled.report.replaced
    assert [(left.type, left.reason) for left in compiled.report.left] == [
        ("Relu", "in a part with 1 working operation; expected at least 4")]


@pytest.mark.parametrize(("arguments", "message"), [
    ({"device": "XPU"}, r"device 'XPU': no such device; expected CPU, or compile_on_queue"),
    ({"hint": "f99"}, r"hint 'f99': no such precision; expected one of f32, bf16"),
    ({"hint": "f16"}, r"hint 'f16': no such precision; expected one of f32, bf16"),
    ({"hint": "f32", "config": {"INFERENCE_PRECISION_HINT": "bf16"}}, r"hint 'f32': the property .* is bf16"),
    ({"config": {"NO_SUCH_PROPERTY": "1"}}, r"device CPU: .*NO_SUCH_PROPERTY"),
])  # fmt: skip
def test_a_wrong_argument_is_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=rf"\A{message}[^\n]*\Z"):
        motet.openvino.compile_model(Perceptron(4).model, **arguments)


def test_a_model_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"\A[^\n]*missing.xml: cannot be read[^\n]*\Z"):
        motet.openvino.compile_model(tmp_path / "missing.xml")
    ov.save_model(Perceptron(4, divided=False).model, tmp_path / "alone.xml", compress_to_fp16=False)
    (tmp_path / "alone.bin").unlink()
    with pytest.raises(OptionError, match=r"\A[^\n]*alone.xml: cannot be read[^\n]*\Z"):
        motet.openvino.compile_model(tmp_path / "alone.xml")
    with pytest.raises(OptionError, match=r"\Amodel: it is of type builtins.int; expected an openvino.Model[^\n]*\Z"):
        motet.openvino.compile_model(3)
