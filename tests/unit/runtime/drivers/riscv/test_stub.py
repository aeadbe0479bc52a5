"""The accelerator behind a GDB stub, QEMU's: nothing but the stub reaches its memory."""

from __future__ import annotations

import os
import pty
import shutil
import socket
import subprocess
import threading
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.unit.runtime.drivers.riscv.opening import compile_text, kernel, launch, needs_qemu

import motet
from motet import builder as mb
from motet.errors import DeviceError, DeviceLost, KernelFault
from motet.runtime.conformance import run_checks
from motet.runtime.device import Work, find_device, open_device
from motet.runtime.drivers.riscv import options
from motet.runtime.drivers.riscv.device import RiscvDevice
from motet.runtime.timeline import Point

pytestmark = needs_qemu

FINE = kernel("fine", "ret void")
HANG = kernel("hang", "br label %loop\nloop:\nstore volatile i8 1, ptr %scratch\nbr label %loop")
QUICK = (
    "close-waits", "reopen", "nothing-left", "fork-and-use", "code", "faults", "profile", "submit-at-once",
)

Board = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    """Starts a machine whose cores have not begun, and describes it; its stub is at a TCP port, or on a serial line."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        program: str = "qemu-system-riscv64", described: str = "", line: bool = False
    ) -> subprocess.Popen[bytes]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            stub = "pty" if line else f"socket,fd={listener.fileno()},server=on,wait=off,nodelay=on"
            process = subprocess.Popen(
                [program, "-M", "virt", "-m", "64M", "-smp", "2", "-bios", "none", "-display", "none", "-monitor",
                 "none", "-serial", "null", "-S", "-gdb", "chardev:stub", "-chardev", f"{stub},id=stub"],
                pass_fds=[listener.fileno()], stdout=subprocess.PIPE,
            )
            started.append(process)
            address = f"127.0.0.1:{listener.getsockname()[1]}"
        if line:
            assert process.stdout is not None
            address = process.stdout.readline().decode().split("redirected to ")[1].split()[0]
        monkeypatch.setenv("MOTET_RISCV_HW", f"gdb={address}&memory=64M&harts=2&arch=rv64gc&answer=5{described}")
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _open(uri: str) -> RiscvDevice:
    device = open_device(find_device(uri))
    assert isinstance(device, RiscvDevice)
    return device


@pytest.mark.parametrize("line", [False, True])
def test_a_program_on_cores_that_the_stub_starts(board: Board, line: bool):
    board(line=line)
    x, w, b = (np.random.default_rng(7).standard_normal(shape).astype(np.float32) for shape in ((13, 37), (37, 29), 29))
    with mb.Graph("main") as g:
        g.result(mb.relu(g.input("x", x.shape) @ g.constant(w) + g.constant(b)))
    artifact = motet.compile(g, devices={"npu": "riscv{cpu=rv64gc}"})
    for uri in ("riscv:hw?install=1", "riscv:hw"):  # the second client goes on where the first ended
        with motet.load(artifact, devices={"npu": uri}) as session:
            found = session(x)
        np.testing.assert_allclose(found, np.maximum(x.astype(np.float64) @ w + b, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_it_keeps_to_the_contract(board: Board):
    _contract(board, QUICK)


@pytest.mark.slow
def test_it_keeps_to_the_whole_contract(board: Board):
    _contract(board, ())


def _contract(board: Board, wanted: tuple[str, ...]) -> None:
    board(described="&guard=1")
    _open("riscv:hw?install=1").close()
    outcomes = list(run_checks("riscv:hw", wanted))
    assert [f"{o.check.name}: {o.reason}" for o in outcomes if o.verdict == "fail"] == []
    assert sum(o.verdict == "pass" for o in outcomes) > len(outcomes) * 3 // 4


@pytest.mark.parametrize("spin", ["0", "inf"])
def test_work_that_never_ends_is_stopped_on_cores_that_sleep_and_on_those_that_do_not(board: Board, spin: str):
    board(described=f"&spin={spin}&timeout=0")
    device = _open("riscv:hw?install=1")
    point = _hang(device)
    device.abort()
    with pytest.raises(DeviceError, match="aborted"):
        point.wait(60)
    assert launch(device, FINE, "fine") is None
    device.close()
    limited = _open("riscv:hw?timeout=0.2")
    assert isinstance(launch(limited, HANG, "hang", scratch=64), KernelFault)
    assert launch(limited, FINE, "fine") is None
    limited.close()


def _hang(device: RiscvDevice) -> Point:
    """Work without an end, which has most likely begun."""
    executable = device.load([compile_text(HANG)], ["hang.o"])
    point = device.submit(device.record(executable, [Work("launch", (), "hang", 2, ())], 0, 64), [])
    time.sleep(0.1)
    return point


# -- stubs that are of no use ----------------------------------------------------------------------


def test_a_port_on_which_no_stub_listens(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("MOTET_RISCV_HW", f"gdb={address}")
    words = f"^device riscv:hw: the stub at {address} cannot be reached: Connection refused$"
    with pytest.raises(DeviceError, match=words):
        open_device(find_device("riscv:hw"))
    program = "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {\n return %x : tensor<2xf32> }"
    for flag, name, binding in (("riscv", "", "riscv:hw"), ("npu=riscv", "device @npu: ", {"npu": "riscv:hw"})):
        artifact = motet.compile(program, devices=flag)
        with pytest.raises(DeviceError, match=f"^artifact: {name}{words[1:]}"):
            motet.load(artifact, devices=binding)


def test_a_stub_that_closes_when_it_is_greeted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "stub"))
        server.listen()
        monkeypatch.setenv("MOTET_RISCV_HW", f"gdb={tmp_path / 'stub'}")
        thread = threading.Thread(target=lambda: _greeted(server.accept()[0]))
        thread.start()
        with pytest.raises(DeviceError, match=r"^device riscv:hw: the connection to the stub at \S+ was closed$"):
            open_device(find_device("riscv:hw"))
        thread.join()


def _greeted(connection: socket.socket) -> None:
    connection.recv(100)
    connection.close()


def test_a_stub_that_closes_while_its_device_works(board: Board):
    process = board()
    device = _open("riscv:hw?install=1")
    point = _hang(device)
    process.kill()
    with pytest.raises(DeviceLost, match=r"^device riscv:hw\?install=1: lost: the connection to the stub .*$"):
        point.wait(60)
    with pytest.raises(DeviceLost):
        device.allocate(8)
    begin = time.monotonic()
    device.close()
    assert time.monotonic() - begin < 5


@pytest.mark.skipif(shutil.which("qemu-system-riscv32") is None, reason="qemu-system-riscv32 is not installed")
def test_the_stub_of_another_machine(board: Board):
    board(program="qemu-system-riscv32")
    words = r"^device riscv:hw\?install=1: the stub at \S+ is of a machine riscv:rv32; expected riscv:rv64$"
    with pytest.raises(DeviceError, match=words):
        open_device(find_device("riscv:hw?install=1"))


def test_a_machine_with_less_memory_or_without_the_firmware(board: Board):
    board()
    with pytest.raises(DeviceError, match=r"^device riscv:hw\?memory=128M: memory at 0x87ffffff cannot be read: E\d+$"):
        open_device(find_device("riscv:hw?memory=128M"))
    with pytest.raises(DeviceError, match="its firmware speaks version 0x00000000"):
        open_device(find_device("riscv:hw"))


def test_options_describe_a_board_that_no_variable_does(board: Board, monkeypatch: pytest.MonkeyPatch):
    board()
    described = os.environ["MOTET_RISCV_HW"]
    for other, install in (("", 1), ("window=/dev/there-is-none&bell=/dev/null", 0)):
        monkeypatch.setenv("MOTET_RISCV_HW", other)
        with pytest.raises(DeviceError, match=r"not available: .*(riscv:hw\?gdb=HOST:PORT|there-is-none)"):
            find_device("riscv:hw?install=1")
        device = _open(f"riscv:hw?install={install}&{described}")
        assert launch(device, FINE, "fine") is None
        device.close()


@pytest.mark.parametrize("said", [b"", b"\x03$\xff-#+$T05#00" * 9])
def test_a_line_on_which_no_stub_answers(said: bytes, monkeypatch: pytest.MonkeyPatch):
    """Nothing answers, or a device at another speed does."""
    far, near = pty.openpty()
    tty.setraw(near)
    path = os.ttyname(near)
    thread = threading.Thread(target=lambda: os.read(far, 1) and os.write(far, said))
    thread.start()
    words = rf"^device \S+: the stub does not answer \? within 0.2 s over the line {path} of 9600 baud \(baud=SPEED\)$"
    with pytest.raises(DeviceError, match=words):
        open_device(find_device(f"riscv:hw?gdb={path}&baud=9600&answer=0.2"))
    thread.join()
    os.close(far)
    os.close(near)


@pytest.mark.parametrize(("options", "words"), [
    ("gdb=/dev/null", "port /dev/null: not a serial line of 115200 baud: Inappropriate ioctl for device"),
    ("gdb=/dev/there-is-none", "the stub at /dev/there-is-none cannot be reached: No such file or directory"),
    ("gdb=/etc/passwd", "the stub at /etc/passwd cannot be reached: Connection refused"),
    ("gdb=/dev/null&baud=7", "option baud=7; expected a speed from 9600 to 921600, such as 115200"),
])  # fmt: skip
def test_files_that_are_no_line(options: str, words: str):
    with pytest.raises(DeviceError, match=rf"^device \S+: {words}$"):
        open_device(find_device(f"riscv:hw?{options}"))


def test_a_window_and_a_stub_are_not_both_given():
    with pytest.raises(DeviceError, match="expected one way to its memory"):
        options.parse("riscv:hw?gdb=localhost:1234&window=/dev/mem", {})
