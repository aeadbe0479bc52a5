"""Attention in artifacts for several kinds of devices: one kernel on each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from examples.models import MODELS
from tests.unit.compiler.codegen.triton.attention_texts import Form, expected, inputs_of, shapes, text

import motet as package
from motet.artifact.reader import Artifact
from motet.runtime import load

BOTH = "cuda{arch=sm_80},host{cpu=x86-64-v3}"


def kinds(artifact: Artifact, family: str) -> list[str]:
    variant = next(one for one in artifact.manifest.variants if one.family == family)
    return [kernel.kind for kernel in variant.kernels]


def test_the_host_has_the_kernel_that_it_has_alone() -> None:
    source = text(Form(queries=20, keys=33, mask="causal", past=13, collapsed=True, swapped=True))
    artifact = package.compile(source, devices=BOTH, cache=False)
    alone = package.compile(source, devices="host{cpu=x86-64-v3}", cache=False)
    assert kinds(artifact, "cuda") == ["attention"]
    assert kinds(artifact, "host") == kinds(alone, "host") == ["attention"]


def test_the_host_computes_what_it_does_alone() -> None:
    form = Form(queries=20, keys=33, mask="causal", past=13, collapsed=True, swapped=True)
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(shape).astype(np.float32) for shape in shapes(form)]
    artifact = package.compile(text(form), devices="gpu=cuda{arch=sm_80},host{cpu=x86-64-v3}", cache=False)
    with load(artifact, devices={"gpu": "host"}) as session:
        np.testing.assert_allclose(session["main"](*inputs), expected(form, inputs), rtol=2e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layers"),
    [("gpt2_block_small", 2), ("encoder_small", 1), ("encoder_dynamic_small", 1), ("bert_small", 2)],
)
def test_every_layer_of_a_model_has_one_kernel_of_attention(name: str, layers: int) -> None:
    model = MODELS[name]().SerializeToString()
    artifact = package.compile(model, devices=BOTH, cache=False)
    assert kinds(artifact, "cuda").count("attention") == layers
    own = package.compile(model, devices="host{cpu=x86-64-v3}", cache=False)
    assert kinds(artifact, "host") == kinds(own, "host")
    assert kinds(own, "host").count("attention") == layers


def renamed(form: Form, number: int) -> str:
    return text(form).replace("@main", f"@f{number}")


def test_every_dtype_agrees_with_numpy_on_this_processor() -> None:
    """On the best level that this processor has, which is AMX where there is one, and several functions at a time."""
    base = Form(queries=77, keys=301, depth=40, width=72, scale=0.16, batch=1)
    forms = [
        replace(base, dtype=dtype, **more)
        for dtype in ("f32", "bf16", "f16")
        for more in ({}, {"mask": "causal", "past": 224}, {"queries": 1, "groups": 3}, {"mask": "rows", "keys": 1023})
    ]
    source = "\n".join(renamed(form, number) for number, form in enumerate(forms))
    artifact = package.compile(source, devices="host", cache=False)
    assert set(kinds(artifact, "host")) == {"attention"}
    with load(artifact) as session:
        for number, form in enumerate(forms):
            inputs = inputs_of(form)
            allowed = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}[form.dtype]
            got = np.asarray(session[f"f{number}"](*inputs)).astype("f8")
            np.testing.assert_allclose(got, expected(form, inputs), rtol=allowed, atol=allowed, err_msg=str(form))
