"""Embedded devices: faults, limits, counters, the ways to reach them, and their life."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.unit.runtime.drivers.embedded.opening import (
    EVERY_MACHINE,
    begin,
    ended,
    kernel,
    launch,
    needs,
    open_embedded,
)

from motet.errors import DeviceError, DeviceLost, KernelFault, OutOfMemoryError
from motet.runtime.conformance import run_checks
from motet.runtime.device import DeviceInfo, find_device, open_device, probe
from motet.runtime.drivers.embedded import driver, options
from motet.runtime.drivers.embedded.device import EmbeddedDevice
from motet.runtime.drivers.embedded.image import read_image, shipped_image
from motet.runtime.drivers.embedded.machines import MACHINES
from motet.runtime.drivers.embedded.transport import Transport

M55 = "mps3-an547"
TRAP = kernel("trapping", "  call void @llvm.trap()\n  unreachable") + "declare void @llvm.trap()\n"
ENDLESS = kernel(
    "endless", "  br label %loop\nloop:\n  store volatile i32 1, ptr %scratch\n  br label %loop"
)
FINE = kernel("fine", "  ret void")
WILD = kernel(
    "wild", "  %out = load ptr, ptr %buffers\n  %far = getelementptr i8, ptr %out, i64 67108864\n"
    "  store volatile i32 1, ptr %far\n  ret void"
)


# -- faults and limits -----------------------------------------------------------------------------


@pytest.mark.parametrize("machine", EVERY_MACHINE)
def test_a_fault_names_the_kernel_and_leaves_the_device_usable(machine: str) -> None:
    device = open_embedded(machine)
    try:
        error = launch(device, TRAP, "trapping")
        assert isinstance(error, KernelFault)
        assert error.kernel == "trapping"
        assert error.symbol.startswith("trapping+")
        assert error.usable
        assert launch(device, FINE, "fine") is None
    finally:
        device.close()


@needs(M55)
def test_an_address_without_memory_is_named() -> None:
    device = open_embedded(M55)
    try:
        error = launch(device, WILD, "wild")
        assert isinstance(error, KernelFault)
        assert error.address >= 1 << 26
        assert "an access to an address without memory" in str(error)
    finally:
        device.close()


@pytest.mark.parametrize("link", ["gdb", "serial"])
@pytest.mark.parametrize("machine", [pytest.param(M55, marks=needs(M55)), pytest.param("virt", marks=needs("virt"))])
def test_the_device_stops_a_launch_at_the_limit(machine: str, link: str) -> None:
    device = open_embedded(machine, f"timeout=0.2&link={link}")
    try:
        error = launch(device, ENDLESS, "endless")
        assert isinstance(error, KernelFault)
        assert "longer than 0.2 s" in str(error)
        assert launch(device, FINE, "fine") is None
    finally:
        device.close()


class Watched:
    """A transport that calls `reach` before each call of it, and each time a running batch asks whether to end."""

    def __init__(self, transport: Transport, reach: Callable[[str], None]) -> None:
        self._transport = transport
        self._reach = reach

    def read(self, address: int, size: int) -> bytes:
        self._reach("read")
        return self._transport.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        self._reach("write")
        self._transport.write(address, data)

    def run(self, limit: float, aborted: Callable[[], bool]) -> bool:
        def asked() -> bool:
            self._reach("running")
            return aborted()

        self._reach("run")
        return self._transport.run(limit, asked)

    def finish(self, limit: float) -> bool:
        self._reach("finish")
        return self._transport.finish(limit)

    def close(self) -> None:
        self._transport.close()


@pytest.mark.parametrize("link", ["gdb", "serial"])
@pytest.mark.parametrize("step", range(6))
@needs(M55)
def test_abort_ends_a_kernel_at_each_step_of_its_submission(link: str, step: int) -> None:
    """The steps of the queue's thread: commands written, the agent's version read, the mailbox written, started, asked
    twice whether to end."""
    device = open_embedded(M55, f"timeout=0&link={link}")
    steps: list[str] = []

    def reach(what: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            steps.append(what)
            if len(steps) == step + 1:
                device.abort()

    device._transport = Watched(device._transport, reach)
    try:
        error = launch(device, ENDLESS, "endless")
        assert isinstance(error, DeviceError)
        assert "aborted" in str(error)
        assert ("run" in steps) == (step > 1)
        assert launch(device, FINE, "fine") is None
    finally:
        device.close()


@pytest.mark.parametrize("link", ["gdb", "serial"])
@needs(M55)
def test_close_ends_a_kernel_that_has_no_limit(link: str) -> None:
    device = open_embedded(M55, f"timeout=0&link={link}")
    device.patience = 0.1
    point = begin(device, ENDLESS, "endless")
    device.close()
    assert "aborted" in str(ended(point))


@needs(M55)
def test_an_emulator_that_is_killed_is_a_lost_device() -> None:
    device = open_embedded(M55)
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    pids = [
        int(pid) for task in Path("/proc/self/task").iterdir()
        for pid in (task / children.name).read_text().split()
        if "qemu-system-arm" in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(DeviceLost):
        device.fill(device.allocate(64), 1).wait(20)
    device.close()


@needs(M55)
def test_memory_that_is_not_there_is_refused_with_sizes() -> None:
    device = open_embedded(M55, "memory=64K")
    try:
        with pytest.raises(OutOfMemoryError, match=r"of 65,536 bytes of its memory are.* 70,000 bytes asked for"):
            device.allocate(70_000)
    finally:
        device.close()


# -- counters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [pytest.param(M55, marks=needs(M55)), pytest.param("virt", marks=needs("virt"))])
def test_instructions_are_counted(machine: str) -> None:
    loop = kernel(
        "loop", "  br label %again\nagain:\n  %i = phi i64 [0, %0], [%next, %again]\n"
        "  store volatile i64 %i, ptr %scratch\n  %next = add i64 %i, 1\n  %done = icmp uge i64 %next, %end\n"
        "  br i1 %done, label %last, label %again\nlast:\n  ret void"
    )
    device = open_embedded(machine, "count=1")
    try:
        device.profile(True)
        assert launch(device, loop, "loop", 2000) is None
        assert launch(device, loop, "loop", 6000) is None
        short, long = (event.instructions for event in device.profile(False) if event.kind == "launch")
        # Per iteration at least store, add and branch.
        assert 3 * 4000 * 0.95 < long - short < 20 * 4000
    finally:
        device.close()


# -- other ways to reach a device ------------------------------------------------------------------


def _qemu(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["qemu-system-arm", "-M", M55, "-display", "none", "-monitor", "none", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )


def _add_on(uri: str) -> None:
    device = open_device(find_device(uri))
    try:
        data = np.arange(999, dtype=np.uint8)
        buffer, other = device.allocate(999), device.allocate(999)
        written = device.write(buffer, data)
        result = np.zeros_like(data)
        device.read(other, result, waits=[device.copy(buffer, other, waits=[written])]).wait(20)
        np.testing.assert_array_equal(result, data)
        assert isinstance(device, EmbeddedDevice)
        assert launch(device, FINE, "fine") is None
    finally:
        device.close()


def _wait_for_listener(path: Path) -> None:
    """A socket has a path before it takes connections, which Linux tells of each (flag `__SO_ACCEPTCON`)."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
        if any(words[-1] == str(path) and int(words[3], 16) & 0x10000 for words in sockets):
            return
        time.sleep(0.02)


@needs(M55)
def test_a_stub_is_given_the_image_and_can_be_used_again(tmp_path: Path) -> None:
    path = tmp_path / "stub"
    process = _qemu("-S", "-serial", "null", "-chardev", f"socket,id=stub,path={path},server=on,wait=off", "-gdb",
                    "chardev:stub")
    try:
        _wait_for_listener(path)
        for flash in (1, 0):
            _add_on(f"embedded:gdb?machine={M55}&address={path}&flash={flash}")
    finally:
        process.kill()
        process.wait()


@needs(M55)
def test_a_stub_on_a_serial_line() -> None:
    process = _qemu("-S", "-serial", "null", "-chardev", "pty,id=stub", "-gdb", "chardev:stub")
    try:
        assert process.stdout is not None
        port = process.stdout.readline().decode().split("redirected to ")[1].split()[0]
        for flash in (1, 0):
            _add_on(f"embedded:gdb?machine={M55}&address={port}&baud=9600&flash={flash}")
    finally:
        process.kill()
        process.wait()


@needs(M55)
def test_a_serial_port(tmp_path: Path) -> None:
    image = tmp_path / "agent.elf"
    image.write_bytes(shipped_image(MACHINES[M55].image).elf)
    process = _qemu("-kernel", str(image), "-serial", "pty")
    try:
        assert process.stdout is not None
        port = process.stdout.readline().decode().split("redirected to ")[1].split()[0]
        _add_on(f"embedded:serial?machine={M55}&port={port}")
        with pytest.raises(DeviceError, match=r"is of another machine|expected"):
            open_device(find_device(f"embedded:serial?machine=virt&port={port}&boot=3"))
    finally:
        process.kill()
        process.wait()


def test_a_stub_that_does_not_answer_ends_in_one_line() -> None:
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
        server.close()
        with pytest.raises(DeviceError, match=f"localhost:{port} cannot be reached"):
            open_device(find_device(f"embedded:gdb?address=localhost:{port}"))
    with pytest.raises(DeviceError, match="expected address=HOST:PORT"):
        open_device(find_device("embedded:gdb"))
    with pytest.raises(DeviceError, match="port /dev/there-is-none"):
        open_device(find_device("embedded:serial?port=/dev/there-is-none"))


# -- options and images ----------------------------------------------------------------------------


@pytest.mark.parametrize(("uri", "words"), [
    ("embedded:qemu?machine=arduino", "one of mps3-an547, mps2-an500"),
    ("embedded:qemu?baud=9600", "no option 'baud'"),
    ("embedded:serial?baud=7", "expected a speed"),
    ("embedded:qemu?memory=lots", "expected bytes"),
    ("embedded:qemu?cpu=cortex-m4", "without an image"),
    ("embedded:qemu?link=telepathy", "expected gdb or serial"),
])
def test_options_that_make_no_sense_are_refused(uri: str, words: str) -> None:
    with pytest.raises(DeviceError, match=words):
        options.parse(uri, {})


def test_the_environment_describes_a_board() -> None:
    chosen = options.parse("embedded:serial?baud=9600", {"MOTET_EMBEDDED_SERIAL": "port=/dev/ttyUSB3&baud=115200"})
    assert (chosen.port, chosen.baud) == ("/dev/ttyUSB3", 9600)


def test_without_qemu_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = next(info for info in driver.probe() if info.uri == "embedded:qemu")
    assert not found.available
    assert found.reason == "qemu-system-arm is not installed; install qemu-system-arm"
    with pytest.raises(DeviceError, match="install qemu-system-misc"):
        driver.open(DeviceInfo("", "embedded:qemu?machine=virt", family="embedded"))


def test_images_of_others_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.elf"
    file.write_bytes(b"\x7fELF\x01\x01\x01" + bytes(100))
    with pytest.raises(DeviceError, match=r"other\.elf: not an ELF executable for Cortex-M or RISC-V"):
        open_device(find_device(f"embedded:qemu?image={file}")) if probe("embedded")[0].available else read_image(
            file.read_bytes(), str(file)
        )
    whole = shipped_image(MACHINES[M55].image)
    place = whole.elf.index(whole.segments[0].data[:4096]) + whole.symbols["motet_board"] - whole.segments[0].address
    damaged = bytearray(whole.elf)
    damaged[place] ^= 0xFF
    with pytest.raises(DeviceError, match="an agent of version"):
        read_image(bytes(damaged), "old.elf")


@needs(M55)
def test_conformance() -> None:
    outcomes = list(run_checks("embedded:qemu", ["random-work", "library-calls", "keeps-nothing", "fork-and-use"]))
    assert len(outcomes) == 4
    assert [outcome for outcome in outcomes if outcome.verdict != "pass"] == []
