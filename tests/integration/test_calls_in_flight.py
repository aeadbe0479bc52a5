"""Submitted calls of real programs: devices that work while the host does, order where memory is shared, errors, and
the end of the process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import environment

import motet
from motet.artifact.reader import Artifact
from motet.errors import CallError, DeviceLost, MotetError, OptionError
from motet.runtime.session import Session, load

ROWS, WIDTH = 3, 16
LATENCY = 20e-3  # of the modelled device, for each thing that it does


def stages(places: str) -> str:
    """A chain of tanh(x + w), each on the device that `places` names; and a second result, of the first alone."""
    tensor = f"tensor<{ROWS}x{WIDTH}xf32>"
    lines = [f"func.func @main(%x: {tensor}, %w: {tensor}) -> {tensor} {{", f"  %e = tensor.empty() : {tensor}"]
    value = "%x"
    for number, place in enumerate(places):
        where = f"motet.affinity = #hal.device.affinity<@{place}>"
        lines += [
            f"  %s{number} = linalg.add {{{where}}} ins({value}, %w : {tensor}, {tensor}) outs(%e : {tensor})"
            f" -> {tensor}",
            f"  %v{number} = linalg.tanh {{{where}}} ins(%s{number} : {tensor}) outs(%e : {tensor}) -> {tensor}",
        ]
        value = f"%v{number}"
    return "\n".join([*lines, f"  return {value} : {tensor}", "}"])


def expected(x: np.ndarray, w: np.ndarray, count: int) -> np.ndarray:
    value = x.astype(np.float64)
    for _ in range(count):
        value = np.tanh(value + w)
    return value


def random(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((ROWS, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def two_devices() -> Artifact:
    return motet.compile(stages("aba"), devices={"a": "host", "b": "null,host"})


def seconds_of(session: Session, count: int) -> float:
    """Seconds for `count` submitted calls, whose results are checked."""
    w = random(99)
    session(random(0), w)
    inputs = [random(number) for number in range(count)]
    begin = time.perf_counter()
    futures = [session.submit(x, w) for x in inputs]
    results = [future.result(60) for future in futures]
    taken = time.perf_counter() - begin
    for x, result in zip(inputs, results, strict=True):
        np.testing.assert_allclose(result, expected(x, w, 3), rtol=1e-4, atol=1e-5)
    return taken


@pytest.mark.parametrize("queues", [1, 2])
def test_a_call_begins_while_a_device_works_for_the_one_before(two_devices: Artifact, queues: int) -> None:
    """Each queue of the device sleeps: calls on several queues overlap there; on one, transfers and launches of one
    call follow another's without a pause."""
    uri = f"null?pace=1&latency={LATENCY}&queues={queues}"
    taken = {1: float("inf"), 4: float("inf")}
    for _ in range(6):  # a machine that is busy with other things may be late, but not always
        for in_flight in taken:
            with load(two_devices, devices={"b": uri}, in_flight=in_flight) as session:
                taken[in_flight] = min(taken[in_flight], seconds_of(session, 8))
        if taken[4] < (0.7 if queues > 1 else 1.15) * taken[1]:
            return
    raise AssertionError(taken)


def test_the_host_works_while_another_call_waits_for_a_device(two_devices: Artifact) -> None:
    """The last step on the host waits for the device; the first of the next call must not wait behind it."""
    with load(two_devices, devices={"b": f"null?pace=1&latency={LATENCY}&queues=1"}, in_flight=2) as session:
        w = random(99)
        session(random(0), w)
        first = session.submit(random(1), w)
        time.sleep(LATENCY / 2)
        _, events = session["main"].trace(random(2), w)
        first.result(60)
    begun = [event.event for event in events if event.device.startswith("host")]
    device = [event.event for event in events if event.device.startswith("null")]
    assert begun and device
    assert min(event.begin for event in begun) < max(event.end for event in device) - LATENCY


def test_two_processors_of_the_host_take_turns_with_several_calls() -> None:
    artifact = motet.compile(stages("ab"), devices={"a": "host", "b": "host"})
    with load(artifact, devices={"a": "host/1", "b": "host/2"}, threads=1) as session:
        w = random(99)
        futures = [session.submit(random(number), w) for number in range(40)]
        for number, future in enumerate(futures):
            np.testing.assert_allclose(future.result(60), expected(random(number), w, 2), rtol=1e-4, atol=1e-5)


def test_a_chain_through_one_array_is_computed_in_order(two_devices: Artifact) -> None:
    for devices in ({"b": "null"}, {"a": "host", "b": "host"}):
        with load(two_devices, devices=devices, in_flight=4) as session:
            w, memory = random(99), [random(0), np.zeros((ROWS, WIDTH), np.float32)]
            value = memory[0].astype(np.float64)
            futures = []
            for number in range(20):
                futures.append(session.submit(memory[number % 2], w, out=memory[(number + 1) % 2]))
                value = expected(value, w, 3)
            for future in futures:
                future.result(60)
            np.testing.assert_allclose(memory[0], value, rtol=1e-3, atol=1e-4)


def test_a_lost_device_fails_the_calls_that_need_it_and_no_more_hang(two_devices: Artifact) -> None:
    session = load(two_devices, devices={"b": "null?lose-after=4&required=true"}, in_flight=3)
    w = random(99)
    futures = [session.submit(random(number), w) for number in range(12)]
    errors = [future.exception(60) for future in futures]
    assert any(isinstance(error, DeviceLost) for error in errors)
    assert all(error is None or isinstance(error, MotetError) for error in errors)
    session.close()


def test_wrong_arguments_fail_their_own_call(two_devices: Artifact) -> None:
    with load(two_devices, devices={"b": "null"}) as session:
        w = random(99)
        bad, good = session.submit(random(0)), session.submit(random(0), w)
        with pytest.raises(CallError, match="1 arguments given, 2 expected"):
            bad.result(60)
        np.testing.assert_allclose(good.result(60), expected(random(0), w, 3), rtol=1e-4, atol=1e-5)
        with pytest.raises(OptionError, match="in_flight: 0 given, at least 1 expected"):
            load(two_devices, devices={"b": "null"}, in_flight=0)


def test_threads_and_submitted_calls_share_a_session(two_devices: Artifact) -> None:
    with load(two_devices, devices={"b": "null?queues=1"}, in_flight=2) as session:
        w = random(99)
        wrong: list[int] = []

        def call(seed: int) -> None:
            for number in range(10):
                x = random(seed * 100 + number)
                results = (session(x, w), session.submit(x, w).result(60))
                if not all(np.allclose(result, expected(x, w, 3), rtol=1e-4, atol=1e-5) for result in results):
                    wrong.append(seed)

        threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads) and not wrong


def test_a_process_ends_with_calls_in_flight(two_devices: Artifact, tmp_path: Path) -> None:
    two_devices.save(tmp_path / "p.motet")
    text = f"""
import numpy as np
from motet.runtime import load
session = load("p.motet", devices={{"b": "null?pace=1&latency=5e-3"}})
x = np.ones(({ROWS}, {WIDTH}), np.float32)
futures = [session.submit(x, x) for _ in range(10)]
print(futures[0].result().shape)
"""
    outcome = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60,
    )
    assert outcome.returncode == 0 and not outcome.stderr, outcome.stderr
    assert outcome.stdout.strip() == f"({ROWS}, {WIDTH})"
