"""Loop steps of plans: memory, traces, what ends them, what they are refused for, and what tools show of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.integration.loops_over_devices import COUNTED, HALVED, NESTED, PROGRAMS, A, B, T, vector
from tests.integration.placed import build_placed

from motet.artifact.plans import check_plans
from motet.artifact.reader import Artifact
from motet.artifact.schema import Manifest
from motet.errors import ArtifactError, CallError, CompileError, DeviceLost, KernelFault, OutOfMemoryError
from motet.runtime import load

SOURCES = Path(__file__).resolve().parents[2] / "src"
DECLARED = '"motet.device"() {sym_name = "a", alternatives = ["host"]} : () -> ()\n' \
    '"motet.device"() {sym_name = "b", alternatives = ["null"]} : () -> ()\n'
# While the first element of %x, to which %d is added, is below 100.
GROWING = f"""
func.func @main(%x: {T}, %d: {T}) -> {T} {{
  %c0 = arith.constant 0 : index
  %end = arith.constant 100.0 : f32
  %r = scf.while (%v = %x) : ({T}) -> {T} {{
    %e = tensor.extract %v[%c0] : {T}
    %p = arith.cmpf olt, %e, %end : f32
    scf.condition(%p) %v : {T}
  }} do {{
  ^bb0(%v: {T}):
    %0 = arith.addf %v, %d {B} : {T}
    %1 = arith.addf %0, %d {A} : {T}
    scf.yield %1 : {T}
  }}
  return %r : {T}
}}"""


def growing(first: float, step: float) -> tuple[list[np.ndarray], np.ndarray]:
    x, d = np.full(5, first, np.float32), np.full(5, step, np.float32)
    wanted = x.copy()
    while wanted[0] < 100:
        wanted = wanted + d + d
    return [x, d], wanted


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return build_placed(GROWING, ("a=host", "b=null,host"))


# -- memory and time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("program", "devices"), [
    (COUNTED, {"b": "null"}), (COUNTED, {"b": "null?pace=1&latency=1e-4"}), (COUNTED, {"b": "null?view=1"}),
])
def test_more_iterations_take_no_more_memory(program: Any, devices: dict[str, str]) -> None:
    """What two iterations need of the device, so that one is moved while the other computes."""
    built = build_placed(program.text, ("a=host", "b=null"))
    most: dict[int, int] = {}
    for count in (4, 8, 100):
        with load(built, devices=devices) as session:
            _, events = session.main.trace(np.array(count), vector(1))
        most[count] = max(each.memory for each in events if each.device.startswith("null"))
    assert most[100] == most[8] <= 8 * 5 * 4


def test_a_device_with_memory_for_two_iterations_runs_any_number(artifact: Artifact) -> None:
    inputs, wanted = growing(0, 0.25)
    with load(artifact, devices={"b": "null?memory=120"}) as session:
        np.testing.assert_allclose(session(*inputs), wanted, rtol=1e-5)
    with load(artifact, devices={"b": "null?memory=20"}) as session, pytest.raises(OutOfMemoryError):
        session(*inputs)


def test_what_the_host_counts_is_submitted_ahead() -> None:
    """A count needs nothing of the device: the next iteration is submitted while it computes."""
    text = COUNTED.text.replace(A, B)
    built = build_placed(text.replace("%1 = math.tanh %0 " + B, "%1 = math.tanh %0 " + A), ("a=null", "b=null[1]"))
    with load(built, devices={"a": "null?task-time=5e-3&pace=1", "b": "null/1?task-time=5e-3&pace=1"}) as session:
        _, events = session.main.trace(np.array(8), vector(1))
    launches = [each for each in events if each.event.kind == "launch" and each.iteration]
    ends = {each.iteration[0]: each.event.end for each in launches}
    # A loaded machine may be late for some iterations; if the host waited for each, none would begin before.
    assert any(each.event.begin < ends.get(each.iteration[0] - 1, 0) for each in launches)


def test_a_trace_has_the_iterations_of_each_loop() -> None:
    built = build_placed(NESTED.text, ("a=host", "b=null"))
    call = (np.array(4), vector(4), np.array(0, np.float32))
    with load(built) as session:
        result, events = session.main.trace(*call)
    for found, wanted in zip(result, NESTED.expected(*call), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
    launches = [each.iteration for each in events if each.device == "null" and each.event.kind == "launch"]
    # The inner loop makes as many iterations as the outer one has made before.
    assert launches == [(i, j) for i in range(4) for j in range(i)]
    assert () in {each.iteration for each in events}


# -- what ends loops ---------------------------------------------------------------------------------------------------


def test_a_check_that_fails_in_an_iteration_ends_the_call() -> None:
    text = PROGRAMS["blocks"].text
    built = build_placed(text, ("a=host", "b=null"))
    with load(built) as session:
        with pytest.raises(CallError, match="index"):
            session(vector(1), np.array(5))
        session(vector(1), np.array(4))


def test_a_loop_without_end_ends_when_a_check_fails() -> None:
    """Nothing reads what the index gives; the condition stays true."""
    text = f"""
func.func @main(%x: {T}, %n: i64) -> {T} {{
  %o = arith.constant 1 : i64
  %r:2 = scf.while (%v = %x, %k = %n) : ({T}, i64) -> ({T}, i64) {{
    %p = arith.cmpi sge, %k, %n : i64
    scf.condition(%p) %v, %k : {T}, i64
  }} do {{
  ^bb0(%v: {T}, %k: i64):
    %i = arith.index_cast %k : i64 to index
    %s = tensor.extract %x[%i] : {T}
    %t = tensor.splat %s : {T}
    %0 = arith.addf %v, %t {B} : {T}
    %1 = math.sin %0 {A} : {T}
    %j = arith.addi %k, %o : i64
    scf.yield %1, %j : {T}, i64
  }}
  return %r#0 : {T}
}}"""
    with load(build_placed(text, ("a=host", "b=null"))) as session, pytest.raises(CallError, match="index"):
        session(vector(1), np.array(2))


@pytest.mark.parametrize("option", ["fault-at=9", "hang-at=9&answer=0.2", "lose-after=9"])
def test_a_device_that_fails_in_an_iteration_ends_the_call(artifact: Artifact, option: str) -> None:
    inputs, _ = growing(0, 1)
    with load(artifact, devices={"b": f"null?{option}&required=true"}) as session, \
            pytest.raises((DeviceLost, KernelFault)):
        session(*inputs)


@pytest.mark.parametrize("after", [0, 1, 5, 60])
def test_a_call_whose_device_is_lost_in_an_iteration_is_made_again(after: int) -> None:
    built = build_placed(GROWING, ("a=host", "b=null[1],null,@a"))
    inputs, wanted = growing(3, 0.5)
    with load(built) as session:
        lost = next(each for each in session._bound.opened if each.uri == "null/1").device
        submit, count = lost.submit, 0

        def failing(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count > after:
                raise DeviceLost("null/1", "unplugged")
            return submit(*arguments, **named)

        lost.submit = failing
        np.testing.assert_allclose(session(*inputs), wanted, rtol=1e-5)
        assert [choice.info.uri for choice in session.devices] == ["host", "null"]


@pytest.mark.parametrize("device", ["null", "null?pace=1&task-time=1e-3", "host/1?threads=1"])
def test_ctrl_c_ends_a_loop_without_end(artifact: Artifact, tmp_path: Path, device: str) -> None:
    artifact.save(tmp_path / "endless.motet")
    np.save(tmp_path / "x.npy", np.zeros(5, np.float32))
    process = subprocess.Popen(
        [sys.executable, "-m", "motet", "run", "endless.motet", "--device", "a=host/0", "--device", f"b={device}",
         "--input", "@x.npy", "--input", "@x.npy"],
        cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=4)
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        _, said = process.communicate(timeout=30)
        assert time.monotonic() - begin < 10
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert len(said.strip().splitlines()) == 1 and "Traceback" not in said


# -- refusals ----------------------------------------------------------------------------------------------------------


def refused(text: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        build_placed(text, ("a=host", "b=null"))
    return caught.value


def test_a_loop_that_says_where_it_runs_and_has_parts_elsewhere_is_refused_at_its_place() -> None:
    error = refused(f"""
func.func @main(%n: index, %x: {T}) -> {T} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%v = %x) -> {T} {{
    %0 = math.exp %v {B} : {T}
    scf.yield %0 : {T}
  }} {A}
  return %r : {T}
}}""")
    assert "scf.for: its parts are placed on @a and @b" in str(error)
    assert error.location is not None and error.location.line == 5


def test_tensors_that_grow_are_refused_at_their_loop() -> None:
    kind = "tensor<?xf32>"
    error = refused(f"""
func.func @main(%n: i64, %x: {kind}) -> {kind} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %k = arith.index_cast %n : i64 to index
  %r = scf.for %i = %c0 to %k step %c1 iter_args(%v = %x) -> {kind} {{
    %0 = math.exp %v {B} : {kind}
    %1 = tensor.concat dim(0) %0, %x {A} : ({kind}, {kind}) -> {kind}
    scf.yield %1 : {kind}
  }}
  return %r : {kind}
}}""")
    assert "extents" in str(error) and "expected equal extents, or all of the loop on one device" in str(error)
    assert error.location is not None and error.location.line == 6


def test_an_assertion_in_a_branch_over_devices_is_still_refused() -> None:
    text = PROGRAMS["in a branch"].text
    error = refused(text.replace("%w:2 = scf.while", 'cf.assert %p, "no"\n    %w:2 = scf.while', 1))
    assert "cf.assert in it cannot be" in str(error)


# -- manifests ---------------------------------------------------------------------------------------------------------

Change = Callable[[dict[str, Any]], object]


def _loop(plan: dict[str, Any]) -> dict[str, Any]:
    return next(step["loop"] for step in plan["steps"] if step["op"] == "loop")


def _run(plan: dict[str, Any]) -> dict[str, Any]:
    return next(step for step in _loop(plan)["body"]["steps"] if step["op"] == "run")


WRONG: Sequence[tuple[str, Change, str]] = [
    ("carries more", lambda plan: _loop(plan).update(carried=9), "carries 9 of"),
    ("no loop", lambda plan: plan["steps"][-1].pop("loop"), "a step is a loop where it has one"),
    ("another condition", lambda plan: _loop(plan)["condition"]["results"].reverse(), "condition: a tensor"),
    ("reads what is not there", lambda plan: _loop(plan)["body"]["steps"][0].update(operands=[99]), "no step before"),
    ("one result less", lambda plan: _loop(plan)["body"]["results"].pop(), "inputs and"),
    ("another device", lambda plan: _loop(plan)["body"]["steps"][0].update(device=7), "device 7: there are 2"),
    ("another region", lambda plan: _run(plan).update(region="f"), "no such region"),
]


@pytest.mark.parametrize(("change", "expected"), [(each[1], each[2]) for each in WRONG], ids=[e[0] for e in WRONG])
def test_loops_that_are_wrong_are_refused(artifact: Artifact, change: Change, expected: str) -> None:
    tree = json.loads(msgspec.json.encode(artifact.manifest))
    check_plans(msgspec.convert(tree, Manifest), "artifact")
    change(tree["plans"]["main"])
    with pytest.raises(ArtifactError, match=expected):
        check_plans(msgspec.convert(tree, Manifest), "artifact")


def test_a_loop_that_hands_on_another_kind_of_tensor_is_refused() -> None:
    built = build_placed(HALVED.text, ("a=host", "b=null"))
    tree = json.loads(msgspec.json.encode(built.manifest))
    _loop(tree["plans"]["main"])["body"]["results"].reverse()
    with pytest.raises(ArtifactError, match=r"body: result 0: a tensor .*; expected "):
        check_plans(msgspec.convert(tree, Manifest), "artifact")


# -- tools -------------------------------------------------------------------------------------------------------------


def motet(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "motet", *map(str, arguments)], cwd=folder, text=True, capture_output=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(SOURCES)}, check=False,
    )


@pytest.mark.slow
def test_the_command_line_verifies_shows_measures_and_does_not_export_a_loop(tmp_path: Path) -> None:
    (tmp_path / "loop.mlir").write_text(f"module {{\n{DECLARED}{COUNTED.text}\n}}\n")
    np.save(tmp_path / "n.npy", np.array(6))
    inputs = ("--input", "@n.npy", "--input", "5xf32=random:0")
    outcome = motet(tmp_path, "run", "loop.mlir", *inputs, "--verify")
    assert outcome.returncode == 0, outcome.stderr
    assert motet(tmp_path, "compile", "loop.mlir", "-o", "loop.motet").returncode == 0
    shown = motet(tmp_path, "inspect", "loop.motet").stdout
    assert "loop main_loop_0 with 2 carried values" in shown
    assert "condition: run main_loop_0_condition_region_0" in shown and "body: transfer to it" in shown
    assert motet(tmp_path, "inspect", "loop.motet", "--measure").returncode == 0
    assert motet(tmp_path, "inspect", "loop.motet", "--html", "page.html").returncode == 0
    page = (tmp_path / "page.html").read_text()
    assert "body: run main_loop_0_body_region_0" in page
    refused = motet(tmp_path, "export", "loop.motet", "--format", "c", "--target", "x86-64-v3", "-o", "out")
    assert refused.returncode == 1 and refused.stderr.startswith("error: ") and refused.stderr.count("\n") == 1
