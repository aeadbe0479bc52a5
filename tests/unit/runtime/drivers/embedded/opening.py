"""Embedded devices for tests, skipped where the emulator is not installed."""

from __future__ import annotations

import pytest

from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units
from motet.compiler.targets.families import resolve_target
from motet.errors import MotetError
from motet.runtime.device import Reference, Work, find_device, open_device
from motet.runtime.drivers.embedded.device import EmbeddedDevice
from motet.runtime.drivers.embedded.emulator import missing
from motet.runtime.drivers.embedded.machines import MACHINES
from motet.runtime.timeline import Point


def needs(machine: str) -> pytest.MarkDecorator:
    """Skips a test where the machine's emulator is not installed."""
    reason = missing(MACHINES[machine])
    return pytest.mark.skipif(bool(reason), reason=reason)


EVERY_MACHINE = [pytest.param(name, marks=needs(name)) for name in MACHINES]


def open_embedded(machine: str, options: str = "timeout=20") -> EmbeddedDevice:
    device = open_device(find_device(f"embedded:qemu?machine={machine}&{options}"))
    assert isinstance(device, EmbeddedDevice)
    return device


def kernel(name: str, body: str) -> str:
    """A kernel of LLVM IR; it may use %buffers, %sizes, %begin, %end and %scratch."""
    return f"define void @{name}(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {{\n{body}\n}}\n"


def compile_text(text: str, machine: str) -> bytes:
    """An object of LLVM IR."""
    return compile_units([ObjectUnit("test", text, True)], resolve_target(f"embedded:{MACHINES[machine].cpu}"), 1)[0]


def begin(device: EmbeddedDevice, text: str, name: str, tasks: int = 1) -> Point:
    """Submits one kernel on one new buffer of 64 bytes."""
    executable = device.load([compile_text(text, device.options.machine.name)], ["test.o"])
    work = device.record(executable, [Work("launch", (Reference(0, 0, 64),), name, tasks, (3,))], 1, 0)
    return device.submit(work, [device.allocate(64)])


def launch(device: EmbeddedDevice, text: str, name: str, tasks: int = 1) -> MotetError | None:
    """Runs one kernel on one new buffer of 64 bytes; what it failed with."""
    return ended(begin(device, text, name, tasks))


def ended(point: Point) -> MotetError | None:
    """Waits for work; what it failed with."""
    try:
        assert point.wait(60)
    except MotetError as error:
        return error
    return None
