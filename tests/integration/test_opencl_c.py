"""Kernels in OpenCL C, most on a platform without SPIR-V, compared with numpy and with ONNX's reference in float64."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from examples import models
from onnx.reference import ReferenceEvaluator
from tests.integration.bundled_forms import bundles, check
from tests.integration.onnx_forms import faults, together
from tests.integration.test_foreign_processors import (
    Case,
    brain_floats,
    depthwise_and_pool,
    elementary_functions,
    every_half,
    integers,
    layernorm,
    quantised_operators,
)
from tests.integration.test_onnx_numbers import GROUPS, cases
from tests.integration.test_onnx_numbers import Case as FormCase
from tests.unit.runtime.drivers.opencl.opening import opencl_device, source_device

import motet
from motet import builder as mb
from motet.artifact import Artifact

DEVICES = "opencl{cpu=opencl-c}"
WIDEST = "opencl{cpu=opencl-c-512+opencl-c}"
PROGRAMS = (layernorm, depthwise_and_pool, integers, every_half, brain_floats, elementary_functions)
# Brain floats are copied as words of 32 bits, and read as words of 16.
NARROW = (depthwise_and_pool, quantised_operators, brain_floats)
# Operators of which the quick test takes a form of every type; between them they reach all classes of kernels.
_OPERATORS = frozenset(
    ["MatMul", "Conv", "MaxPool", "Softmax", "ReduceSum", "ReduceMax", "Add", "ScatterND", "TopK", "CumSum", "Gather",
     "ArgMax", "LSTM", "MatMulInteger"]
)  # fmt: skip


def results_of(artifact: Artifact, inputs: Sequence[np.ndarray], uri: str = "") -> list[np.ndarray]:
    """The results of a program on a device, by default one that takes no SPIR-V."""
    with motet.load(artifact, devices=uri or source_device()) as session:
        found: Any = session(*inputs)
    return [np.asarray(each) for each in (found if isinstance(found, (tuple, list)) else [found])]


def agree(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float) -> None:
    assert len(found) == len(expected)
    for mine, want in zip(found, expected, strict=True):
        assert mine.shape == want.shape
        if tolerance:
            np.testing.assert_allclose(mine.astype(np.float64), want, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(mine, want)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_programs_agree_with_numpy(make: Callable[[], Case]) -> None:
    case = make()
    source_device()
    agree(results_of(motet.compile(case.program, devices=WIDEST), case.inputs), case.expected, case.tolerance)


@pytest.mark.parametrize("target", ["opencl-c-128", "opencl-c-scalar"])
@pytest.mark.parametrize("make", NARROW, ids=lambda make: make.__name__)
def test_code_for_platforms_that_fail_at_long_vectors(make: Callable[[], Case], target: str) -> None:
    case, uri = make(), opencl_device().uri
    artifact = motet.compile(case.program, devices=f"opencl{{cpu={target}}}")
    agree(results_of(artifact, case.inputs, uri), case.expected, case.tolerance)
    [variant] = artifact.manifest.variants
    text = b"".join(bytes(artifact.member(name)) for name in variant.objects).decode()
    lanes = {int(width) for width in re.findall(r"\b(?:u?(?:char|short|int|long)|float|double)(\d+)\b", text)}
    assert max(lanes, default=1) == (4 if target == "opencl-c-128" else 1)


# -- forms of operators --------------------------------------------------------------------------------


def wrong(found: Sequence[FormCase]) -> list[str]:
    """What is wrong with the results, by form. Raises MotetError where one is refused."""
    model = together([form for form, _, _ in found], [declared for _, declared, _ in found])
    feeds = [array for form, _, _ in found for array in form.feeds()]
    given = results_of(motet.compile(model, devices=DEVICES, cache=False), feeds)
    texts: list[str] = []
    for form, declared, exact in found:
        mine, given = given[: len(declared)], given[len(declared) :]
        texts += [f"{form.name}: {what}"] if (what := faults(form, mine, declared, exact)) else []
    return texts


def calculated(found: Iterable[FormCase]) -> int:
    by_version: dict[int, list[FormCase]] = {}
    for case in found:
        by_version.setdefault(case[0].version, []).append(case)
    alike = (bundle for own in by_version.values() for bundle in bundles(own))
    return check(alike, wrong, lambda case: case[0].name)


def of_each_type(groups: Iterable[str]) -> Iterator[FormCase]:
    """One form of each of `_OPERATORS` and type, of an eighth of these pairs."""
    chosen: dict[tuple[str, str], tuple[int, FormCase]] = {}
    for group in groups:
        for case in cases(group):
            key, rank = (case[0].op, case[2][0].dtype.name), zlib.crc32(case[0].name.encode())
            if case[0].op in _OPERATORS and (key not in chosen or rank < chosen[key][0]):
                chosen[key] = (rank, case)
    return (case for _, case in list(chosen.values())[::8])


def test_forms_of_each_type_are_right() -> None:
    source_device()
    assert calculated(of_each_type(("reductions", "norms", "pools", "products", "moves", "binary"))) > 5


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_forms_are_right_or_refused(group: str) -> None:
    source_device()
    found = cases(group)[::5]
    assert calculated(found) >= 0.9 * len(found)


# -- whole programs ------------------------------------------------------------------------------------


def test_perceptrons_of_equal_numbers() -> None:
    source_device()
    x, w0, w1 = (np.full(shape, 0.1, np.float32) for shape in ((32, 64), (64, 128), (128, 16)))
    with mb.Graph("main") as g:
        g.result(mb.relu(g.input("x", x.shape) @ g.constant(w0)) @ g.constant(w1))
    wide = x.astype(np.float64)
    agree(results_of(motet.compile(g, devices=DEVICES), [x]), [np.maximum(wide @ w0, 0) @ w1], 1e-6)


def test_dynamic_extents() -> None:
    uri = source_device()
    random = np.random.default_rng(3)
    w, b = random.standard_normal((19, 67)).astype(np.float32), random.standard_normal(67).astype(np.float32)
    with mb.Graph("main") as g:
        g.result(mb.softmax(mb.relu(g.input("x", ("batch", 19)) @ g.constant(w) + g.constant(b))))
    with motet.load(motet.compile(g, devices=DEVICES), devices=uri) as session:
        for batch in (1, 3, 17, 64, 101):
            x = random.standard_normal((batch, 19)).astype(np.float32)
            e = np.exp(np.maximum(x.astype(np.float64) @ w + b, 0))
            np.testing.assert_allclose(np.asarray(session(x)), e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-6)


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "convolutions": lambda: models.two_conv(batch=3, size=9, filters=5),
    "encoder": models.MODELS["encoder_small"],
    "resnet18": models.MODELS["resnet18_small"],
    "mobilenet": models.MODELS["mobilenet_v2_small"],
}

_SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("resnet18", "mobilenet")]


@pytest.mark.parametrize("name", ["convolutions", "encoder", *_SLOW])
def test_networks_agree_with_the_reference_of_onnx(name: str) -> None:
    source_device()
    model = NETWORKS[name]()
    given = model.graph.input[0]
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = ReferenceEvaluator(model).run(None, {given.name: x})
    agree(results_of(motet.compile(model, devices=WIDEST), [x]), [np.asarray(each) for each in expected], 1e-3)


def test_one_artifact_holds_spirv_and_opencl_c() -> None:
    uri = source_device()
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with mb.Graph("main") as g:
        g.result(mb.exp(g.input("x", x.shape)))
    artifact = motet.compile(g, devices="opencl")
    with motet.load(artifact, devices=uri) as session:
        np.testing.assert_allclose(np.asarray(session(x)), np.exp(x), rtol=1e-6)
