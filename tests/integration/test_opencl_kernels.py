"""Kernels of every class on an OpenCL platform, from SPIR-V, against numpy and ONNX's reference."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from examples import models
from onnx.reference import ReferenceEvaluator
from tests.integration import onnx_forms, onnx_more_forms
from tests.integration.onnx_forms import Form, faults, together
from tests.integration.test_foreign_processors import CASES, Case
from tests.integration.test_gpu_dialect import INLINE, MATMUL_LAUNCH
from tests.unit.compiler.building import random
from tests.unit.runtime.drivers.opencl.opening import spirv_device

import motet
from motet import builder as mb
from motet.artifact.dtypes import DTYPES
from motet.errors import CompileError, DeviceLost

TARGET = {"": "opencl{cpu=spirv64}"}
URI = "opencl:0"
# Forms by a part of their names: classes that the programs of `CASES` do not have.
FORMS: dict[str, tuple[Callable[[], Iterator[Form]], tuple[str, ...]]] = {
    "reductions": (onnx_forms.reductions, (
        "ArgMax axis=1 select_last_index=0 float64[3,4]", "ArgMin axis=0 select_last_index=1 float32[3,4]",
        "Hardmax axis=-1 float64[3,5,7]",
    )),
    "moves": (onnx_more_forms.moves, (
        "TopK axis=-1 largest=1 int64[5,6]", "ScatterND reduction=min float32[3,4]", "Slice bool[3,4,5]",
    )),
    "products": (onnx_forms.products, ("Conv group=2 float32[2,4,8,7]", "MatMulInteger int8[3,5] uint8[5,7]")),
    "recurrent": (onnx_more_forms.recurrent, ("LSTM hidden_size=2 direction=forward",)),
    "attends": (onnx_more_forms.attends, ("Attention float32[2,4,3,8]",)),
    "values": (onnx_forms.binary, ("Max float64[7] float64[7]", "Clip float32[16]", "Min float64[7] float64[7]")),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _platform() -> None:
    spirv_device(URI)


def _loaded(program: object) -> motet.Session:
    return motet.load(motet.compile(program, devices=TARGET), devices={"": URI})  # type: ignore[arg-type]


def _listed(results: object) -> list[np.ndarray]:
    return [np.asarray(result) for result in (results if isinstance(results, (tuple, list)) else [results])]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_programs_agree_with_numpy(make: Callable[[], Case]) -> None:
    case = make()
    results = _listed(_loaded(case.program)(*case.inputs))
    for result, expected in zip(results, case.expected, strict=True):
        np.testing.assert_allclose(result.astype(np.float64), expected, rtol=case.tolerance, atol=case.tolerance)


def _forms(group: str) -> list[Form]:
    make, names = FORMS[group]
    found: dict[str, Form] = {}
    for form in make():
        for name in names:
            if name in form.name:
                found.setdefault(name, form)
    assert found.keys() == set(names)
    return list(found.values())


@pytest.mark.parametrize("group", FORMS)
def test_operators_agree_with_the_reference_of_onnx(group: str) -> None:
    by_version: dict[int, list[Form]] = {}
    for form in _forms(group):
        by_version.setdefault(form.version, []).append(form)
    for forms in by_version.values():
        references = [form.reference() for form in forms]
        call = _loaded(together(forms, [declared for declared, _ in references]))
        for _ in range(2):
            results = _listed(call(*(array for form in forms for array in form.feeds())))
            for form, (declared, exact) in zip(forms, references, strict=True):
                own, results = results[: len(declared)], results[len(declared) :]
                assert not (what := faults(form, own, declared, exact)), f"{form.name}: {what}"


def test_calls_with_memory_allocated_anew_and_other_extents() -> None:
    """Memory that was given back and allocated again at its address holds what a later launch writes there."""
    w = np.full((40, 24), 0.1, np.float32)
    with mb.Graph("main") as g:
        hidden = mb.relu(g.input("x", ("batch", 40)) @ g.constant(w))
        g.result(mb.relu(hidden @ g.constant(w.T.copy())))
    call = _loaded(g)
    for batch in (1, 7, 7, 7, 64, 7, 1, 33):
        (found,) = _listed(call(np.full((batch, 40), 0.1, np.float32)))
        np.testing.assert_allclose(found, np.full((batch, 40), 0.1 * 0.1 * 40 * 0.1 * 24), rtol=1e-5)


def test_launches_of_gpu_kernels_run_with_their_barriers_and_tokens() -> None:
    a, b, x = random(24, 40, seed=1), random(40, 16, seed=2), random(6, 5)
    (found,) = _listed(_loaded(MATMUL_LAUNCH)(a, b, np.zeros((24, 16), np.float32)))
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)
    (found,) = _listed(_loaded(INLINE)(x))
    np.testing.assert_allclose(found, x + 0.5, rtol=1e-6)


@pytest.mark.parametrize("bound", [{"gpu": URI}, {"gpu": "host"}], ids=["all there", "none but the host"])
def test_a_program_for_opencl_an_accelerator_and_the_host(bound: dict[str, str]) -> None:
    made, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    nodes = [node("Exp", ["x"], ["a"], "first"), node("MatMul", ["a", "w"], ["b"], "second"),
             node("Neg", ["b"], ["y"], "third")]  # fmt: skip
    graph = onnx.helper.make_graph(
        nodes, "main", [made("x", onnx.TensorProto.FLOAT, [6, 9]), made("w", onnx.TensorProto.FLOAT, [9, 4])],
        [made("y", onnx.TensorProto.FLOAT, [6, 4])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    devices = {"cpu": "host", "gpu": "opencl{cpu=spirv64},@cpu", "acc": "riscv,@cpu"}
    artifact = motet.compile(model, devices=devices, place={"first": "gpu", "second": "acc", "third": "cpu"})
    x, w = random(6, 9), random(9, 4)
    with motet.load(artifact, devices=bound) as session:
        (found,) = _listed(session(x, w))
    np.testing.assert_allclose(found, -(np.exp(x.astype(np.float64)) @ w), rtol=1e-4, atol=1e-5)


def test_the_host_does_the_work_of_a_platform_whose_compiler_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mb.Graph("main") as g:
        g.result(mb.exp(g.input("x", ("batch", 7))))
    artifact = motet.compile(g, devices={"gpu": "opencl{cpu=spirv64},@cpu", "cpu": "host"})
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -ABRT $$\n")
    dying.chmod(0o755)
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path / "cache"))
    motet.devices()  # the platforms are known to work
    monkeypatch.setattr(sys, "executable", str(dying))
    x = random(5, 7)
    with motet.load(artifact) as session:
        np.testing.assert_allclose(session(x), np.exp(x.astype(np.float64)), rtol=1e-6)
        assert any("the platform's compiler died (SIGABRT)" in note for note in session.notes)
    with motet.load(artifact, devices={"gpu": URI}) as session:  # replaced, too
        np.testing.assert_allclose(session(x), np.exp(x.astype(np.float64)), rtol=1e-6)
    required = {"gpu": f"{URI}?required=true"}
    with motet.load(artifact, devices=required) as session, pytest.raises(DeviceLost, match="compiler died"):
        session(x)


def _gathered(kind: str, body: str) -> str:
    """A loop nest, which reads elements by indices, beside a kernel of vectors."""
    return f"""
func.func @main(%x: tensor<8x{kind}>, %k: tensor<5xi64>, %y: tensor<7xf32>) -> (tensor<5x{kind}>, tensor<7xf32>) {{
  %e = tensor.empty() : tensor<5x{kind}>
  %r = linalg.generic {{
    indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]
  }} ins(%k : tensor<5xi64>) outs(%e : tensor<5x{kind}>) {{
    ^bb0(%a: i64, %o: {kind}):
      %i = arith.index_cast %a : i64 to index
      %v = tensor.extract %x[%i] : tensor<8x{kind}>
      {body}
      linalg.yield %s : {kind}
  }} -> tensor<5x{kind}>
  %f = tensor.empty() : tensor<7xf32>
  %z = linalg.exp ins(%y : tensor<7xf32>) outs(%f : tensor<7xf32>) -> tensor<7xf32>
  return %r, %z : tensor<5x{kind}>, tensor<7xf32>
}}
"""


def test_what_opencl_lacks_is_refused_by_name_and_left_to_the_fallback() -> None:
    text = _gathered("i64", "%low, %s = arith.mulsi_extended %v, %v : i64")
    with pytest.raises(CompileError, match=r"kernel main_kernel_\d: .*integers of 128 bits.*=opencl,@cpu"):
        motet.compile(text, devices=TARGET)
    artifact = motet.compile(text, devices={"gpu": "opencl{cpu=spirv64},@cpu", "cpu": "host"})
    x, k, y = np.array([1 << 40, -5, 3, (1 << 62) + 7, 0, 1, 2, -(1 << 63)]), np.array([7, 0, 3, 3, 1]), random(7)
    with motet.load(artifact, devices={"gpu": URI}) as session:
        squares, powers = _listed(session(x, k, y))
    assert squares.tolist() == [int(each) ** 2 >> 64 for each in x[k]]
    np.testing.assert_allclose(powers, np.exp(y.astype(np.float64)), rtol=1e-6)


def test_bfloat16_in_loop_nests_is_bits_of_which_llvm_makes_spirv() -> None:
    artifact = motet.compile(_gathered("bf16", "%s = arith.mulf %v, %v : bf16"), devices=TARGET)
    x, k = random(8).astype(DTYPES["bf16"]), np.array([7, 0, 3, 3, 1])
    with motet.load(artifact, devices=URI) as session:
        squares, _ = _listed(session(x, k, random(7)))
    np.testing.assert_allclose(squares.astype(np.float64), x.astype(np.float64)[k] ** 2, rtol=2**-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["encoder_small", "resnet18_small", "bert_small", "resnet18"])
def test_networks_agree_with_the_reference_of_onnx(name: str) -> None:
    model = models.MODELS[name]()
    given = model.graph.input[0]
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    if given.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        x = random(*shape)
    else:
        x = np.random.default_rng(0).integers(0, 20, shape)
    (expected,) = ReferenceEvaluator(model).run(None, {given.name: x})
    call = _loaded(model)
    for _ in range(2):
        (found,) = _listed(call(x))
        np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-3, atol=1e-3)
