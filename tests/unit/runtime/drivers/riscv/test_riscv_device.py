"""The emulated accelerator as a device: its life, its options, its profile, its memory, its window."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from tests.unit.runtime.conftest import ADD
from tests.unit.runtime.drivers.riscv.opening import compile_text, kernel, launch, needs_qemu, open_riscv

from motet.compiler.codegen.cpu.objects import ObjectUnit, assembly
from motet.compiler.targets.families import resolve_target
from motet.errors import DeviceError, OutOfMemoryError
from motet.runtime.conformance import all_checks, run_checks
from motet.runtime.device import DeviceInfo, Reference, Work, find_device, open_device
from motet.runtime.drivers.riscv import options
from motet.runtime.drivers.riscv.device import RiscvDevice
from motet.runtime.drivers.riscv.emulator import Emulator

pytestmark = needs_qemu

QEMU = "riscv:qemu?harts=2&guard=1&memory=128M"
PARTS = 12  # of the checks of the contract, one in `make test`: each starts an emulator
FINE = kernel("fine", "ret void")
COUNTING = kernel(
    "counting",
    """first:
    %n = load i64, ptr %sizes
    br label %loop
    loop:
    %i = phi i64 [%n, %first], [%less, %loop]
    store volatile i64 %i, ptr %scratch, align 8
    %less = sub i64 %i, 1
    %done = icmp eq i64 %less, 0
    br i1 %done, label %last, label %loop
    last:
    ret void""",
)


def _add(device: RiscvDevice, count: int, tasks: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    executable = device.load([compile_text(ADD)], ["add.o"])
    buffers = [device.allocate(4 * count) for _ in range(3)]
    references = tuple(Reference(index, 0, 4 * count) for index in range(3))
    work = device.record(executable, [Work("launch", references, "add", tasks, (count,))], 3, 0)
    written = [device.write(buffers[0], a), device.write(buffers[1], b, queue=1)]
    done = device.submit(work, buffers, written)
    result = np.empty(count, np.float32)
    device.read(buffers[2], result, waits=[done], queue=1).wait(120)
    return result


@pytest.mark.parametrize(("uri", "part"), [
    (QEMU, 0), *(pytest.param(*each, marks=pytest.mark.slow) for each in (
        *((QEMU, part) for part in range(1, PARTS)), *(("riscv:iss?arch=rv64gc", part) for part in range(PARTS)),
    )),
])
def test_it_keeps_to_the_contract(uri: str, part: int):
    outcomes = list(run_checks(uri, [check.name for check in all_checks()][part::PARTS]))
    assert [f"{o.check.name}: {o.reason}" for o in outcomes if o.verdict == "fail"] == []
    assert sum(o.verdict == "pass" for o in outcomes) > len(outcomes) * 2 // 3


# -- life ------------------------------------------------------------------------------------------


def test_importing_and_probing_starts_nothing():
    code = (
        "import os, sys; before = len(os.listdir('/proc/self/fd'));"
        "from motet.runtime.device import devices;"
        "found = [info.uri for info in devices() if info.family == 'riscv' and info.available];"
        "assert 'riscv:qemu' in found and 'riscv:qemu/1' in found, found;"
        "assert len(os.listdir('/proc/self/fd')) == before;"
        "assert not open(f'/proc/self/task/{os.getpid()}/children').read();"
        "assert 'llvmlite' not in sys.modules and 'torch_mlir' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


def test_several_devices_have_memories_of_their_own():
    devices = [open_riscv(f"arch={arch}") for arch in ("rv64gc", "rv64gcv128", "rv64gcv256")]
    random = np.random.default_rng(0)
    given = [(random.random(101, np.float32), random.random(101, np.float32)) for _ in devices]
    buffers = [device.allocate(101) for device in devices]
    for device, (a, b) in zip(devices, given, strict=True):
        np.testing.assert_array_equal(_add(device, 101, 101, a, b), a + b)
    with pytest.raises(DeviceError, match="another device"):
        devices[0].fill(buffers[1], 0)
    for device in devices:
        device.close()


def test_a_device_that_is_dropped_or_whose_owner_dies_leaves_no_process():
    device = open_riscv()
    assert device.emulator is not None
    pid, gone = device.emulator.pid, weakref.ref(device)
    del device
    gc.collect()
    assert gone() is None
    _expect_no_process(pid)
    code = (
        "import os, signal\n"
        "from tests.unit.runtime.drivers.riscv.opening import open_riscv\n"
        "device = open_riscv()\n"
        "print(device.emulator.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    outcome = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=240, check=False)
    assert outcome.returncode == -9
    _expect_no_process(int(outcome.stdout))


def _expect_no_process(pid: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state in "ZX":
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is still there")


def test_a_forked_child_cannot_use_the_device_nor_end_it():
    device = open_riscv()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            device.allocate(1)
        except DeviceError as error:
            status = 0 if "before a fork" in str(error) else 2
        device.close()
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert launch(device, FINE, "fine") is None
    device.close()
    with pytest.raises(DeviceError, match="closed"):
        device.allocate(1)
    device.close()


# -- memory ----------------------------------------------------------------------------------------


def test_memory_that_is_not_there():
    device = open_riscv("memory=64M")
    with pytest.raises(OutOfMemoryError) as caught:
        device.allocate(65 << 20)
    assert caught.value.bytes == 65 << 20
    large = device.allocate(40 << 20)
    with pytest.raises(OutOfMemoryError):
        device.allocate(40 << 20)
    del large
    assert device.allocate(40 << 20).bytes == 40 << 20
    device.close()


def test_views_are_the_memory_and_outlive_the_device():
    device = open_riscv()
    buffer = device.allocate(1000)
    view = device.view(buffer)
    assert view is not None and view.nbytes == 1000
    device.fill(buffer, 7).wait(60)
    assert (view == 7).all()
    used = device.bytes_used
    del buffer
    assert device.bytes_used == used
    device.close()
    del device
    gc.collect()
    assert (view == 7).all()


def test_guards_of_odd_sizes_do_not_stand_in_the_firmwares_way():
    """Machine mode too may not reach across the edge of a range: what lies there is copied afterwards."""
    device = open_riscv("arch=rv64gc")
    a, b = (np.random.default_rng(seed).random(997, np.float32) for seed in (0, 1))
    for _ in range(3):
        np.testing.assert_array_equal(_add(device, 997, 10, a, b)[:10], (a + b)[:10])
    device.close()


def test_work_is_spread_over_the_cores():
    """Two tasks that wait for each other end if two cores run them."""
    meet = """
    %mine = load ptr, ptr %buffers
    %p = getelementptr i32, ptr %mine, i64 %begin
    store atomic i32 1, ptr %p seq_cst, align 4
    %other = xor i64 %begin, 1
    %q = getelementptr i32, ptr %mine, i64 %other
    br label %wait
    wait:
    %seen = load atomic i32, ptr %q seq_cst, align 4
    %there = icmp ne i32 %seen, 0
    br i1 %there, label %done, label %wait
    done:
    ret void"""
    device = open_riscv("harts=2")
    executable = device.load([compile_text(kernel("meet", meet))], ["meet.o"])
    work = device.record(executable, [Work("launch", (Reference(0, 0, 8),), "meet", 2)], 1, 0)
    buffer = device.allocate(8)
    for _ in range(20):
        cleared = device.fill(buffer, 0)
        assert device.submit(work, [buffer], [cleared]).wait(120)
    device.close()


# -- profile ---------------------------------------------------------------------------------------


def test_instructions_are_counted_exactly():
    device = open_riscv("count=1")
    text = COUNTING + FINE
    executable = device.load([compile_text(text)], ["test.o"])
    works = [Work("launch", (), "counting", 1, (n,)) for n in (1, 10, 20, 1000, 100_000)]
    works.append(Work("launch", (), "fine", 5))
    record = device.record(executable, works, 0, 64)
    device.profile(True)
    for _ in range(3):
        device.submit(record, []).wait(120)
    events = device.profile(False)
    counts = [event.instructions for event in events]
    assert counts == counts[:6] * 3, "a program takes as many instructions each time"
    assert counts[5] == 1, "a kernel that returns at once is one instruction, for all its tasks"
    per_turn = _loop_length(assembly(ObjectUnit("test", text, True), resolve_target("riscv:rv64gc")))
    for count, turns in zip(counts[1:5], (10, 20, 1000, 100_000), strict=True):
        assert count - counts[0] == (turns - 1) * per_turn
    device.close()


def _loop_length(text: str) -> int:
    """Instructions of the one loop in an assembly text."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    back = next(i for i, line in enumerate(lines) if re.match(r"b\w+\s.*\.LBB0_\d+$", line))
    label = lines[back].rpartition(" ")[2].rpartition("\t")[2] + ":"
    begin = lines.index(label)
    return sum(1 for line in lines[begin + 1 : back + 1] if line and not line.startswith(".") and ":" not in line)


def test_a_profile_has_the_times_of_each_command():
    device = open_riscv("harts=2")
    executable = device.load([compile_text(COUNTING + FINE)], ["test.o"])
    works = [
        Work("launch", (), "fine", 1), Work("launch", (), "counting", 1, (300_000,), (0,)),
        Work("copy", (Reference(0, 0, 64), Reference(0, 64, 64)), after=(1,)),
    ]
    record = device.record(executable, works, 1, 64)
    memory, shortest = device.allocate(128), [float("inf")] * 3
    for _ in range(10):  # a machine that is busy with other things may be late, but not always
        device.profile(True)
        began = time.perf_counter()
        device.submit(record, [memory]).wait(120)
        ended = time.perf_counter()
        events = device.profile(False)
        assert [(event.name, event.kind, event.bytes) for event in events] == [
            ("fine", "launch", 0), ("counting", "launch", 0), ("copy", "copy", 64)
        ]
        times = [moment for event in events for moment in (event.begin, event.end)]
        assert times == sorted(times) and began - 1e-3 <= times[0] and times[-1] <= ended
        assert all(event.instructions == 0 for event in events), "they are not counted, and not guessed"
        shortest = [min(least, event.end - event.begin) for least, event in zip(shortest, events, strict=True)]
    assert shortest[1] > 10 * shortest[0]
    device.close()


# -- options ---------------------------------------------------------------------------------------


def test_a_folder_gets_memory_command_log_and_trace(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    device = open_riscv(f"folder={tmp_path}&trace=in_asm&verbose=1")
    assert launch(device, FINE, "fine") is None
    device.close()
    (folder,) = tmp_path.iterdir()
    assert {file.name for file in folder.iterdir()} == {"memory", "command", "emulator.log", "trace.log"}
    assert (folder / "memory").stat().st_size == 64 << 20
    assert "qemu-system-riscv64 -M virt" in (folder / "command").read_text()
    assert "0x0000000080000000:" in (folder / "trace.log").read_text()
    said = capfd.readouterr().err
    assert "runs, after" in said and "killed by SIGKILL" in said


def test_options_of_the_environment_hold_where_the_name_says_nothing_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MOTET_RISCV_QEMU", "harts=2&memory=96M&arch=rv64gcv512")
    info = find_device("riscv:qemu")
    assert (info.cores, info.memory, info.level) == (2, 96 << 20, "rv64gcv512")
    device = open_device(find_device("riscv:qemu?harts=1"))
    assert (device.info.cores, device.info.memory, device.info.level) == (1, 96 << 20, "rv64gcv512")
    device.close()


def test_an_emulator_that_is_not_installed_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match="install qemu-system-misc"):
        find_device("riscv:qemu")
    with pytest.raises(DeviceError, match="install qemu-system-misc"):
        open_riscv_of("riscv:qemu")
    old = tmp_path / "qemu-system-riscv64"
    old.write_text("#!/bin/sh\necho QEMU emulator version 6.2.0\n")
    old.chmod(0o755)
    with pytest.raises(DeviceError, match=r"version 6\.2; expected 7\.0"):
        open_riscv()


def open_riscv_of(uri: str) -> None:
    """Opens a device whatever its driver finds."""
    open_device(DeviceInfo("", uri, family="riscv"))


# -- a device in a window --------------------------------------------------------------------------


def test_a_window_to_the_memory_of_a_device_that_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The emulator stands for a board: started by somebody else, reached through its memory alone."""
    chosen = options.parse(f"riscv:qemu?harts=2&memory=64M&spin=inf&folder={tmp_path}")
    board = Emulator("board", chosen)
    board.start(lambda: None, lambda reason: None)
    assert board.folder is not None
    window = board.folder / "memory"
    monkeypatch.setenv("MOTET_RISCV_HW", f"window={window}&memory=64M&harts=2&guard=1&timeout=1")
    try:
        for _ in range(2):  # whoever comes second goes on where the first ended
            device = open_device(find_device("riscv:hw"))
            assert isinstance(device, RiscvDevice)
            a, b = (np.random.default_rng(seed).random(997, np.float32) for seed in (0, 1))
            np.testing.assert_array_equal(_add(device, 997, 997, a, b), a + b)
            hang = kernel("hang", "br label %loop\nloop:\nstore volatile i8 1, ptr %scratch\nbr label %loop")
            assert "1 s" in str(launch(device, hang, "hang", scratch=64))
            assert launch(device, FINE, "fine") is None
            device.close()
        with pytest.raises(DeviceError, match="2 harts"):
            open_device(find_device("riscv:hw?harts=1"))
        with pytest.raises(DeviceError, match="rv64gcv512"):
            open_device(find_device("riscv:hw?arch=rv64gcv512"))
    finally:
        board.stop()


def test_a_window_to_a_device_that_sleeps_and_has_a_bell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    chosen = options.parse(f"riscv:qemu?harts=1&memory=64M&spin=0&folder={tmp_path}")
    board = Emulator("board", chosen)
    board.start(lambda: None, lambda reason: None)
    assert board.folder is not None
    ours, theirs = os.openpty()
    window = f"window={board.folder / 'memory'}&memory=64M&harts=1"
    monkeypatch.setenv("MOTET_RISCV_HW", window)
    with pytest.raises(DeviceError, match="it sleeps and has no bell"):
        open_device(find_device("riscv:hw"))

    def carry() -> None:
        with contextlib.suppress(OSError):  # the line is closed at the end
            while os.read(ours, 100):
                board.ring()

    thread = threading.Thread(target=carry, daemon=True)
    thread.start()
    device = open_device(find_device(f"riscv:hw?bell={os.ttyname(theirs)}"))
    assert isinstance(device, RiscvDevice)
    a, b = (np.random.default_rng(seed).random(97, np.float32) for seed in (0, 1))
    for _ in range(5):
        np.testing.assert_array_equal(_add(device, 97, 97, a, b), a + b)
    device.close()
    os.close(theirs)
    thread.join(60)
    os.close(ours)
    board.stop()


def test_firmware_is_installed_before_somebody_starts_the_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    memory = tmp_path / "memory"
    with memory.open("wb") as file:
        file.truncate(64 << 20)
    monkeypatch.setenv("MOTET_RISCV_HW", f"window={memory}&memory=64M&harts=2&spin=inf&install=1&boot=20")
    boards: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        content = np.memmap(memory, np.uint8)
        while not content[:4].any():
            time.sleep(0.01)
        time.sleep(0.2)
        boards.append(subprocess.Popen([
            "qemu-system-riscv64", "-M", "virt,memory-backend=ram", "-m", "64M", "-smp", "2", "-bios", "none",
            "-object", f"memory-backend-file,id=ram,mem-path={memory},size=64M,share=on", "-display", "none",
            "-cpu", "rv64,v=true,vext_spec=v1.0,vlen=128", "-monitor", "none", "-serial", "null",
        ]))

    thread = threading.Thread(target=start)
    thread.start()
    try:
        device = open_device(find_device("riscv:hw"))
        assert isinstance(device, RiscvDevice)
        a, b = (np.random.default_rng(seed).random(97, np.float32) for seed in (0, 1))
        np.testing.assert_array_equal(_add(device, 97, 97, a, b), a + b)
        device.close()
    finally:
        thread.join()
        for board in boards:
            board.kill()
            board.wait()


def test_a_window_without_a_device_behind_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with pytest.raises(DeviceError, match="MOTET_RISCV_HW"):
        find_device("riscv:hw")
    monkeypatch.setenv("MOTET_RISCV_HW", f"window={tmp_path / 'memory'}&memory=64M&harts=1")
    with pytest.raises(DeviceError, match="no file"):
        find_device("riscv:hw")
    with (tmp_path / "memory").open("wb") as file:
        file.truncate(64 << 20)
    with pytest.raises(DeviceError, match="version 0x00000000"):
        open_device(find_device("riscv:hw"))
    with pytest.raises(DeviceError, match="version 0x00000000"):
        open_device(find_device("riscv:hw?install=1&boot=0.1"))
    image = (tmp_path / "memory").read_bytes()
    assert image[:4] != bytes(4), "the firmware lies where the cores will start"
