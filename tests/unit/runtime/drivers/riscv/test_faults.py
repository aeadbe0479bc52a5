"""What goes wrong on the emulated accelerator becomes an error that says where; this process goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.runtime.drivers.riscv.opening import compile_text, kernel, launch, needs_qemu, open_riscv

from motet.errors import DeviceError, DeviceLost, KernelFault
from motet.runtime.device import Reference, Work
from motet.runtime.drivers.riscv import installing, protocol
from motet.runtime.drivers.riscv.connection import Batch, BatchOutcome
from motet.runtime.drivers.riscv.device import RiscvDevice

pytestmark = needs_qemu

ILLEGAL = "declare void @llvm.trap()\n" + kernel("illegal", "call void @llvm.trap()\nret void")
FINE = kernel("fine", "ret void")
HANG = kernel("hang", "br label %loop\nloop:\nstore volatile i8 1, ptr %scratch\nbr label %loop")
BEYOND = kernel(
    "beyond",
    """%buffer = load ptr, ptr %buffers
    %distance = load i64, ptr %sizes
    %place = getelementptr i8, ptr %buffer, i64 %distance
    store volatile i32 7, ptr %place
    ret void""",
)
BELOW = BEYOND.replace("@beyond", "@below").replace("store volatile i32 7,", "%x = load volatile i32,")
AT = kernel(
    "at",
    """%address = load i64, ptr %sizes
    %place = inttoptr i64 %address to ptr
    store volatile i64 0, ptr %place, align 8
    ret void""",
)
JUMP = kernel("jump", "%address = load i64, ptr %sizes\n%f = inttoptr i64 %address to ptr\ncall void %f()\nret void")
LARGE_FRAME = kernel(
    "large", "%n = load i64, ptr %sizes\n%frame = alloca i8, i64 %n\nstore volatile i8 1, ptr %frame\nret void"
)


@pytest.fixture
def device() -> Iterator[RiscvDevice]:
    device = open_riscv()
    yield device
    device.close()


def _fault(error: object) -> KernelFault:
    assert isinstance(error, KernelFault), error
    return error


def _usable(device: RiscvDevice) -> bool:
    return launch(device, FINE, "fine") is None


def test_an_illegal_instruction(device: RiscvDevice):
    fault = _fault(launch(device, ILLEGAL, "illegal"))
    assert fault.kernel == "illegal" and fault.core == 0 and fault.usable
    assert fault.symbol.startswith("illegal+0x") and fault.address == -1
    assert "illegal instruction" in str(fault) and device.info.uri in str(fault)
    assert _usable(device)


@pytest.mark.parametrize("distance", [4096, 4100, 1 << 20, -8])
def test_a_store_beside_the_buffer(device: RiscvDevice, distance: int):
    executable = device.load([compile_text(BEYOND)], ["test.o"])
    buffer = device.allocate(4096)
    work = device.record(executable, [Work("launch", (Reference(0, 0, 4096),), "beyond", 1, (distance,))], 1, 0)
    with pytest.raises(KernelFault) as caught:
        device.submit(work, [buffer]).wait(120)
    assert caught.value.address == buffer.address + distance
    assert caught.value.symbol.startswith("beyond+0x") and caught.value.usable
    assert _usable(device)


def test_a_load_before_the_part_of_a_buffer_that_was_given(device: RiscvDevice):
    executable = device.load([compile_text(BELOW)], ["test.o"])
    buffer = device.allocate(8192)
    reference = (Reference(0, 4096, 128),)
    inside, outside = (
        device.record(executable, [Work("launch", reference, "below", 1, (distance,))], 1, 0) for distance in (124, -4)
    )
    assert device.submit(inside, [buffer]).wait(120)
    with pytest.raises(KernelFault, match="load") as caught:
        device.submit(outside, [buffer]).wait(120)
    assert caught.value.address == buffer.address + 4092


def test_guards_keep_a_launch_with_many_buffers_from_others(device: RiscvDevice):
    buffers = [device.allocate(64) for _ in range(9)]
    spare = device.allocate(1 << 20)
    distance = spare.address + (1 << 19) - buffers[0].address
    executable = device.load([compile_text(BEYOND)], ["test.o"])
    references = tuple(Reference(index, 0, 64) for index in range(9))
    for reach, fails in ((60, False), (distance, True)):
        work = device.record(executable, [Work("launch", references, "beyond", 1, (reach,))], 9, 0)
        if fails:
            with pytest.raises(KernelFault):
                device.submit(work, buffers).wait(120)
        else:
            assert device.submit(work, buffers).wait(120)


@pytest.mark.parametrize("guard", [0, 1])
@pytest.mark.parametrize(
    "address", [0, 0x1000_0000, protocol.DRAM, protocol.DRAM + protocol.MAILBOX, protocol.DRAM + protocol.CODE + 8]
)
def test_what_is_not_for_kernels_cannot_be_written(guard: int, address: int):
    device = open_riscv(guard=guard)
    fault = _fault(launch(device, AT, "at", sizes=(address,)))
    assert fault.address == address and fault.symbol.startswith("at+0x") and "store" in fault.reason
    assert _usable(device)
    device.close()


@pytest.mark.parametrize("address", [0x1234_5678, protocol.DRAM + (48 << 20)])
def test_a_jump_to_where_no_code_is(device: RiscvDevice, address: int):
    fault = _fault(launch(device, JUMP, "jump", sizes=(address,)))
    assert fault.pc == address and fault.symbol == "" and "jump" in fault.reason
    assert _usable(device)


def test_a_stack_that_is_too_small(device: RiscvDevice):
    fault = _fault(launch(device, LARGE_FRAME, "large", sizes=(protocol.STACK + 64,)))
    assert fault.symbol.startswith("large+0x") and "store" in fault.reason
    assert launch(device, LARGE_FRAME, "large", sizes=(protocol.STACK - 64,)) is None
    assert _usable(device)


def test_a_fault_of_one_core_ends_the_launch_on_the_other():
    body = """%first = icmp eq i64 %begin, 0
    br i1 %first, label %wait, label %fail
    wait:
    %buffer = load ptr, ptr %buffers
    %seen = load volatile i8, ptr %buffer
    %again = icmp eq i8 %seen, 0
    br i1 %again, label %wait, label %done
    done:
    ret void
    fail:
    call void @llvm.trap()
    unreachable"""
    device = open_riscv("harts=2")
    fault = _fault(launch(device, "declare void @llvm.trap()\n" + kernel("half", body), "half", tasks=2))
    assert fault.core in (0, 1) and "illegal" in fault.reason and fault.symbol.startswith("half+0x")
    assert launch(device, FINE, "fine", tasks=2) is None
    device.close()


def test_a_launch_that_does_not_end_is_stopped_by_the_device():
    for harts in (1, 2):
        device = open_riscv(f"harts={harts}&timeout=1")
        began = time.monotonic()
        fault = _fault(launch(device, HANG, "hang", tasks=harts, scratch=64))
        assert 0.9 < time.monotonic() - began < 60
        assert "1 s" in fault.reason and fault.symbol.startswith("hang+0x") and fault.usable
        assert _usable(device)
        device.close()


def test_a_launch_that_does_not_end_is_stopped_by_the_host_where_the_clock_is_made_of_instructions():
    device = open_riscv("count=1&timeout=1")
    fault = _fault(launch(device, HANG, "hang", scratch=64))
    assert "1 s" in fault.reason and fault.symbol.startswith("hang+0x")
    assert _usable(device)
    device.close()


def test_an_abort_ends_a_launch_that_does_not(device: RiscvDevice):
    executable = device.load([compile_text(HANG)], ["test.o"])
    work = device.record(executable, [Work("launch", (), "hang")], 0, 64)
    points = [device.submit(work, []) for _ in range(3)] + [device.submit(work, [], queue=1)]
    assert not points[0].wait(0.1)
    device.abort()
    for point in points:
        with pytest.raises(DeviceError, match="aborted"):
            point.wait(60)
    assert _usable(device)


def test_work_that_is_aborted_before_it_runs_never_starts(monkeypatch: pytest.MonkeyPatch):
    device = open_riscv("timeout=0")
    executable = device.load([compile_text(HANG)], ["test.o"])
    work = device.record(executable, [Work("launch", (), "hang")], 0, 64)
    run = device._connection.run

    def aborted_first(batch: Batch, aborts: int) -> BatchOutcome:
        device.abort()
        return run(batch, aborts)

    with monkeypatch.context() as patched:
        patched.setattr(device._connection, "run", aborted_first)
        point = device.submit(work, [])
        with pytest.raises(DeviceError, match="aborted"):
            point.wait(60)
    assert _usable(device)
    device.close()


def test_close_ends_a_kernel_that_has_no_limit():
    device = open_riscv("timeout=0")
    device.patience = 0.1
    executable = device.load([compile_text(HANG)], ["test.o"])
    point = device.submit(device.record(executable, [Work("launch", (), "hang")], 0, 64), [])
    device.close()
    with pytest.raises(DeviceError, match="aborted"):
        point.wait(60)


def test_what_depends_on_a_fault_fails_with_it_and_nothing_else_does(device: RiscvDevice):
    executable = device.load([compile_text(ILLEGAL + FINE)], ["test.o"])
    bad, good = (device.record(executable, [Work("launch", (), name)], 0, 0) for name in ("illegal", "fine"))
    failed = device.submit(bad, [])
    dependant, other = device.submit(good, [], [failed], queue=1), device.submit(good, [])
    with pytest.raises(KernelFault) as caught:
        dependant.wait(60)
    assert failed.error is not None and vars(caught.value) == vars(failed.error)
    assert dependant.error is failed.error
    assert other.wait(60)


def test_an_emulator_that_is_killed_is_a_lost_device():
    device, second = open_riscv(), open_riscv()
    executable = device.load([compile_text(HANG)], ["test.o"])
    work = device.record(executable, [Work("launch", (), "hang")], 0, 64)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            device.submit(work, []).wait(60)
        except DeviceError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    assert device.emulator is not None
    os.kill(device.emulator.pid, signal.SIGKILL)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert [type(error) for error in errors] == [DeviceLost] * 3 and "SIGKILL" in str(errors[0])
    with pytest.raises(DeviceLost):
        device.allocate(1)
    with pytest.raises(DeviceLost):
        device.submit(work, [])
    device.close()
    assert _usable(second)
    second.close()
    again = open_riscv()
    assert _usable(again)
    again.close()


@pytest.mark.parametrize("options", ["timeout=600&answer=0.3", "timeout=0.2&answer=0.3", "timeout=0&answer=0.3"])
def test_a_device_that_does_not_answer_is_lost(options: str):
    device = open_riscv(options)
    executable = device.load([compile_text(FINE)], ["test.o"])
    work = device.record(executable, [Work("launch", (), "fine")] * 3, 0, 0)
    assert device.emulator is not None
    stop(device.emulator.pid)
    begin = time.monotonic()
    with pytest.raises(DeviceLost, match="does not answer"):
        device.submit(work, []).wait(60)
    assert time.monotonic() - begin < 5
    with pytest.raises(DeviceLost):
        device.allocate(1)
    device.close()


def stop(process: int) -> None:
    """Stops a process, and waits until each of its threads has: on a busy machine that takes a while."""
    os.kill(process, signal.SIGSTOP)
    for _ in range(1000):
        threads = Path(f"/proc/{process}/task").glob("*/stat")
        if {each.read_text().rpartition(")")[2].split()[0] for each in threads} == {"T"}:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {process} goes on")


def test_a_device_that_stops_while_code_is_loaded_is_lost():
    device = open_riscv("answer=0.3")
    assert device.emulator is not None
    stop(device.emulator.pid)
    with pytest.raises(DeviceLost, match="its process has been stopped"):
        device.load([compile_text(FINE)], ["test.o"])
    device.close()


def test_a_device_that_goes_on_is_not_lost():
    device = open_riscv("answer=20")
    executable = device.load([compile_text(FINE)], ["test.o"])
    work = device.record(executable, [Work("launch", (), "fine")], 0, 0)
    assert device.emulator is not None
    stop(device.emulator.pid)
    point = device.submit(work, [])
    assert not point.wait(0.5)
    os.kill(device.emulator.pid, signal.SIGCONT)
    assert point.wait(60)
    device.close()


def test_firmware_that_fails_loses_the_device():
    """A table of commands that is nowhere is a fault of the firmware itself."""
    device = open_riscv()
    with pytest.raises(DeviceLost, match="firmware failed on core 0"):
        device._connection.run(Batch(protocol.DRAM + (1 << 30), 1, 1, 0, 0), 0)
    device.close()


def test_firmware_that_does_not_start(tmp_path: Path):
    silent = tmp_path / "silent.bin"
    silent.write_bytes(b"\x6f\x00\x00\x00")  # j .
    with pytest.raises(DeviceError, match=r"did not start within 0.5 s"):
        open_riscv(f"boot=0.5&firmware={silent}")
    with pytest.raises(DeviceError, match="No such file"):
        open_riscv(f"firmware={tmp_path / 'none'}")
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(protocol.FIRMWARE_BYTES + 1))
    with pytest.raises(DeviceError, match="1,048,577 bytes"):
        open_riscv(f"firmware={large}")


def test_firmware_of_another_version(tmp_path: Path):
    image = (installing._FOLDER / "firmware.bin").read_bytes()
    words = _digest_loads(image)
    assert words, "the image loads its digest by lui and addi"
    other = bytearray(image)
    other[words[0] + 2] ^= 0x10
    (tmp_path / "other.bin").write_bytes(bytes(other))
    with pytest.raises(DeviceError, match="version 0x"):
        open_riscv(f"firmware={tmp_path / 'other.bin'}")


def _digest_loads(image: bytes) -> list[int]:
    """Places of the instruction (lui) that has the upper bits of the protocol's digest."""
    upper = (protocol.DIGEST + 0x800 >> 12) & 0xFFFFF
    return [
        at for at in range(0, len(image) - 3, 2)
        if (word := int.from_bytes(image[at : at + 4], "little")) & 0x7F == 0x37 and word >> 12 == upper
    ]


def test_an_emulator_that_refuses_its_options(tmp_path: Path):
    with pytest.raises(DeviceError, match="did not start"):
        open_riscv(f"folder={tmp_path}&trace=no_such_item")
