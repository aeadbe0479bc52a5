"""Initialises a device's memory before its cores start: the firmware, the library, and the mailbox."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np

from motet.errors import DeviceError
from motet.runtime.drivers.riscv.memory import RiscvMemory
from motet.runtime.drivers.riscv.options import RiscvOptions
from motet.runtime.drivers.riscv.protection import open_protection
from motet.runtime.drivers.riscv.protocol import (
    CODE_FIRST,
    DIGEST,
    DRAM,
    FIRMWARE_BYTES,
    FOREVER,
    LIBRARY,
    MAILBOX,
    MAILBOX_TYPE,
    TICKS,
)

# The protection without guards, which every batch may use, after the mailbox.
_OPEN_PROTECTION = MAILBOX + MAILBOX_TYPE.itemsize
_FOLDER = resources.files("motet.runtime.drivers.riscv") / "firmware"


def install(memory: RiscvMemory, options: RiscvOptions) -> None:
    """Prepare `memory` for cores that start at its beginning. Raises DeviceError if the firmware cannot be read or is
    too large."""
    image = _image(memory.device, options)
    write(memory, DRAM, image)
    write(memory, DRAM + LIBRARY, library())
    address = DRAM + _OPEN_PROTECTION
    write(memory, address, open_protection(memory).tobytes())
    box = mailbox(memory)
    box[:] = np.zeros((), MAILBOX_TYPE)
    box["harts"] = options.harts
    box["spin"] = FOREVER if math.isinf(options.spin) else round(options.spin * TICKS)
    box["base"] = address
    box["count"] = options.count
    memory.send(box)


def mailbox(memory: RiscvMemory) -> np.ndarray[Any, np.dtype[np.void]]:
    """The mailbox, in place, as an array of one element."""
    return memory.part(DRAM + MAILBOX, MAILBOX_TYPE.itemsize).view(MAILBOX_TYPE)


def device_half(memory: RiscvMemory) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The part of the mailbox that the device writes, in place."""
    offset = MAILBOX_TYPE.fields["completed"][1] if MAILBOX_TYPE.fields else 0
    return memory.part(DRAM + MAILBOX + offset, MAILBOX_TYPE.itemsize - offset)


def open_protection_address() -> int:
    """The address of the protection without guards."""
    return DRAM + _OPEN_PROTECTION


def write(memory: RiscvMemory, address: int, data: bytes) -> None:
    part = memory.part(address, len(data))
    part[:] = np.frombuffer(data, np.uint8)
    memory.send(part)


def check_digest(memory: RiscvMemory) -> None:
    """Check that the running firmware is of this version. Raises DeviceError."""
    found = int(mailbox(memory)["digest"][0])
    if found != DIGEST:
        raise DeviceError(
            f"device {memory.device}: its firmware speaks version {found:#010x} of the protocol; expected "
            f"{DIGEST:#010x}; start it with the firmware of this version of Motet"
        )


@functools.cache
def library() -> bytes:
    """The functions that kernels may call, as loaded at LIBRARY."""
    data = (_FOLDER / "library.bin").read_bytes()
    if len(data) > CODE_FIRST - LIBRARY:
        raise ValueError(f"library.bin: {len(data):,} bytes; there is room for {CODE_FIRST - LIBRARY:,}")
    return data


@functools.cache
def library_symbols() -> Mapping[str, int]:
    """The addresses of the library's functions."""
    lines = (_FOLDER / "library.symbols").read_text(encoding="ascii").splitlines()
    return {name: int(address, 16) for address, name in (line.split() for line in lines)}


def _image(device: str, options: RiscvOptions) -> bytes:
    if options.firmware is None:
        return (_FOLDER / "firmware.bin").read_bytes()
    try:
        image = options.firmware.read_bytes()
    except OSError as error:
        raise DeviceError(f"device {device}: firmware {options.firmware}: {error.strerror}") from None
    if not 0 < len(image) <= FIRMWARE_BYTES:
        raise DeviceError(
            f"device {device}: firmware {options.firmware}: {len(image):,} bytes; expected 1 to {FIRMWARE_BYTES:,}"
        )
    return image


