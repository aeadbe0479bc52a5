"""A transformer encoder whose batch and length differ from call to call."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from examples.models import MODELS
from onnx.reference import ReferenceEvaluator

import motet


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return MODELS["encoder_dynamic_small"]()


@pytest.fixture(scope="module")
def session(model: onnx.ModelProto) -> motet.Session:
    return motet.load(motet.compile(model))


@pytest.mark.parametrize("shape", [(2, 5), (1, 1), (3, 17), (1, 33)])
def test_results_are_those_of_the_reference(
    model: onnx.ModelProto, session: motet.Session, shape: tuple[int, int]
) -> None:
    x = np.random.default_rng(sum(shape)).standard_normal((*shape, 24), np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x})
    np.testing.assert_allclose(session(x), expected, rtol=2e-5, atol=2e-5)


def test_its_extents_have_the_names_of_the_model(session: motet.Session) -> None:
    assert session.signature.inputs[0].shape == ["batch", "sequence", 24]
    assert session.signature.results[0].shape == ["batch", "sequence", 24]
