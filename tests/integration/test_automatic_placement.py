"""Programs that a model of costs places: right wherever they run, at the same time on devices that can be, and as a
whole on each of their devices."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import Run
from tests.integration.placed import build_placed, expected, random_program
from tests.seeds import seeds

from motet.artifact.reader import Artifact
from motet.compiler.targets.rates import Rates, RateTable
from motet.runtime import load

FLAGS = ("a=host", "b=null[1]", "c=null[2]")
SLOW = Rates(
    contraction=1e6, convolution=1e6, elementwise=1e6, reduction=1e6, generic=1e6, memory=1e8, launch=1e-6, submit=1e-6,
    upload=1e10, download=1e10, latency=1e-6,
)
MATRIX = "tensor<8x8xf32>"


def random_table(seed: int) -> RateTable:
    """Devices that are good at different things, and near each other: plans over them have many steps."""
    rng = random.Random(seed)

    def rates(shared: bool) -> Rates:
        speeds = [10 ** rng.uniform(5, 8) for _ in range(5)]
        return Rates(
            *speeds, memory=1e9, launch=1e-7, submit=1e-7, shared=shared, upload=1e9, download=1e9, latency=1e-8
        )

    return RateTable({"host": rates(True), "null": rates(False)})


def devices_used(artifact: Artifact) -> set[int]:
    return {step.device for plan in artifact.manifest.plans.values() for step in plan.steps if step.op == "run"}


@pytest.mark.parametrize("seed", seeds(60))
def test_random_programs_agree_with_the_oracle_wherever_cost_places_them(seed: int) -> None:
    program = random_program(seed)
    artifact = build_placed(program.graph, FLAGS, table=random_table(seed))
    wanted = expected(program.graph, program.inputs)
    binding = [None, {"b": "null?queues=1"}, {"c": "null/3?queues=3"}, "host", "null"][seed % 5]
    with load(artifact, devices=binding, threads=2) as session:
        for _ in range(2):
            found = session(*program.inputs)
            found = list(found) if isinstance(found, tuple) else [found]
            for result, value in zip(found, wanted, strict=True):
                np.testing.assert_allclose(result, value, rtol=2e-4, atol=2e-5)


def branches(count: int) -> str:
    """Two chains of products of one input, which meet in the end."""
    lines: list[str] = []
    for branch in "pq":
        before = "%a"
        for number in range(count):
            this = f"%{branch}{number}"
            operands = f"ins({before}, %w : {MATRIX}, {MATRIX}) outs(%f : {MATRIX})"
            lines.append(f"{this} = linalg.matmul {operands} -> {MATRIX}")
            before = this
    body = "\n  ".join(lines)
    return f"""func.func @main(%x: {MATRIX}, %w: {MATRIX}) -> {MATRIX} {{
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : {MATRIX}
  %f = linalg.fill ins(%c : f32) outs(%e : {MATRIX}) -> {MATRIX}
  %a = linalg.abs ins(%x : {MATRIX}) outs(%e : {MATRIX}) -> {MATRIX}
  {body}
  %s = linalg.sub ins(%p{count - 1}, %q{count - 1} : {MATRIX}, {MATRIX}) outs(%e : {MATRIX}) -> {MATRIX}
  %r = linalg.add ins(%s, %a : {MATRIX}, {MATRIX}) outs(%e : {MATRIX}) -> {MATRIX}
  return %r : {MATRIX}
}}"""


def test_branches_run_at_the_same_time_on_two_devices() -> None:
    table = RateTable({"host": SLOW, "null": SLOW})
    artifact = build_placed(branches(4), ("b=null[1]", "c=null[2]"), ("null:x86-64-v3",), table)
    assert devices_used(artifact) == {0, 1}
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    # Each of the eight products takes 20 ms or more, as devices that keep to their model have it.
    devices = {"b": "null?pace=1&task-time=0.02", "c": "null/1?pace=1&task-time=0.02"}
    with load(artifact, devices=devices) as plan, load(artifact, devices="null?pace=1&task-time=0.02") as single:
        seconds = {plan: float("inf"), single: float("inf")}
        for _ in range(8):  # a machine that is busy with other things may be late, but not always
            for session in seconds:
                begin = time.perf_counter()
                result = session(x, np.eye(8, dtype=np.float32))
                seconds[session] = min(seconds[session], time.perf_counter() - begin)
                np.testing.assert_allclose(result, np.abs(x), rtol=1e-6)
            if seconds[plan] < 0.8 * seconds[single]:
                return
    raise AssertionError(list(seconds.values()))


def test_the_host_computes_while_a_device_does() -> None:
    # The model is told that host and device are equally slow; then each takes one of the branches.
    table = RateTable({"host": SLOW, "null": SLOW})
    artifact = build_placed(branches(4), ("b=null[1]", "a=host"), table=table)
    assert devices_used(artifact) == {0, 1}
    plan = artifact.manifest.plans["main"]
    by_device = {device: [s for s in plan.steps if s.op == "run" and s.device == device] for device in (0, 1)}
    assert all(len(steps) >= 1 for steps in by_device.values())
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    with load(artifact) as session:
        np.testing.assert_allclose(session(x, w), np.abs(x), rtol=1e-3, atol=1e-3)


def test_a_perceptron_is_right_over_host_and_device() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 17)).astype(np.float32)
    w1, w2 = (rng.standard_normal(shape).astype(np.float32) for shape in ((17, 33), (33, 7)))
    source = """
func.func @main(%x: tensor<5x17xf32>, %w1: tensor<17x33xf32>, %w2: tensor<33x7xf32>) -> tensor<5x7xf32> {
  %c = arith.constant 0.0 : f32
  %e1 = tensor.empty() : tensor<5x33xf32>
  %f1 = linalg.fill ins(%c : f32) outs(%e1 : tensor<5x33xf32>) -> tensor<5x33xf32>
  %0 = linalg.matmul ins(%x, %w1 : tensor<5x17xf32>, tensor<17x33xf32>) outs(%f1 : tensor<5x33xf32>) -> tensor<5x33xf32>
  %1 = linalg.max ins(%0, %f1 : tensor<5x33xf32>, tensor<5x33xf32>) outs(%e1 : tensor<5x33xf32>) -> tensor<5x33xf32>
  %e2 = tensor.empty() : tensor<5x7xf32>
  %f2 = linalg.fill ins(%c : f32) outs(%e2 : tensor<5x7xf32>) -> tensor<5x7xf32>
  %2 = linalg.matmul ins(%1, %w2 : tensor<5x33xf32>, tensor<33x7xf32>) outs(%f2 : tensor<5x7xf32>) -> tensor<5x7xf32>
  return %2 : tensor<5x7xf32>
}"""
    wanted = np.maximum(x @ w1, 0) @ w2
    for seed in range(4):
        artifact = build_placed(source, ("a=host", "b=null"), table=random_table(seed))
        for binding in (None, "host", "null"):
            with load(artifact, devices=binding) as session:
                np.testing.assert_allclose(session(x, w1, w2), wanted, rtol=1e-4, atol=1e-4)


V, M = "tensor<8xf32>", "tensor<6x4xf32>"
HALF, ROWS = "tensor<3x4xf32>", "tensor<?x4xf32>"
VECTOR = np.arange(8, dtype=np.float32)
SHAPES: dict[str, tuple[str, list[np.ndarray], Callable[..., tuple[np.ndarray, ...]]]] = {
    "nothing to do": (f"func.func @f(%x: {V}) -> {V} {{ return %x : {V} }}", [VECTOR], lambda x: (x,)),
    "a constant": (
        f"func.func @f(%x: {V}) -> {V} {{ %c = arith.constant dense<3.0> : {V} return %c : {V} }}",
        [VECTOR], lambda x: (np.full(8, 3, np.float32),),
    ),
    "extents that are not known": (
        f"""func.func @f(%x: {ROWS}) -> {ROWS} {{
          %0 = math.exp %x : {ROWS} %1 = math.sqrt %0 : {ROWS} %2 = arith.addf %0, %1 : {ROWS} return %2 : {ROWS} }}""",
        [np.ones((3, 4), np.float32)], lambda x: (np.exp(x) + np.sqrt(np.exp(x)),),
    ),
    "a reshaped argument": (
        f"""func.func @f(%x: {M}) -> tensor<24xf32> {{
          %r = tensor.collapse_shape %x [[0, 1]] : {M} into tensor<24xf32>
          %0 = math.exp %r : tensor<24xf32> return %0 : tensor<24xf32> }}""",
        [np.ones((6, 4), np.float32)], lambda x: (np.exp(x).reshape(-1),),
    ),
    "slices": (
        f"""func.func @f(%x: {M}) -> {HALF} {{
          %e = math.exp %x : {M}
          %a = tensor.extract_slice %e[0, 0] [3, 4] [1, 1] : {M} to {HALF}
          %b = tensor.extract_slice %e[3, 0] [3, 4] [1, 1] : {M} to {HALF}
          %c = math.sqrt %a : {HALF} %d = math.tanh %b : {HALF} %f = arith.mulf %c, %d : {HALF}
          return %f : {HALF} }}""",
        [np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4)],
        lambda x: (np.sqrt(np.exp(x)[:3]) * np.tanh(np.exp(x)[3:]),),
    ),
    "a loop": (
        f"""func.func @f(%x: {V}, %y: {V}) -> ({V}, {V}) {{
          %c0 = arith.constant 0 : index %c1 = arith.constant 1 : index %c5 = arith.constant 5 : index
          %0 = scf.for %i = %c0 to %c5 step %c1 iter_args(%a = %x) -> ({V}) {{
            %1 = arith.addf %a, %y : {V} scf.yield %1 : {V} }}
          %2 = math.sqrt %y : {V} %3 = arith.mulf %0, %2 : {V} return %3, %2 : {V}, {V} }}""",
        [VECTOR, VECTOR + 1], lambda x, y: ((x + 5 * y) * np.sqrt(y), np.sqrt(y)),
    ),
    "one element of a tensor": (
        f"""func.func @f(%x: {V}, %y: {V}) -> {V} {{
          %c2 = arith.constant 2 : index %e = math.exp %x : {V} %s = tensor.extract %e[%c2] : {V}
          %t = tensor.splat %s : {V} %2 = math.sqrt %y : {V} %3 = arith.mulf %t, %2 : {V} return %3 : {V} }}""",
        [VECTOR, VECTOR + 1], lambda x, y: (np.exp(x)[2] * np.sqrt(y),),
    ),
    "one value returned twice": (
        f"func.func @f(%x: {V}) -> ({V}, {V}, {V}) {{ %e = math.exp %x : {V} return %e, %e, %x : {V}, {V}, {V} }}",
        [VECTOR], lambda x: (np.exp(x), np.exp(x), x),
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", SHAPES)
def test_functions_of_every_shape_are_right_on_all_devices_and_on_each(case: str, seed: int) -> None:
    source, inputs, reference = SHAPES[case]
    artifact = build_placed(source, FLAGS, table=random_table(seed))
    for binding in (None, "host", "null"):
        with load(artifact, devices=binding) as session:
            found = session(*inputs)
            for result, value in zip(found if isinstance(found, tuple) else (found,), reference(*inputs), strict=True):
                np.testing.assert_allclose(result, value, rtol=1e-5)


# -- the command line ------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "branches.mlir"
    path.write_text(branches(3))
    return path


@pytest.mark.slow
def test_bench_compares_the_plan_with_each_device_alone(motet: Run, program: Path, tmp_path: Path) -> None:
    rates = tmp_path / "rates.json"
    slow = {"contraction": 1e6, "elementwise": 1e6, "latency": 1e-6, "submit": 1e-6}
    rates.write_text(json.dumps({"host": slow, "null": slow}))
    done = motet("compile", str(program), "--device", "a=host", "--device", "b=null", "--placement=auto",
                 "-o", "m.motet", "--option", f"rates={rates}")
    assert done.returncode == 0, done.stderr
    done = motet("bench", "m.motet", "--compare-placements", "--json", "--repeat", "3", "--min-time", "0.05")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["plan"]["devices"] == {"a": "host", "b": "null"}
    assert [each["devices"] for each in found["single"]] == [{"a": "host", "b": "host"}, {"a": "null", "b": "null"}]
    best = min(min(each["samples"]) for each in found["single"])
    assert found["ratio"] == pytest.approx(best / min(found["plan"]["samples"]))
    done = motet("bench", "m.motet", "--compare-placements", "--repeat", "2", "--min-time", "0.02")
    assert re.search(r"plan wins|all on (host|null) wins|neither wins", done.stdout)
    done = motet("inspect", "m.motet", "--measure")
    assert done.returncode == 0, done.stderr
    assert re.search(r"step +device +what .*estimate +measured", done.stdout)
    assert re.search(r"@b +transfer to it", done.stdout)


def test_rates_that_are_none_are_refused(motet: Run, program: Path, tmp_path: Path) -> None:
    rates = tmp_path / "rates.json"
    command = ("compile", str(program), "--placement=auto", "--device", "a=host", "--option", f"rates={rates}")
    for text, message in (
        (None, "cannot be read: no such file or directory"),
        ("[]", "is no file of rates"),
        ('{"host": {"speed": 3}}', "host: no rate speed; there are: contraction"),
        ('{"host": {"memory": 0}}', "host: memory is 0.*; expected a number above 0"),
        ('{"host": {"shared": 1}}', "host: shared is 1.*; expected true or false"),
    ):
        if text is not None:
            rates.write_text(text)
        done = motet(*command)
        assert done.returncode == 1
        assert re.search(message, done.stderr), done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_devices_are_measured_into_a_file_that_compile_reads(motet: Run, program: Path, tmp_path: Path) -> None:
    done = motet("devices", "--measure", "-o", "rates.json", timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "rates.json").read_text())
    assert found["host"]["shared"] is True
    assert found["host"]["contraction"] > 1e8
    assert found["null"]["upload"] > 1e6
    done = motet("compile", str(program), "--device", "a=host", "--device", "b=null", "--placement=auto",
                 "-o", "m.motet", "--option", "rates=rates.json")
    assert done.returncode == 0, done.stderr
