"""Attention in artifacts for several kinds of devices: one kernel on GPUs, its parts on the host."""

from __future__ import annotations

import numpy as np
import pytest
from examples.models import MODELS
from tests.unit.compiler.codegen.triton.attention_texts import Form, expected, shapes, text

import motet as package
from motet.artifact.reader import Artifact
from motet.runtime import load

BOTH = "cuda{arch=sm_80},host{cpu=x86-64-v3}"


def kinds(artifact: Artifact, family: str) -> list[str]:
    variant = next(one for one in artifact.manifest.variants if one.family == family)
    return [kernel.kind for kernel in variant.kernels]


def test_the_host_has_the_parts_that_it_has_alone() -> None:
    source = text(Form(queries=20, keys=33, mask="causal", past=13, collapsed=True, swapped=True))
    artifact = package.compile(source, devices=BOTH, cache=False)
    alone = package.compile(source, devices="host{cpu=x86-64-v3}", cache=False)
    assert kinds(artifact, "cuda") == ["attention"]
    assert kinds(artifact, "host") == kinds(alone, "host")
    assert "attention" not in kinds(artifact, "host")


def test_the_host_computes_what_it_does_alone() -> None:
    form = Form(queries=20, keys=33, mask="causal", past=13, collapsed=True, swapped=True)
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(shape).astype(np.float32) for shape in shapes(form)]
    artifact = package.compile(text(form), devices="gpu=cuda{arch=sm_80},host{cpu=x86-64-v3}", cache=False)
    with load(artifact, devices={"gpu": "host"}) as session:
        np.testing.assert_allclose(session["main"](*inputs), expected(form, inputs), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "layers"), [
    ("gpt2_block_small", 2), pytest.param("encoder_small", 1, marks=pytest.mark.slow),
    pytest.param("encoder_dynamic_small", 1, marks=pytest.mark.slow),
    pytest.param("bert_small", 2, marks=pytest.mark.slow),
])
def test_every_layer_of_a_model_has_one_kernel_of_attention(name: str, layers: int) -> None:
    model = MODELS[name]().SerializeToString()
    artifact = package.compile(model, devices=BOTH, cache=False)
    assert kinds(artifact, "cuda").count("attention") == layers
    own = package.compile(model, devices="host{cpu=x86-64-v3}", cache=False)
    assert kinds(artifact, "host") == kinds(own, "host")
