"""Devices that stop answering: they are lost after a time, another takes their place, and Ctrl-C ends every wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import motet
from motet.errors import DeviceLost
from motet.runtime.device_program import LoadedDevice
from motet.runtime.drivers.riscv.device import RiscvDevice
from motet.runtime.drivers.riscv.emulator import Emulator, program

TEXT = """
module {
  "motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
  "motet.device"() {sym_name = "acc", alternatives = ["riscv", "null", "@cpu"]} : () -> ()
  func.func @main(%x: tensor<16x32xf32> {motet.affinity = "cpu"}) -> (tensor<16x19xf32> {motet.affinity = "cpu"}) {
    %w = arith.constant dense<0.5> : tensor<32x19xf32>
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<16x19xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<16x19xf32>) -> tensor<16x19xf32>
    %p = linalg.matmul {motet.affinity = "acc"}
      ins(%x, %w : tensor<16x32xf32>, tensor<32x19xf32>) outs(%init : tensor<16x19xf32>) -> tensor<16x19xf32>
    %root = linalg.tanh ins(%p : tensor<16x19xf32>) outs(%empty : tensor<16x19xf32>) -> tensor<16x19xf32>
    return %root : tensor<16x19xf32>
  }
}"""
needs_emulator = pytest.mark.skipif(program() is None, reason="no emulator of RISC-V is installed")
EMULATOR = "riscv:qemu?harts=2&memory=64M"
X = np.linspace(-0.1, 0.2, 16 * 32, dtype=np.float32).reshape(16, 32)
EXPECTED = np.tanh(X.astype(np.float64) @ np.full((32, 19), 0.5))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stopped") / "program.motet"
    motet.compile(TEXT).save(path)
    return path


def emulator_of(session: motet.Session) -> Emulator:
    return next(each.device.emulator for each in session._bound.opened if isinstance(each.device, RiscvDevice))


def stop(session: motet.Session) -> int:
    """Stops the emulator of a session; its process."""
    return stop_device(next(each.device for each in session._bound.opened if isinstance(each.device, RiscvDevice)))


def stop_device(device: RiscvDevice) -> int:
    emulator = device.emulator
    assert emulator is not None
    os.kill(emulator.pid, signal.SIGSTOP)
    while not emulator.stopped:
        time.sleep(0.01)
    return emulator.pid


def check(result: np.ndarray) -> None:
    np.testing.assert_allclose(result, EXPECTED, rtol=1e-5, atol=1e-6)


def _stopping(place: Callable[..., None]) -> Callable[..., None]:
    """`place_parameters`, before which an emulator stops, and code is loaded."""

    def placed(self: LoadedDevice, regions: Sequence[str]) -> None:
        if isinstance(self.device, RiscvDevice):
            stop_device(self.device)
            assert self.executable is None, "never reached: loading it finds that nobody answers"
        place(self, regions)

    return placed


@needs_emulator
@pytest.mark.parametrize("when", ["at load", "before the first call", "between calls", "in a call"])
def test_a_stopped_emulator_is_replaced(file: Path, when: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MOTET_RISCV_QEMU", "harts=2&memory=64M&answer=0.3")
    if when == "at load":
        monkeypatch.setattr(LoadedDevice, "place_parameters", _stopping(LoadedDevice.place_parameters))
    with motet.load(file) as session:
        if when == "at load":
            check(session(X))
            assert session.devices[1].info.uri == "null"
            return
        assert session.devices[1].info.uri == "riscv:qemu"
        if when != "before the first call":
            check(session(X))
        if when == "in a call":
            connection = session._bound.opened[1].device._connection
            submitted = connection._submit
            monkeypatch.setattr(connection, "_submit", lambda *batch: (stop(session), submitted(*batch))[1])
        else:
            stop(session)
        process = emulator_of(session).pid
        begin = time.monotonic()
        check(session(X))
        assert time.monotonic() - begin < 10
        assert not session.devices[1].info.uri.startswith("riscv")
        assert any("has been stopped for 0.3 s (answer=SECONDS)" in note for note in session.notes)
        assert not Path(f"/proc/{process}").exists()


def test_a_device_that_hangs_is_replaced():
    alternatives = '["null{hang-at=1&answer=0.2}", "null[2]", "@cpu"]'
    with motet.load(motet.compile(TEXT.replace('["riscv", "null", "@cpu"]', alternatives))) as session:
        check(session(X))
        assert "hang" in session.devices[1].info.uri
        check(session(X))
        assert session.devices[1].info.uri == "null/2"
        assert any("submission 1 has run for 0.2 s" in note for note in session.notes)


def test_a_device_that_hangs_without_an_alternative_is_an_error():
    alone = TEXT.replace('["riscv", "null", "@cpu"]', '["null"]')
    session = motet.load(motet.compile(alone), devices={"acc": "null?hang-at=0&answer=0.2"})
    with session, pytest.raises(DeviceLost, match="does not answer"):
        session(X)


# -- Ctrl-C --------------------------------------------------------------------------------------

# What a process waits for when it is interrupted; each says the process of its emulator first.
WAITS = {
    "call": "with open_(FILE, answer=100) as session:\n    session(X); say(stop(session)); session(X)",
    "submit": (
        "with open_(FILE, answer=100) as session:\n"
        "    session(X); say(stop(session)); session.submit(X).result()"
    ),
    "profile": "with open_(FILE, answer=100) as session:\n    session(X); say(stop(session)); session.profile(X)",
    "close": "session = open_(FILE, answer=100)\nsession(X); say(stop(session)); session.submit(X); session.close()",
    "load": (
        "from motet.runtime.drivers.riscv.device import RiscvDevice\n"
        "original = RiscvDevice.load\n"
        "def stopped(self, *given):\n    say(stop_device(self)); return original(self, *given)\n"
        "RiscvDevice.load = stopped\n"
        "with open_(FILE, answer=100) as session:\n    session(X)"
    ),
    "boot": (
        "from motet.runtime.drivers.riscv.emulator import Emulator\n"
        "spawn = Emulator._spawn\n"
        "def stopped(self):\n    process = spawn(self); os.kill(process.pid, signal.SIGSTOP); say(process.pid)\n"
        "    return process\n"
        "Emulator._spawn = stopped\nopen_(FILE, answer=100)"
    ),
    "null call": "with load(FILE, devices={'acc': 'null?hang-at=1'}) as session:\n    session(X); say(0); session(X)",
    "null submit": (
        "with load(FILE, devices={'acc': 'null?hang-at=1'}) as session:\n"
        "    session(X); say(0); session.submit(X).result()"
    ),
}
PRELUDE = """
import os, signal, sys
from motet import load
from tests.integration.test_stopped_devices import EMULATOR, X, stop, stop_device
FILE = sys.argv[1]
def open_(file, answer):
    return load(file, devices={'acc': f'{EMULATOR}&answer={answer}'})
def say(process):
    print(process, flush=True)
"""


@pytest.mark.parametrize("wait", [
    *(pytest.param(wait, marks=needs_emulator) for wait in WAITS if not wait.startswith("null")),
    *(wait for wait in WAITS if wait.startswith("null")),
])
def test_an_interrupt_ends_every_wait(file: Path, wait: str):
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + WAITS[wait], str(file)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    emulator = int(process.stdout.readline() or -1)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    try:
        _, errors = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail("it did not end")
    took = time.monotonic() - begin
    assert errors.strip().splitlines()[-1:] == ["KeyboardInterrupt"], errors
    assert took < 3, "a second, and what a busy machine adds"
    end = time.monotonic() + 5
    while emulator > 0 and Path(f"/proc/{emulator}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not emulator or not Path(f"/proc/{emulator}").exists()
