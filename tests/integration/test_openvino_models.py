"""Models of OpenVINO as objects and as IR: dynamic extents, states, compressed weights, and what is refused."""

# openvino may not be installed, and has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import motet
from motet.errors import CallError, CompileError, OptionError

openvino: Any = pytest.importorskip("openvino", reason="needs OpenVINO: make frameworks")
from examples.openvino_models import average, mlp  # noqa: E402
from openvino import opset13 as ops  # noqa: E402

import motet.openvino  # noqa: E402
from motet.compiler.frontends.openvino.rules import RULES  # noqa: E402
from motet.compiler.frontends.openvino.translate import read, supported  # noqa: E402

F32 = np.float32


def results_of(model: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    """OpenVINO's results in f32, without rounding of activations."""
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    found = openvino.compile_model(model, "CPU", exact)(list(inputs))
    return [np.array(found[number]) for number in range(len(model.outputs))]


def c(value: Any, dtype: Any = None) -> Any:
    return ops.constant(np.asarray(value, dtype))


def parameter(*shape: int, name: str = "x") -> Any:
    return ops.parameter(list(shape), F32, name=name)


def saved(model: Any, folder: Path) -> Path:
    path = folder / "model.xml"
    openvino.save_model(model, path, compress_to_fp16=False)
    return path


def refusal(source: Any) -> str:
    with pytest.raises(CompileError) as caught:
        motet.compile(source, cache=False)
    return str(caught.value)


def test_model_and_ir_equal_openvino_for_any_batch(tmp_path: Path) -> None:
    model = mlp(33, 65)
    from_model = motet.load(motet.compile(model))
    from_file = motet.load(motet.compile(saved(model, tmp_path)))
    for rows in (1, 3, 17):
        x = np.random.default_rng(rows).standard_normal((rows, 33)).astype(F32)
        wanted = results_of(model, x)[0]
        for session in (from_model, from_file):
            np.testing.assert_allclose(np.asarray(session(x)), wanted, rtol=1e-5, atol=1e-5)


def test_session_keeps_states() -> None:
    session = motet.load(motet.compile(average(5)))
    rows = np.random.default_rng(0).standard_normal((4, 1, 5)).astype(F32)
    for count in range(1, 5):
        mean = np.asarray(session(rows[count - 1]))
        np.testing.assert_allclose(mean, rows[:count].mean(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["u8", "u4", "i4"])
def test_compressed_weights_stay_short(kind: str, tmp_path: Path) -> None:
    features, outputs, groups = 256, 192, 4
    rng = np.random.default_rng(3)
    low, high = {"u8": (0, 256), "u4": (0, 16), "i4": (-8, 8)}[kind]
    shape = [outputs, groups, features // groups]
    stored = rng.integers(low, high, shape)
    zero = rng.integers(6, 10, [outputs, groups, 1]) if kind[0] == "u" else np.zeros([outputs, groups, 1], np.int64)
    scale = (rng.random([outputs, groups, 1]) * 0.02).astype(np.float16)
    weights = ops.convert(_short(kind, stored), "f16")
    if kind[0] == "u":
        weights = ops.subtract(weights, ops.convert(_short(kind, zero), "f16"))
    weights = ops.reshape(ops.multiply(weights, c(scale)), c([outputs, features]), False)
    x = parameter(-1, features)
    model = openvino.Model([ops.matmul(x, ops.convert(weights, "f32"), False, True)], [x], "compressed")

    artifact = motet.compile(model, devices="host{cpu=x86-64-v3}")
    artifact.save(tmp_path / "w.motet")
    given = rng.standard_normal((3, features)).astype(F32)
    exact = given.astype(np.float64) @ ((stored - zero) * scale.astype(np.float64)).reshape(outputs, features).T
    found = np.asarray(motet.load(artifact)(given))
    np.testing.assert_allclose(found, exact, rtol=1e-2, atol=1e-2 * np.abs(exact).max())  # products in f16 are rounded
    assert (tmp_path / "w.motet").stat().st_size < outputs * features * (1 if kind == "u8" else 0.5) + 64 * 1024


def _short(kind: str, values: np.ndarray) -> Any:
    return openvino.op.Constant(getattr(openvino.Type, kind), openvino.Shape(values.shape), values.reshape(-1).tolist())


def test_dynamic_shape_subgraph_equals_openvino() -> None:
    x = parameter(-1, -1, 6)
    extents = ops.shape_of(x)
    rows = ops.gather(extents, c([0, 1]), c(0))
    count = ops.reduce_prod(rows, c([0]), True)
    flat = ops.reshape(x, ops.concat([count, c([6])], 0), False)
    split = ops.strided_slice(flat, c([1, 0]), c([0, 2]), c([1, 1]), [0, 0], [1, 0])
    model = openvino.Model([split, ops.reduce_mean(x, c([1]), False)], [x], "shapes")
    session = motet.load(motet.compile(model))
    for shape in ((2, 3, 6), (1, 5, 6), (4, 1, 6)):
        given = np.random.default_rng(1).standard_normal(shape).astype(F32)
        for mine, wanted in zip(session(given), results_of(model, given), strict=True):
            np.testing.assert_allclose(np.asarray(mine), wanted, rtol=1e-5, atol=1e-6)


def test_constant_parts_are_computed_when_reading() -> None:
    x = parameter(2, 3, 5)
    filled = ops.convert(ops.broadcast(c(0.0, F32), ops.shape_of(x)), "boolean")
    places = ops.cum_sum(ops.convert(ops.bitwise_not(filled), "f32"), c(1))
    written = read(openvino.Model([ops.add(x, places)], [x], "places"))
    assert [node.op_type for node in written.proto.graph.node] == ["Add", "Identity"]
    wanted = np.broadcast_to(np.array([1, 2, 3], F32)[:, None], (2, 3, 5))
    np.testing.assert_array_equal(next(iter(written.constants.values())), wanted)


def test_operator_without_lowering_is_named() -> None:
    x = parameter(1, 3, 4)
    random = ops.random_uniform(c([2]), c(0.0, F32), c(1.0, F32), "f32")
    random.set_friendly_name("dice")
    model = openvino.Model([ops.relu(x), random], [x], "m")
    assert "no lowering for RandomUniform 'dice' (opset8): no lowering" in refusal(model)
    assert supported(random) == "no lowering"
    assert supported(ops.relu(x)) is None


def test_the_page_lists_the_operators_without_a_lowering() -> None:
    known = {kind.lower() for kind in RULES} | {"parameter", "result", "constant", "readvalue", "assign", "ifop"}
    known |= {"absolute", "ceil"}  # other names of Abs and Ceiling
    offered = {
        name.replace("_", "") for number in range(1, 17)
        for name, made in vars(importlib.import_module(f"openvino.opset{number}")).items()
        if callable(made) and not name.startswith("_")
    }
    page = (Path(__file__).parents[2] / "docs/openvino_models.md").read_text()
    table = page[page.index("| family | without a lowering |") : page.index("## Models")]
    assert {name.lower() for name in re.findall(r"`(\w+)`", table)} == offered - known


def test_form_without_lowering_gives_the_reason() -> None:
    x = parameter(-1, 3, 4, 4)
    node = ops.interpolate(x, c([7, 7]), "bilinear_pillow", "sizes", axes=c([2, 3]))
    assert "mode=bilinear_pillow; expected nearest" in str(supported(node))


@pytest.mark.parametrize("mode", ["nearest", "linear_onnx"])
def test_images_are_resized_to_extents_of_another(mode: str) -> None:
    x, y = parameter(-1, 3, -1, -1), parameter(-1, 3, -1, -1, name="y")
    sizes = ops.gather(ops.shape_of(y), c([2, 3]), c(0))
    resized = ops.interpolate(x, sizes, mode, "sizes", nearest_mode="floor", axes=c([2, 3]))
    model = openvino.Model([resized, ops.relu(y)], [x, y], "resized")
    session = motet.load(motet.compile(model, cache=False))
    for before, after in (((2, 3, 4, 6), (1, 3, 9, 5)), ((1, 3, 4, 4), (1, 3, 4, 8)), ((1, 3, 5, 7), (1, 3, 5, 7))):
        given = [np.random.default_rng(2).standard_normal(shape).astype(F32) for shape in (before, after)]
        wanted = results_of(model, *given)[0]
        assert wanted.shape[2:] == after[2:]
        np.testing.assert_allclose(np.asarray(session(*given)[0]), wanted, rtol=1e-5, atol=1e-5)


def test_bounds_of_extents_are_checked_in_calls(tmp_path: Path) -> None:
    x = ops.parameter(openvino.PartialShape("[2..8,3,..9]"), F32, name="x")
    y = ops.parameter(openvino.PartialShape("[3..,1]"), F32, name="y")
    model = openvino.Model([ops.relu(ops.exp(x)), ops.abs(y)], [x, y], "bounded")
    for source in (model, saved(model, tmp_path)):
        session = motet.load(motet.compile(source, cache=False))
        for shape, rows in (((2, 3, 9), 3), ((8, 3, 0), 70)):
            given = [np.ones(shape, F32), np.ones((rows, 1), F32)]
            assert [np.asarray(each).shape for each in session(*given)] == [shape, (rows, 1)]
        for shape, rows, text in (((9, 3, 1), 3, 'input "x": axis 0 must be at most 8: 9 and 8'),
                                  ((1, 3, 1), 3, 'input "x": axis 0 must be at least 2: 2 and 1'),
                                  ((2, 3, 10), 3, 'input "x": axis 2 must be at most 9: 10 and 9'),
                                  ((2, 3, 1), 2, 'input "y": axis 0 must be at least 3: 3 and 2')):
            with pytest.raises(CallError, match=text):
                session(np.ones(shape, F32), np.ones((rows, 1), F32))


def test_state_of_dynamic_extents_is_named() -> None:
    x = parameter(-1, 4)
    kind = openvino.Type.f32
    past = ops.read_value(ops.broadcast(c(0.0, F32), ops.shape_of(x)), "cache", kind, openvino.PartialShape([-1, 4]))
    now = ops.add(past, x)
    model = openvino.Model([ops.result(now)], [ops.assign(now, "cache")], [x], "m")
    with pytest.raises(CompileError, match=r"state 'cache' .*its extents are dynamic .*expected known ones"):
        read(model)


def branches(rows: int, condition: Any) -> Any:
    """A model of one branch, `pick`: twice the rows, or as many."""
    x = ops.parameter([rows, 4], F32, name="x")
    one, other = ops.parameter([rows, 4], F32), ops.parameter([rows, 4], F32)
    then = openvino.Model([ops.result(ops.concat([one, one], 0) if rows < 0 else ops.exp(one))], [one], "then")
    otherwise = openvino.Model([ops.result(ops.relu(other))], [other], "else")
    branch = ops.if_op(condition)
    branch.set_friendly_name("pick")
    branch.set_then_body(then)
    branch.set_else_body(otherwise)
    branch.set_input(x.output(0), one, other)
    chosen = branch.set_output(then.get_results()[0], otherwise.get_results()[0])
    given = [condition] if condition.get_type_name() == "Parameter" else []
    return openvino.Model([ops.result(chosen)], [x, *given])


def test_a_branch_with_dynamic_results_is_named() -> None:
    found = refusal(branches(-1, ops.parameter([], np.bool_, name="which")))
    assert "no lowering for If 'pick' (opset8): result 0 has dynamic extents, ?x4, which the branch decides" in found
    assert "\n" not in found


def test_a_branch_with_known_results_is_chosen_by_each_call() -> None:
    x = np.arange(-6, 6, dtype=F32).reshape(3, 4)
    with motet.load(motet.compile(branches(3, ops.parameter([], np.bool_, name="which")))) as session:
        np.testing.assert_allclose(session(x, np.array(True)), np.exp(x.astype("f8")), rtol=1e-6)
        np.testing.assert_array_equal(session(x, np.array(False)), np.maximum(x, 0))


@pytest.mark.parametrize("verify", [(), ("--verify",)])
def test_a_run_without_inputs_names_them_with_their_unknown_extents(
    fails: Callable[..., str], tmp_path: Path, verify: tuple[str, ...]
) -> None:
    x, y = ops.parameter([-1, 4], F32, name="x"), ops.parameter([4, 3], F32, name="y")
    file = saved(openvino.Model([ops.result(ops.matmul(x, y, False, False))], [x, y]), tmp_path)
    said = fails("run", file, *verify)
    assert "2 expected by main(x: x.0x4xf32, y: 4x3xf32)" in said
    assert "--input x.0x4xf32=" in said and said.rstrip().endswith("with numbers for x.0")


def test_dynamic_rank_is_refused() -> None:
    x = ops.parameter(openvino.PartialShape.dynamic(), F32, name="x")
    with pytest.raises(CompileError, match="input 'x': its rank is dynamic"):
        read(openvino.Model([ops.relu(x)], [x], "m"))


def test_ir_without_weights(tmp_path: Path) -> None:
    path = saved(mlp(5, 7), tmp_path)
    path.with_suffix(".bin").rename(tmp_path / "kept")
    assert "its constants are missing; expected 328 bytes in model.bin" in refusal(path)
    path.with_suffix(".bin").write_bytes((tmp_path / "kept").read_bytes()[:100])
    assert "its constants are truncated: model.bin has 100 bytes; expected 328" in refusal(path)


@pytest.mark.parametrize("place", ["99999999", "18446744073709551552", "-8", "0x7fffffff"])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_constants_outside_their_file_are_refused(place: str, quote: str, tmp_path: Path) -> None:
    path = saved(mlp(5, 7), tmp_path)
    text = path.read_text()
    assert 'offset="140"' in text
    path.write_text(text.replace('offset="140"', f"offset={quote}{place}{quote}"))
    with pytest.raises(OptionError, match=r"\A[^\n]*model.xml: cannot be read: [^\n]*\Z") as caught:
        motet.openvino.compile_model(path)
    for said in (refusal(path), str(caught.value)):
        assert "\n" not in said
        assert "its constants are truncated: model.bin has 328 bytes" in said or place in said


def test_damaged_ir_is_one_error(tmp_path: Path) -> None:
    path = saved(mlp(5, 7), tmp_path)
    text = path.read_bytes()
    path.write_bytes(text[: len(text) // 2])
    assert "truncated, or not OpenVINO IR" in refusal(path)
    for wrong in (text.replace(b'type="MatMul"', b'type="Nothing"'), text.replace(b"<edges>", b"<edge>"),
                  text.replace(b'from-layer="0"', b'from-layer="99"')):
        path.write_bytes(wrong)
        said = refusal(path)
        assert "not OpenVINO IR that openvino" in said
        assert "\n" not in said


@pytest.mark.parametrize("lengths", [(2, -1, 3), (1, 4, 4), (-1, 8, 1)])
def test_a_split_by_lengths_of_a_call(lengths: tuple[int, ...]) -> None:
    given = ops.parameter([3], np.int64, name="lengths")
    parts = ops.variadic_split(image := parameter(-1, -1), c(1, np.int64), given)
    model = openvino.Model([ops.relu(parts.output(number)) for number in range(3)], [image, given])
    inputs = np.random.default_rng(1).random((4, 9), F32) - F32(0.5), np.array(lengths)
    for found, wanted in zip(motet.load(motet.compile(model))(*inputs), results_of(model, *inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_ir_with_a_document_type_is_read(tmp_path: Path) -> None:
    model = mlp(9, 5)
    path = saved(model, tmp_path)
    text = path.read_text()
    first, rest = text.split("?>", 1) if text.startswith("<?") else ("<?xml version='1.0'", text)
    path.write_text(f"{first}?>\n<!DOCTYPE net>\n{rest}")
    rows = np.random.default_rng(2).random((3, model.inputs[0].get_partial_shape()[1].get_length()), F32)
    np.testing.assert_allclose(motet.load(motet.compile(path))(rows), results_of(model, rows)[0], rtol=1e-5, atol=1e-6)
