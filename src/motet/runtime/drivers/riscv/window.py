"""A device that runs already: its memory mapped through a file, and a serial line to wake it, if it has one.

The file is a physical memory device, a board's driver, or any other file whose bytes are the device's memory from DRAM
on; it must be coherent with the device's cores. The cores run `firmware.bin` at DRAM; Motet writes it there if asked to
install it, before the cores are started.
"""

from __future__ import annotations

import contextlib
import os
import time
import tty

from motet.errors import DeviceError
from motet.runtime.drivers.riscv.installing import check_digest, install, mailbox
from motet.runtime.drivers.riscv.memory import RiscvMemory
from motet.runtime.drivers.riscv.options import RiscvOptions
from motet.runtime.drivers.riscv.protocol import DIGEST, FOREVER

_LOOK = 0.01  # seconds between two polls for the firmware


class MemoryWindow:
    """A device in a window, not contacted yet. Raises DeviceError if its files cannot be opened."""

    patience = 0.0005  # the end of a batch is found by polling
    stopped = False  # cannot be detected

    def __init__(self, name: str, options: RiscvOptions) -> None:
        self._name = name
        self._options = options
        if options.window is None:
            raise DeviceError(f"device {name}: no window; expected window=FILE")
        descriptor = self._open("window", options.window)
        try:
            self.memory = RiscvMemory(descriptor, options.memory, name, options.offset)
        finally:
            os.close(descriptor)
        self._bell = -1 if options.bell is None else self._open("bell", options.bell)
        if self._bell >= 0 and os.isatty(self._bell):
            tty.setraw(self._bell)  # no echo: the device's own bytes would wake it

    def start(self) -> None:
        """Find the running firmware; installs it first if requested. Raises DeviceError."""
        options, box = self._options, mailbox(self.memory)
        if options.install:
            install(self.memory, options)
            end = time.monotonic() + options.boot
            while box["digest"][0] != DIGEST and time.monotonic() < end:
                time.sleep(_LOOK)
        check_digest(self.memory)
        if self._bell < 0 and box["spin"][0] != FOREVER:
            raise DeviceError(f"device {self._name}: it sleeps and has no bell; expected bell=FILE, or spin=inf")

    def ring(self) -> None:
        if self._bell >= 0:
            with contextlib.suppress(OSError):
                os.write(self._bell, b".")

    def stop(self) -> None:
        """The device itself keeps running."""
        bell, self._bell = self._bell, -1
        if bell >= 0:
            os.close(bell)

    def _open(self, what: str, path: os.PathLike[str]) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise DeviceError(f"device {self._name}: {what} {path}: {error.strerror}") from None
