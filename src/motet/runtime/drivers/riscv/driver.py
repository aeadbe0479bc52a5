"""The driver for accelerators of RISC-V cores with separate memory: emulated ones, and a board described by the
environment.

    riscv:qemu          an emulator, started when it is opened; riscv:qemu/1, riscv:qemu/2, … are others
    riscv:iss           the same as an instruction-set simulator: one core, whose clock counts instructions
    riscv:hw            the board described by the variable MOTET_RISCV_HW, or by options: riscv:hw?gdb=HOST:PORT

`options.py` lists their options; `protocol.py` is the protocol with their firmware.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from motet.artifact.uri import split_uri
from motet.errors import DeviceError
from motet.runtime.device import API_VERSION, DeviceInfo
from motet.runtime.drivers.riscv import options
from motet.runtime.drivers.riscv.device import FAMILY, RiscvDevice, open_emulator, open_stub, open_window
from motet.runtime.drivers.riscv.emulator import MISSING, program

api = API_VERSION

EMULATORS = 2
_QEMU, _SIMULATOR, _HARDWARE = f"{FAMILY}:qemu", f"{FAMILY}:iss", f"{FAMILY}:hw"


def probe() -> Sequence[DeviceInfo]:
    emulators = [
        _described("RISC-V cores, emulated by QEMU", _QEMU if not number else f"{_QEMU}/{number}",
                   "" if program() else MISSING)
        for number in range(EMULATORS)
    ]
    emulators[0] = replace(emulators[0], instances=emulators[0].available)
    simulator = _described("a RISC-V core, simulated by QEMU", _SIMULATOR, "" if program() else MISSING)
    board = _described("RISC-V cores of a board", _HARDWARE, _hardware_obstacle())
    found = [*emulators, simulator, replace(board, described_by=("window", "gdb"))]
    ordinals = iter(range(len(found)))
    return [replace(info, ordinal=next(ordinals)) if info.available else info for info in found]


def open(info: DeviceInfo) -> RiscvDevice:
    """Raises DeviceError for unknown options, and if the device does not start."""
    chosen = options.parse(info.uri)
    is_emulator = split_uri(info.uri)[0] != _HARDWARE
    described = replace(
        info, cores=chosen.harts, threads=chosen.harts, level=chosen.arch, memory=chosen.memory,
        instruction=1e-9 if chosen.count else 0.0,
    )
    if is_emulator:
        return open_emulator(described, chosen)
    return open_stub(described, chosen) if chosen.gdb else open_window(described, chosen)


def _described(name: str, uri: str, reason: str) -> DeviceInfo:
    try:
        chosen = options.parse(uri)
    except DeviceError as error:
        return DeviceInfo(name, uri, available=False, reason=str(error), family=FAMILY)
    return DeviceInfo(
        name, uri, chosen.harts, chosen.harts, chosen.arch, chosen.memory, not reason, reason, FAMILY
    )


def _hardware_obstacle() -> str:
    variable = options.VARIABLES["hw"]
    if not os.environ.get(variable):
        return (
            f"not described; set {variable} to window=FILE or gdb=HOST:PORT, and what else there is to say, "
            f"or name it {_HARDWARE}?gdb=HOST:PORT"
        )
    try:
        chosen = options.parse(_HARDWARE)
    except DeviceError:
        return ""  # the description of the device contains it
    window = chosen.window
    if chosen.gdb:
        return ""  # a stub serves one client at a time, so that it is not asked
    if window is None:
        return f"no window and no stub; add window=FILE or gdb=HOST:PORT to {variable}"
    return "" if Path(window).exists() else f"no file {window}, the window that {variable} names"
