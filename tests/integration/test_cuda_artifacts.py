"""Artifacts for GPUs, from models and the command line, without a GPU."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from examples import models
from tests.unit.compiler.codegen.triton.building import interpret, of_artifact

import motet as package
from motet.artifact.dtypes import DTYPES
from motet.artifact.reader import Artifact
from motet.errors import OptionError

Run = Callable[..., "subprocess.CompletedProcess[str]"]
FRAGMENT = str(Path(__file__).parents[2] / "examples" / "fragment.mlir")


def compiled_for(name: str, device: str) -> Artifact:
    return package.compile(models.MODELS[name](), devices={"": device}, cache=False)


@pytest.mark.parametrize("name", [
    "mlp_small", "mlp_dynamic_small", "two_conv_small", "encoder_small",
    pytest.param("resnet18_small", marks=pytest.mark.slow), pytest.param("mobilenet_v2_small", marks=pytest.mark.slow),
])
def test_programs_of_models_compute_what_the_host_does(name: str) -> None:
    artifact = compiled_for(name, "cuda{arch=sm_90a}")
    made = of_artifact(artifact, artifact.manifest.functions[0].name)
    generator = np.random.default_rng(0)
    inputs = [
        generator.standard_normal([size if isinstance(size, int) else 5 for size in spec.shape]).astype(
            DTYPES[spec.dtype]
        )
        for spec in made.signature.inputs
    ]
    wanted = package.load(compiled_for(name, "host{cpu=native}"))(*inputs)
    for got, expected in zip(interpret(made, inputs), wanted if isinstance(wanted, tuple) else [wanted], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_one_artifact_holds_code_for_the_gpus_of_two_makers_and_the_host(motet: Run, tmp_path: Path) -> None:
    device = "gpu=cuda{arch=sm_80+ptx80},hip{arch=gfx942},host{cpu=x86-64-v3}"
    for name in ("a.motet", "b.motet"):
        run = motet("compile", FRAGMENT, "-o", name, "--device", device, "--no-cache")
        assert run.returncode == 0, run.stderr
    file = tmp_path / "a.motet"
    assert file.read_bytes() == (tmp_path / "b.motet").read_bytes()
    artifact = Artifact.open(file)
    found = [(variant.family, variant.target) for variant in artifact.manifest.variants]
    assert found == [("cuda", "sm_80"), ("cuda", "ptx80"), ("hip", "gfx942"), ("host", "x86-64-v3")]
    for variant in artifact.manifest.variants[:3]:
        kernels = {command.kernel for schedule in variant.schedules.values() for command in schedule.commands}
        launches = [json.loads(bytes(artifact.member(n))) for n in variant.objects if n.endswith(".json")]
        assert kernels == {launch["kernel"] for launch in launches}


def test_the_source_of_a_kernel_is_shown(motet: Run) -> None:
    motet("compile", FRAGMENT, "-o", "fragment.motet", "--device", "cuda{arch=sm_90a}")
    shown = motet("inspect", "fragment.motet", "--kernel", "entry_kernel_0")
    assert shown.returncode == 0, shown.stderr
    assert "@triton.jit\ndef entry_kernel_0(v0, v1, v2):" in shown.stdout
    assert "v0: argument 64x128xf32" in shown.stdout and '"registers": ' in shown.stdout
    refused = motet("inspect", "fragment.motet", "--kernel", "another")
    assert refused.returncode != 0
    assert "--kernel another: no source of it; available: entry_kernel_0" in refused.stderr


def test_an_unknown_architecture_is_one_error() -> None:
    with pytest.raises(OptionError, match=r"arch sm_90 is unknown; available: sm_80, .*sm_90a, .*ptx80"):
        compiled_for("mlp_small", "cuda{arch=sm_90}")
    with pytest.raises(OptionError, match=r"precision half is unknown; available: ieee, tf32, tf32x3"):
        compiled_for("mlp_small", "cuda{precision=half}")


@pytest.mark.parametrize("second", [False, True])
def test_a_launch_without_others_waits_for_none(second: bool) -> None:
    kind = "tensor<64x300xf32>"
    step = "  %{n} = linalg.softmax dimension({d}) ins(%{x} : {kind}) outs(%e : {kind}) -> {kind}\n"
    steps = [step.format(n="y", x="x", d=1, kind=kind), step.format(n="z", x="y", d=0, kind=kind)][: 1 + second]
    body = f"  %e = tensor.empty() : {kind}\n" + "".join(steps) + f"  return %{'z' if second else 'y'} : {kind}"
    artifact = package.compile(f"func.func @main(%x: {kind}) -> {kind} {{\n{body}\n}}", devices="cuda{arch=sm_90a}")
    (variant,) = artifact.manifest.variants
    waits = [json.loads(bytes(artifact.member(name)))["waits"] for name in variant.objects if name.endswith(".json")]
    assert waits == [True, True] if second else waits == [False]
