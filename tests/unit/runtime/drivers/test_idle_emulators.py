"""Emulated devices without work: their processors sleep."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.unit.runtime.drivers.embedded import opening as embedded
from tests.unit.runtime.drivers.riscv import opening as riscv

IDLE = 2.0  # seconds
MOST = 0.02  # processor time of an idle emulator, as a part of the time
FINE = embedded.kernel("fine", "  ret void")


@pytest.mark.parametrize("machine", embedded.EVERY_MACHINE)
def test_an_idle_board_takes_no_processor_time(machine: str) -> None:
    with ExitStack() as opened:
        emulators: dict[str, int] = {}
        for options in ("link=gdb", "link=gdb&count=1", "link=serial", "link=serial&count=1"):
            others = _emulators()
            device = opened.enter_context(closing(embedded.open_embedded(machine, options)))
            (emulators[options],) = _emulators() - others
            assert embedded.launch(device, FINE, "fine") is None
        spent = _spent(emulators)
    assert max(spent.values()) <= MOST * IDLE, spent


@riscv.needs_qemu
def test_an_idle_accelerator_takes_no_processor_time() -> None:
    with ExitStack() as opened:
        emulators: dict[str, int] = {}
        for options in ("harts=1", "harts=2", "count=1"):
            device = opened.enter_context(closing(riscv.open_riscv(options)))
            assert device.emulator is not None
            emulators[options] = device.emulator.pid
            assert riscv.launch(device, FINE, "fine") is None
        spent = _spent(emulators)
    assert max(spent.values()) <= MOST * IDLE, spent


def _emulators() -> set[int]:
    """The processes of QEMU that threads of this process have started."""
    children = [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    return {pid for pid in children if "qemu-system" in Path(f"/proc/{pid}/cmdline").read_text()}


def _spent(emulators: dict[str, int]) -> dict[str, float]:
    """The processor time of each emulator, in seconds, in the next IDLE seconds."""
    time.sleep(0.5)  # they look for work for a moment before they sleep
    begun = {name: _processor_time(pid) for name, pid in emulators.items()}
    time.sleep(IDLE)
    return {name: _processor_time(pid) - begun[name] for name, pid in emulators.items()}


def _processor_time(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
