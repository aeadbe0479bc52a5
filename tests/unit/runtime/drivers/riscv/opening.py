"""Devices for tests: small, guarded, and skipped where the emulator is not installed."""

from __future__ import annotations

import pytest

from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units
from motet.compiler.targets.families import resolve_target
from motet.errors import MotetError
from motet.runtime.device import Reference, Work, find_device, open_device, probe
from motet.runtime.drivers.riscv.device import RiscvDevice

_QEMU = next(info for info in probe("riscv") if info.uri == "riscv:qemu")
needs_qemu = pytest.mark.skipif(not _QEMU.available, reason=_QEMU.reason)


def open_riscv(options: str = "", guard: int = 1) -> RiscvDevice:
    """An emulator of one core with 64 MiB; `options` as in a URI."""
    given = {pair.partition("=")[0] for pair in options.split("&")}
    defaults = {"harts": "1", "memory": "64M", "guard": str(guard), "timeout": "20"}
    pairs = [f"{key}={value}" for key, value in defaults.items() if key not in given]
    device = open_device(find_device("riscv:qemu?" + "&".join([*pairs, *filter(None, [options])])))
    assert isinstance(device, RiscvDevice)
    return device


def compile_text(text: str, target: str = "rv64gc") -> bytes:
    """An object of LLVM IR."""
    return compile_units([ObjectUnit("test", text, True)], resolve_target(f"riscv:{target}"), 1)[0]


def launch(
    device: RiscvDevice, text: str, kernel: str, buffers: int = 1, *, bytes: int = 4096, tasks: int = 1,
    sizes: tuple[int, ...] = (), scratch: int = 0, target: str = "rv64gc",
) -> MotetError | None:
    """Runs one kernel on `buffers` new buffers of `bytes` bytes each; what it failed with."""
    executable = device.load([compile_text(text, target)], ["test.o"])
    references = tuple(Reference(index, 0, bytes) for index in range(buffers))
    work = device.record(executable, [Work("launch", references, kernel, tasks, sizes)], buffers, scratch)
    point = device.submit(work, [device.allocate(bytes) for _ in range(buffers)])
    try:
        assert point.wait(120)
    except MotetError as error:
        assert point.error is not None and vars(point.error) == vars(error)
        return error
    return None


def kernel(name: str, body: str) -> str:
    """A kernel of LLVM IR; it may use %buffers, %sizes, %begin, %end and %scratch."""
    return f"define void @{name}(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {{\n{body}\n}}\n"
