"""Schedules chosen by measuring, from the outside: results are the same whichever is taken, and what was measured is
in the artifact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from tests.integration.conftest import Run
from tests.integration.test_memory_limit import branches, inputs
from tests.prepared import load_mlir

import motet
from motet.artifact.contracts import seal
from motet.artifact.writer import write_artifact
from motet.compiler import pipeline
from motet.compiler.build.variant import VariantOptions
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.families import resolve_target
from motet.cpu_features import machine
from motet.errors import DeviceError, OptionError

pytestmark = pytest.mark.usefixtures("all_levels")

MEASURE = {"tune-schedule": "measure"}



def diamonds(count: int = 5) -> str:
    """Products of one product with as many others, exponentials and sums of their rows, of odd extents."""
    lines = ["func.func @main(%x: tensor<7x13xf32>, %w: tensor<13x13xf32>) -> (tensor<7x13xf32>, tensor<7xf32>) {",
             "%zero = arith.constant 0.0 : f32", "%e = tensor.empty() : tensor<7x13xf32>",
             "%v = tensor.empty() : tensor<7xf32>",
             "%z = linalg.fill ins(%zero : f32) outs(%e : tensor<7x13xf32>) -> tensor<7x13xf32>",
             "%zv = linalg.fill ins(%zero : f32) outs(%v : tensor<7xf32>) -> tensor<7xf32>"]

    def product(name: str, left: str) -> str:
        return (f"{name} = linalg.matmul ins({left}, %w : tensor<7x13xf32>, tensor<13x13xf32>) "
                "outs(%z : tensor<7x13xf32>) -> tensor<7x13xf32>")

    lines.append(product("%top", "%x"))
    for n in range(count):
        before = f"%c{n - 1}" if n > 2 else "%top"
        lines += [
            f"%a{n} = linalg.exp ins({before} : tensor<7x13xf32>) outs(%e : tensor<7x13xf32>) -> tensor<7x13xf32>"
            if n % 2 else product(f"%a{n}", before),
            product(f"%b{n}", f"%a{n}"),
            f"%c{n} = linalg.tanh ins(%b{n} : tensor<7x13xf32>) outs(%e : tensor<7x13xf32>) -> tensor<7x13xf32>",
        ]
    total = "%c0"
    for n in range(1, count):
        lines += [f"%s{n} = arith.addf {total}, %c{n} : tensor<7x13xf32>", product(f"%t{n}", f"%s{n}")]
        total = f"%t{n}"
    return "\n".join([
        *lines, f"%r = linalg.reduce ins({total} : tensor<7x13xf32>) outs(%zv : tensor<7xf32>) dimensions = [1]",
        "(%in: f32, %out: f32) { %0 = arith.addf %in, %out : f32 linalg.yield %0 : f32 }",
        f"return {total}, %r : tensor<7x13xf32>, tensor<7xf32> }}",
    ])


def numpy_branches(*arrays: np.ndarray) -> list[np.ndarray]:
    *xs, w = (array.astype(np.float64) for array in arrays)
    total = xs[0] @ w @ w @ w
    for x in xs[1:]:
        total = (total + x @ w @ w @ w) @ w
    return [total]


def numpy_diamonds(x: np.ndarray, w: np.ndarray, count: int = 5) -> list[np.ndarray]:
    x, w = x.astype(np.float64), w.astype(np.float64)
    found: list[np.ndarray] = []
    for n in range(count):
        before = found[n - 1] if n > 2 else x @ w
        found.append(np.tanh((np.exp(before) if n % 2 else before @ w) @ w))
    total = found[0]
    for each in found[1:]:
        total = (total + each) @ w
    return [total, total.sum(1)]


def diamonds_inputs() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.standard_normal((7, 13)).astype(np.float32), random.standard_normal((13, 13)).astype(np.float32) / 4]


def as_list(results: object) -> list[np.ndarray]:
    return list(results) if isinstance(results, tuple) else [np.asarray(results)]


@pytest.mark.parametrize(
    ("text", "arrays", "reference"),
    [(branches(), inputs(40), numpy_branches), (diamonds(), diamonds_inputs(), numpy_diamonds)],
    ids=["branches", "diamonds"],
)
def test_results_are_the_same_whichever_candidate_is_taken(
    text: str, arrays: list[np.ndarray], reference: Callable[..., list[np.ndarray]]
) -> None:
    program = load_mlir(text, "test.mlir")
    with program.module.context, ir.Location.unknown():
        target = resolve_target("x86-64-v3")
        built = pipeline.build(program, [target], 1, lambda what, fraction: None, VariantOptions(candidates=True))
    candidates = built.candidates["x86-64-v3"]["main"]
    assert len(candidates) > 1
    expected = reference(*arrays)
    first: list[np.ndarray] | None = None
    for name, schedule in candidates.items():
        variant = structs.replace(built.manifest.variants[0], schedules={"main": schedule})
        manifest = structs.replace(built.manifest, variants=[variant])
        seal(manifest, built.members)
        with motet.load(write_artifact(manifest, built.members, built.parameters)) as session:
            results = as_list(session(*arrays))
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=2e-3, atol=1e-3 * np.abs(wanted).max(), err_msg=name)
        first = first or results
        for result, other in zip(results, first, strict=True):
            np.testing.assert_array_equal(result, other, name)


def test_what_was_measured_is_in_the_artifact_and_shown(motet: Run, tmp_path: Path) -> None:
    (tmp_path / "p.mlir").write_text(branches("2500"))  # which take more memory than is always there
    outcome = motet("compile", "p.mlir", "--option", "tune-schedule=measure", "--device", "host{cpu=x86-64-v3}")
    assert outcome.returncode == 0, outcome.stderr
    shown = motet("inspect", "p.motet").stdout
    assert "measured on host, " in shown and "concurrent, more memory" in shown and shown.count("taken") == 1
    from motet.artifact.reader import Artifact

    schedule = Artifact.open(tmp_path / "p.motet").manifest.variants[0].schedules["main"]
    assert schedule.trials[0].name == "concurrent"
    assert [trial.chosen for trial in schedule.trials].count(True) == 1
    assert all(0 < trial.seconds <= trial.median < 10 for trial in schedule.trials)
    taken = next(trial for trial in schedule.trials if trial.chosen)
    assert taken.arena == schedule.arena
    assert taken.seconds <= schedule.trials[0].seconds


def test_other_values_are_refused_with_those_there_are() -> None:
    with pytest.raises(OptionError, match="option tune-schedule=fast: expected off or measure"):
        motet.compile(branches(), options={"tune-schedule": "fast"})


def test_a_program_over_devices_is_measured_region_by_region() -> None:
    artifact = motet.compile(
        branches(), devices={"a": "host{cpu=x86-64-v3}", "b": "null{cpu=x86-64-v3}"}, options=MEASURE,
        cache=False,
    )
    tried = {
        (variant.family, schedule.tried_on.partition(",")[0])
        for variant in artifact.manifest.variants for schedule in variant.schedules.values() if schedule.trials
    }
    assert tried <= {("host", "host"), ("null", "null")} and tried
    with motet.load(artifact) as session:
        np.testing.assert_allclose(session(*inputs(40)), numpy_branches(*inputs(40))[0], rtol=1e-2, atol=1e-2)


def test_dynamic_extents_are_asked_for() -> None:
    with pytest.raises(OptionError, match="has dynamic extents; expected those to measure with: tune-inputs="):
        motet.compile(branches("?"), options=MEASURE, cache=False)
    shapes = ",".join(["23x40xf32"] * 6 + ["40x40xf32"])
    artifact = motet.compile(branches("?"), options={**MEASURE, "tune-inputs": shapes}, cache=False)
    with motet.load(artifact) as session:
        np.testing.assert_allclose(session(*inputs(31)), numpy_branches(*inputs(31))[0], rtol=1e-2, atol=1e-2)


def test_a_device_that_is_not_here_is_said_so() -> None:
    with pytest.raises(DeviceError, match=r"no device of riscv|no device of hip|no device of cuda"):
        motet.compile(branches(), devices="hip", options=MEASURE, cache=False)


@pytest.mark.skipif(machine() == "aarch64", reason="this processor runs it")
def test_code_for_other_processors_stays_as_planned(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DeviceError, match=r"no device of host runs any of the code: aarch64: for aarch64; compile for"):
        motet.compile(branches(), devices="host{cpu=aarch64}", options=MEASURE, cache=False)
    artifact = motet.compile(branches(), devices="host{cpu=x86-64-v3+aarch64}", options=MEASURE, cache=False)
    tried = {variant.target: variant.schedules["main"].tried_on for variant in artifact.manifest.variants}
    assert tried["x86-64-v3"].startswith("host, ") and tried["aarch64"] == ""
    assert "not measured, and are as planned: aarch64: for aarch64" in caplog.text


def test_off_measures_nothing() -> None:
    artifact = motet.compile(branches(), options={"tune-schedule": "off"}, cache=False)
    assert not any(s.trials or s.tried_on for v in artifact.manifest.variants for s in v.schedules.values())
