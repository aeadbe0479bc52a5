"""Programs whose functions write globals: what a session keeps from call to call."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import environment, run_motet
from tests.integration.state_programs import Meaning, calls_of, draw, text_of

import motet
from motet.errors import CallError, DeviceLost
from motet.runtime.device_array import DeviceArray
from motet.runtime.session import Session, load

T = "tensor<4xf32>"
ONES = np.ones(4, np.float32)

SHARED = f"""
util.global private mutable @sum = dense<[1.0, 2.0, 3.0, 4.0]> : {T}
util.global private mutable @count : i32
func.func @add(%x: {T}) -> {T} {{
  %s = util.global.load @sum : {T}
  %t = arith.addf %s, %x : {T}
  util.global.store %t, @sum : {T}
  %n = util.global.load @count : i32
  %1 = arith.constant 1 : i32
  %m = arith.addi %n, %1 : i32
  util.global.store %m, @count : i32
  return %s : {T}
}}
func.func @get() -> ({T}, i32) {{
  %s = util.global.load @sum : {T}
  %n = util.global.load @count : i32
  return %s, %n : {T}, i32
}}
func.func @replace(%x: {T}) {{
  util.global.store %x, @sum : {T}
  return
}}
"""
FIRST = np.array([1, 2, 3, 4], np.float32)

# A cache whose next row a number says; on a device of its own where it is placed.
CACHE = """
util.global private @cpu = #hal.device.alias<"local"> : !hal.device
util.global private @acc = #hal.device.select<[#hal.device.target<"null">, #hal.device.fallback<@cpu>]> : !hal.device
util.global private mutable @cache {stream.affinity = #hal.device.affinity<@acc>} : tensor<3x5xf32>
util.global private mutable @row = 0 : index
util.func public @push(%x: tensor<1x5xf32> {iree.abi.affinity = #hal.device.affinity<@cpu>})
    -> (tensor<5xf32> {iree.abi.affinity = #hal.device.affinity<@cpu>}) {
  %c = util.global.load @cache : tensor<3x5xf32>
  %r = util.global.load @row : index
  %one = arith.constant 1 : index
  %next = arith.addi %r, %one : index
  util.global.store %next, @row : index
  %d = tensor.insert_slice %x into %c[%r, 0] [1, 5] [1, 1] : tensor<1x5xf32> into tensor<3x5xf32>
  util.global.store %d, @cache : tensor<3x5xf32>
  %zero = arith.constant dense<0.0> : tensor<5xf32>
  %sum = linalg.reduce { arith.addf } ins(%d : tensor<3x5xf32>) outs(%zero : tensor<5xf32>) dimensions = [0]
  util.return %sum : tensor<5xf32>
}
"""


@pytest.fixture(scope="module")
def shared() -> motet.Artifact:
    return motet.compile(SHARED)


@pytest.fixture(scope="module")
def cache() -> motet.Artifact:
    return motet.compile(CACHE)


def rows(*numbers: float) -> list[np.ndarray]:
    return [np.full((1, 5), number, np.float32) for number in numbers]


def test_functions_share_what_they_keep(shared: motet.Artifact) -> None:
    session = load(shared)
    for count in range(5):  # from the third call on native callables are called
        total, calls = session.get()
        np.testing.assert_array_equal(total, FIRST + count)
        assert calls == count
        np.testing.assert_array_equal(session.add(ONES), FIRST + count)
    assert session.replace(ONES) is None
    np.testing.assert_array_equal(session.get()[0], ONES)


def test_callers_see_arguments_and_results_of_the_program_alone(shared: motet.Artifact) -> None:
    session = load(shared)
    assert list(session) == ["add", "get", "replace"]
    assert [spec.name for spec in session.add.signature.inputs] == ["arg0"]
    assert [spec.name for spec in session.add.signature.results] == ["result0"]
    with pytest.raises(CallError, match=r"add: 2 arguments given, 1 expected: add\(arg0: 4xf32\) -> result0: 4xf32"):
        session.add(ONES, ONES)
    with pytest.raises(CallError, match="add: out: 2 given, 1 expected"):
        session.add(ONES, out=(ONES.copy(), ONES.copy()))
    given = np.empty(4, np.float32)
    assert session.add(ONES, out=given) is given
    np.testing.assert_array_equal(given, FIRST)


def test_results_do_not_change_with_the_state(shared: motet.Artifact) -> None:
    session = load(shared)
    given = ONES.copy()
    session.replace(given)
    kept = session.get()[0]
    given[...] = 7
    session.add(ONES)
    kept_after = session.state["sum"]
    session.add(ONES)
    np.testing.assert_array_equal(kept, ONES)
    np.testing.assert_array_equal(kept_after, 2 * ONES)
    kept_after[...] = 9
    np.testing.assert_array_equal(session.get()[0], 3 * ONES)


def test_sessions_have_states_of_their_own(shared: motet.Artifact) -> None:
    one, other = load(shared), load(shared)
    one.add(ONES)
    np.testing.assert_array_equal(other.get()[0], FIRST)
    np.testing.assert_array_equal(one.get()[0], FIRST + 1)


def test_state_is_read_written_and_reset(shared: motet.Artifact) -> None:
    session = load(shared)
    session.add(ONES)
    checkpoint = dict(session.state)
    assert set(checkpoint) == {"sum", "count"}
    session.add(ONES)
    for name, value in checkpoint.items():
        session.state[name] = value
    np.testing.assert_array_equal(session.get()[0], FIRST + 1)
    assert session.get()[1] == 1
    session.state.reset()
    np.testing.assert_array_equal(session.get()[0], FIRST)
    with pytest.raises(CallError, match="state 'total': there is no such global; there are: sum, count"):
        session.state["total"] = ONES
    with pytest.raises(CallError, match=r"state 'sum': .*5.* given, 4 expected"):
        session.state["sum"] = np.ones(5, np.float32)
    with pytest.raises(CallError, match=r"state 'sum': .*f64 given, f32 expected"):
        session.state["sum"] = np.ones(4)


def test_calls_from_threads_lose_nothing(shared: motet.Artifact) -> None:
    session, each = load(shared), 200

    def work() -> None:
        for _ in range(each):
            session.add(ONES)
            total, calls = session.get()
            assert total[0] == 1 + calls, "what one call keeps is seen together"

    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert session.get()[1] == 4 * each


def test_submitted_calls_see_those_before_them(shared: motet.Artifact) -> None:
    session = load(shared, in_flight=4)
    for _ in range(20):
        session.state.reset()
        futures = []
        for number in range(10):
            session.add.submit(ONES)
            futures.append((number, session.get.submit()))
        for number, future in futures:
            total, calls = future.result()
            assert calls == number + 1
            np.testing.assert_array_equal(total, FIRST + number + 1)


def test_profiled_and_traced_calls_change_state_too(shared: motet.Artifact) -> None:
    session = load(shared)
    assert session.add.profile(ONES)
    result, events = session.add.trace(ONES)
    np.testing.assert_array_equal(result, FIRST + 1)
    assert events
    assert session.get()[1] == 2


def test_a_failed_call_leaves_state_as_it_was(cache: motet.Artifact) -> None:
    session = load(cache, devices={"acc": "host"})
    for row in rows(1, 2, 3):
        session(row)
    before = dict(session.state)
    with pytest.raises(CallError, match="index 3 is outside of an axis of extent 3"):
        session(rows(4)[0])
    for name, value in session.state.items():
        np.testing.assert_array_equal(value, before[name])
    with pytest.raises(CallError, match=r"shape 1x4 given, 1x5 expected"):
        session(np.zeros((1, 4), np.float32))
    assert session.state["row"] == 3


@pytest.mark.parametrize("device", ["null", "host"])
def test_state_stays_on_its_device(cache: motet.Artifact, device: str) -> None:
    session = load(cache, devices={"acc": device})
    total = np.zeros(5, np.float32)
    for row in rows(1, -2, 0.5):
        total += row[0]
        np.testing.assert_allclose(session(row), total)
    kept = session.state.current()["cache"]
    assert isinstance(kept, np.ndarray) == (device == "host")
    np.testing.assert_array_equal(session.state["cache"][:, 0], [1, -2, 0.5])
    session.state["cache"] = np.zeros((3, 5), np.float32)
    session.state["row"] = np.array(2)
    np.testing.assert_array_equal(session(rows(4)[0]), np.full(5, 4))


def test_state_that_stays_is_not_moved(cache: motet.Artifact) -> None:
    session = load(cache, devices={"acc": "null"})
    session(rows(1)[0])
    _, events = session.push.trace(rows(2)[0])
    moved = [each.event.bytes for each in events if each.event.kind in ("write", "read")]
    assert 5 * 4 in moved, "a row, and the sum"
    assert 3 * 5 * 4 not in moved, "the cache"


def test_state_of_a_lost_device_is_lost_until_it_is_reset(
    cache: motet.Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = load(cache)
    session(rows(1)[0])
    kept = session.state.current()["cache"]
    assert isinstance(kept, DeviceArray)
    device = kept.device

    def gone(*arguments: object, **named: object) -> None:
        raise DeviceLost("null", "unplugged")

    for name in ("submit", "read", "copy"):
        monkeypatch.setattr(device, name, gone)
    for _ in range(2):
        with pytest.raises(DeviceLost, match=r"unplugged; the state @cache was on it: state.reset\(\) begins anew"):
            session(rows(2)[0])
    session.state.reset()
    np.testing.assert_array_equal(session(rows(2)[0]), np.full(5, 2))


@pytest.mark.parametrize("flat", [False, True], ids=["scf", "cf"])
@pytest.mark.parametrize("seed", range(5))
def test_random_programs_keep_what_they_mean(seed: int, flat: bool) -> None:
    program = draw(seed + 100 * flat)
    session: Session = load(motet.compile(text_of(program, flat)))
    meaning = Meaning(program)
    for name, x, count in calls_of(program, seed):
        wanted = meaning.call(name, x, count)
        np.testing.assert_allclose(session[name](x, np.array(count, np.int32)), wanted, rtol=1e-5, atol=1e-5)
        for state, value in session.state.items():
            np.testing.assert_allclose(value, meaning.state[state], rtol=1e-5, atol=1e-5)


def test_upstreams_globals_are_state_too() -> None:
    session = load(motet.compile(f"""
        ml_program.global private mutable @s(dense<1.0> : {T}) : {T}
        ml_program.global private @k(dense<2.0> : {T}) : {T}
        func.func @main(%n: i32) -> {T} {{
          %c0 = arith.constant 0 : i32
          %c1 = arith.constant 1 : i32
          %k = ml_program.global_load_const @k : {T}
          scf.while (%i = %n) : (i32) -> i32 {{
            %c = arith.cmpi sgt, %i, %c0 : i32
            scf.condition(%c) %i : i32
          }} do {{
          ^bb0(%i: i32):
            %0 = ml_program.global_load @s : {T}
            %1 = arith.mulf %0, %k : {T}
            ml_program.global_store @s = %1 : {T}
            %j = arith.subi %i, %c1 : i32
            scf.yield %j : i32
          }}
          %s = ml_program.global_load @s : {T}
          return %s : {T}
        }}"""))
    for count, wanted in ((0, 1), (3, 8), (1, 16)):
        np.testing.assert_array_equal(session(np.array(count, np.int32)), np.full(4, wanted))


def test_state_decides_extents() -> None:
    session = load(motet.compile("""
        util.global private mutable @n = 1 : index
        func.func @main(%x: tensor<6xf32>) -> tensor<?xf32> {
          %n = util.global.load @n : index
          %c1 = arith.constant 1 : index
          %m = arith.addi %n, %c1 : index
          util.global.store %m, @n : index
          %0 = tensor.extract_slice %x[0] [%n] [1] : tensor<6xf32> to tensor<?xf32>
          %1 = arith.addf %0, %0 : tensor<?xf32>
          return %1 : tensor<?xf32>
        }"""))
    x = np.arange(6, dtype=np.float32)
    for count in range(1, 7):
        np.testing.assert_array_equal(session(x), 2 * x[:count])
    with pytest.raises(CallError):
        session(x)
    assert session.state["n"] == 7


@pytest.mark.parametrize("kind", ["f64", "f16", "bf16", "i8", "i1", "f8E4M3FN", "i4"])
def test_states_of_every_type(kind: str) -> None:
    session = load(motet.compile(f"""
        util.global private mutable @s : tensor<3x2x{kind}>
        func.func @main(%x: tensor<3x2x{kind}>) -> tensor<3x2x{kind}> {{
          %0 = util.global.load @s : tensor<3x2x{kind}>
          util.global.store %x, @s : tensor<3x2x{kind}>
          return %0 : tensor<3x2x{kind}>
        }}"""))
    dtype = session.state["s"].dtype
    first, second = np.ones((3, 2)).astype(dtype), (np.arange(6).reshape(3, 2) % 2).astype(dtype)
    np.testing.assert_array_equal(session(first), np.zeros((3, 2)).astype(dtype))
    np.testing.assert_array_equal(session(second), first)
    np.testing.assert_array_equal(session.state["s"], second)


def test_an_artifact_with_state_is_written_and_read(shared: motet.Artifact, tmp_path: Path) -> None:
    path = tmp_path / "shared.motet"
    path.write_bytes(shared.data)
    with load(path) as session:
        session.add(ONES)
        np.testing.assert_array_equal(session.get()[0], FIRST + 1)


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "placement.md").read_text().split("## State")[1].split("\n## ")[0]
    (program,), (script,) = (
        re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL) for language in ("mlir", "python")
    )
    (tmp_path / "average.mlir").write_text(program)
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == re.findall(r"print\(.*?\)  +# (.*)", script)


def exported(artifact: motet.Artifact, function: str, folder: Path) -> Callable[..., None]:
    """A function as the C that it is exported as, built with the system's compiler."""
    (folder / "m.motet").write_bytes(artifact.data)
    target = load(artifact).variants[0].target
    own = "f_" + function.replace(".", "_")
    run = run_motet("export", "m.motet", "--target", target, "--format", "c", "--function", function, "-o", own,
                    folder=folder)
    assert run.returncode == 0, run.stderr
    sources = [path.name for path in (folder / own).iterdir() if path.suffix in (".c", ".o")]
    command = ["cc", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o", "lib.so", *sources, "-lm"]
    subprocess.run(command, cwd=folder / own, check=True, timeout=300)
    function_of: Callable[..., None] = getattr(ctypes.CDLL(str(folder / own / "lib.so")), own)
    return lambda *arrays: function_of(*(array.ctypes.data_as(ctypes.c_void_p) for array in arrays))


def test_exported_c_has_state_as_arguments(shared: motet.Artifact, tmp_path: Path) -> None:
    add, first = (exported(shared, name, tmp_path) for name in ("add", "motet.initial_state"))
    total, count, result = np.zeros(4, np.float32), np.zeros((), np.int32), np.zeros(4, np.float32)
    first(total, count)
    for number in range(3):
        next_total, next_count = np.zeros_like(total), np.zeros_like(count)
        add(ONES, total, count, result, next_total, next_count)
        np.testing.assert_array_equal(result, FIRST + number)
        total, count = next_total, next_count
    np.testing.assert_array_equal(total, FIRST + 3)
    assert count == 3


@pytest.mark.parametrize("arguments", [
    ["run", "CACHE", "--input", "1x5xf32=random:1", "--verify"],
    ["bench", "CACHE", "--number", "2", "--verify"],
    ["inspect", "CACHE"],
], ids=lambda arguments: arguments[0])
def test_tools_call_from_the_initial_state(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache.mlir").write_text(CACHE)
    command = ["cache.mlir" if each == "CACHE" else each for each in arguments]
    if command[0] == "inspect":
        (tmp_path / "cache.motet").write_bytes(motet.compile(CACHE).data)
        command[1] = "cache.motet"
    run = run_motet(*command, folder=tmp_path)
    assert run.returncode == 0, run.stderr
    assert ("@cache: 3x5xf32" if command[0] == "inspect" else "verified: result 0") in run.stdout + run.stderr
