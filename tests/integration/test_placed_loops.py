"""Loops whose turns are spread over devices: what they give, what overlaps, and how much memory they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.integration.noise import install
from tests.integration.placed import build_placed

from motet.artifact.reader import Artifact
from motet.errors import OutOfMemoryError
from motet.runtime import load
from motet.runtime.device import probe
from motet.runtime.trace import Traced

RISCV = next((info.reason for info in probe("riscv") if not info.available and info.uri == "riscv:qemu"), "")
TARGETS = ("x86-64-v3", "null:x86-64-v3", "riscv:rv64gc")
DEVICES = {
    "null": "null",
    "two hosts": "host/1?threads=1",
    "one host": "host",
    "null in view": "null?view=1&queues=1",
    "riscv": "riscv:qemu?harts=2",
}
WIDTH = 8  # of rows


def chunks(turns: int, rows: int, pinned: bool = True) -> str:
    """tanh(x @ w), `rows` rows of x at a time on @b."""
    all_rows, part = f"tensor<{turns * rows}x{WIDTH}xf32>", f"tensor<{rows}x{WIDTH}xf32>"
    weights = f"tensor<{WIDTH}x{WIDTH}xf32>"
    pin = ' {motet.affinity = "b"}' if pinned else ""
    return f"""
func.func @main(%x: {all_rows}, %w: {weights}{pin}) -> {all_rows} {{
  %c0 = arith.constant 0 : index
  %end = arith.constant {turns * rows} : index
  %step = arith.constant {rows} : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {all_rows}
  %r = scf.for %i = %c0 to %end step %step iter_args(%acc = %e) -> {all_rows} {{
    %a = tensor.extract_slice %x[%i, 0] [{rows}, {WIDTH}] [1, 1] : {all_rows} to {part}
    %o = tensor.empty() : {part}
    %f = linalg.fill ins(%zero : f32) outs(%o : {part}) -> {part}
    %m = linalg.matmul {{motet.affinity = "b"}} ins(%a, %w : {part}, {weights}) outs(%f : {part}) -> {part}
    %h = math.tanh %m : {part}
    %d = "motet.transfer"(%h) {{to = "a"}} : ({part}) -> {part}
    %t = tensor.insert_slice %d into %acc[%i, 0] [{rows}, {WIDTH}] [1, 1] : {part} into {all_rows}
    scf.yield %t : {all_rows}
  }}
  return %r : {all_rows}
}}
"""


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@dataclass(frozen=True)
class Program:
    """A function @main and what it gives for `inputs`."""

    text: str
    inputs: Sequence[np.ndarray]
    expected: np.ndarray


def chunked(turns: int, rows: int) -> Program:
    x, w = values(turns * rows, WIDTH), values(WIDTH, WIDTH, seed=1)
    return Program(chunks(turns, rows), [x, w], np.tanh(x @ w))


def handed_to_and_fro(turns: int) -> Program:
    """x is handed from @a to @b and back in every turn; what the turns count goes into it."""
    t = "tensor<5xf32>"
    x = values(5)
    wanted = x.copy()
    for turn in range(turns):
        wanted = np.tanh(wanted + np.float32(turn)) * x
    return Program(f"""
func.func @main(%x: {t}) -> {t} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %end = arith.constant {turns} : index
  %r = scf.for %i = %c0 to %end step %c1 iter_args(%v = %x) -> {t} {{
    %n = arith.index_cast %i : index to i32
    %f = arith.sitofp %n : i32 to f32
    %s = tensor.splat %f : {t}
    %0 = arith.addf %v, %s {{motet.affinity = "a"}} : {t}
    %1 = math.tanh %0 {{motet.affinity = "a"}} : {t}
    %2 = arith.mulf %1, %x {{motet.affinity = "b"}} : {t}
    scf.yield %2 : {t}
  }}
  return %r : {t}
}}
""", [x], wanted)


def summed_up(turns: int) -> Program:
    """What @b makes of each row is added up on @a, and counted on @b; the first row comes from before the loop."""
    table, t = f"tensor<{turns}x7xf32>", "tensor<7xf32>"
    x, start = values(turns, 7), values(7, seed=2)
    total, last = start.copy(), np.exp(start)
    for row in x:
        last = np.exp(row) - last
        total = total + last
    return Program(f"""
func.func @main(%x: {table}, %start: {t}) -> {t} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %end = arith.constant {turns} : index
  %first = math.exp %start {{motet.affinity = "b"}} : {t}
  %r:2 = scf.for %i = %c0 to %end step %c1 iter_args(%v = %start, %l = %first) -> ({t}, {t}) {{
    %row = tensor.extract_slice %x[%i, 0] [1, 7] [1, 1] : {table} to {t}
    %e = math.exp %row {{motet.affinity = "b"}} : {t}
    %d = arith.subf %e, %l {{motet.affinity = "b"}} : {t}
    %0 = arith.addf %v, %d {{motet.affinity = "a"}} : {t}
    scf.yield %0, %d : {t}, {t}
  }}
  %s = arith.addf %r#0, %r#1 {{motet.affinity = "a"}} : {t}
  %z = arith.subf %s, %r#1 {{motet.affinity = "a"}} : {t}
  return %z : {t}
}}
""", [x, start], total)


def tiled(rows: int, columns: int) -> Program:
    """exp of tiles on @b, in a loop within a loop, the inner one over a triangle of the tiles."""
    table, tile = f"tensor<{3 * rows}x{2 * columns}xf32>", "tensor<3x2xf32>"
    x = values(3 * rows, 2 * columns)
    wanted = x.copy()
    for i in range(rows):
        for j in range(min(i + 1, columns)):
            part = np.s_[3 * i : 3 * i + 3, 2 * j : 2 * j + 2]
            wanted[part] = np.exp(x[part])
    return Program(f"""
func.func @main(%x: {table}) -> {table} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %rows = arith.constant {rows} : index
  %columns = arith.constant {columns} : index
  %r = scf.for %i = %c0 to %rows step %c1 iter_args(%u = %x) -> {table} {{
    %next = arith.addi %i, %c1 : index
    %end = arith.minsi %next, %columns : index
    %y = arith.muli %i, %c3 : index
    %q = scf.for %j = %c0 to %end step %c1 iter_args(%v = %u) -> {table} {{
      %z = arith.muli %j, %c2 : index
      %a = tensor.extract_slice %x[%y, %z] [3, 2] [1, 1] : {table} to {tile}
      %b = math.exp %a {{motet.affinity = "b"}} : {tile}
      %c = tensor.insert_slice %b into %v[%y, %z] [3, 2] [1, 1] {{motet.affinity = "a"}} : {tile} into {table}
      scf.yield %c : {table}
    }}
    scf.yield %q : {table}
  }}
  return %r : {table}
}}
""", [x], wanted)


PROGRAMS = {
    "one turn": chunked(1, 3),
    "chunks": chunked(7, 4),
    "chunks of one row": chunked(5, 1),
    "to and fro": handed_to_and_fro(6),
    "to and fro, no turn": handed_to_and_fro(0),
    "sums": summed_up(9),
    "tiles": tiled(4, 3),
}


@pytest.fixture(scope="module", params=PROGRAMS)
def built(request: pytest.FixtureRequest) -> tuple[Artifact, Program]:
    program = PROGRAMS[request.param]
    return build_placed(program.text, ("a=host", "b=null,riscv,host"), TARGETS), program


@pytest.mark.parametrize("device", DEVICES)
def test_turns_on_two_devices_give_what_one_gives(built: tuple[Artifact, Program], device: str) -> None:
    if device == "riscv" and RISCV:
        pytest.skip(RISCV)
    artifact, program = built
    with load(artifact, devices={"b": DEVICES[device]}, threads=2) as session:
        for _ in range(3):
            np.testing.assert_allclose(session(*program.inputs), program.expected, rtol=2e-5, atol=1e-5)


def traced(events: Sequence[Traced], device: str, kind: str) -> list[tuple[float, float]]:
    """Begin and end of the events of a kind, by their begin."""
    return sorted(
        (each.event.begin, each.event.end) for each in events if each.device.startswith(device)
        and each.event.kind == kind
    )


def test_a_turn_is_moved_while_the_one_before_computes() -> None:
    program = chunked(8, 4)
    artifact = build_placed(program.text, ("a=host", "b=null"))
    # 20 ms of computing, and 5 of moving each way.
    uri = "null?latency=5e-3&task-time=15e-3&pace=1"
    with load(artifact, devices={"b": uri}) as session:
        result, events = session.main.trace(*program.inputs)
    np.testing.assert_allclose(result, program.expected, rtol=2e-5, atol=1e-5)
    computing = traced(events, "null", "launch")
    moved = traced(events, "null", "write")[1:]  # the first are the weights
    assert len(computing) == len(moved) == 8
    # The first turns are moved at once; from then on each beside what the one before computes.
    for turn in range(1, 7):
        assert moved[turn + 1][0] < computing[turn][1] and moved[turn + 1][1] > computing[turn][0]
    # It computes nearly all of the time: moving each way beside it would make it a third longer.
    assert computing[-1][1] - computing[0][0] < 1.2 * 8 * 20e-3
    # Two turns ago must have been computed before its memory is written again.
    for turn in range(6):
        assert moved[turn + 2][0] >= computing[turn][1]


@pytest.mark.parametrize("view", [0, 1])
def test_two_turns_are_in_memory_however_many_there_are(view: int) -> None:
    """What goes there and what comes back, twice, and the weights."""
    rows = 4
    needed = 4 * WIDTH * (2 * 2 * rows + WIDTH)
    for turns in (2, 3, 16, 40):
        program = chunked(turns, rows)
        artifact = build_placed(program.text, ("a=host", "b=null"))
        with load(artifact, devices={"b": f"null?memory={needed}&view={view}"}) as session:
            for _ in range(2):
                np.testing.assert_allclose(session(*program.inputs), program.expected, rtol=2e-5, atol=1e-5)
        with load(artifact, devices={"b": f"null?memory={needed - 1}&view={view}"}) as session, \
                pytest.raises(OutOfMemoryError):
            session(*program.inputs)


def test_what_turns_hand_on_takes_no_more_memory_with_more_of_them() -> None:
    most: set[int] = set()
    for turns in (4, 5, 32):
        program = summed_up(turns)
        with load(build_placed(program.text, ("a=host", "b=null"))) as session:
            result, events = session.main.trace(*program.inputs)
        np.testing.assert_allclose(result, program.expected, rtol=1e-4, atol=1e-4)
        most.add(max(each.memory for each in events if each.device == "null"))
    assert len(most) == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_devices_that_run_late_do_not_change_what_turns_give(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    program = PROGRAMS[name]
    artifact = build_placed(
        program.text, ("a=noisy-host", "b=noisy-null"), ("noisy-host:x86-64-v3", "noisy-null:x86-64-v3")
    )
    for seed in range(3):
        late = f"delay=5e-4&seed={seed}"
        devices = {"a": f"noisy-host?{late}", "b": f"noisy-null?{late}1&queues={seed + 1}"}
        with load(artifact, devices=devices) as session:
            for _ in range(2):
                np.testing.assert_allclose(session(*program.inputs), program.expected, rtol=2e-5, atol=1e-5)
