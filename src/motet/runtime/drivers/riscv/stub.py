"""A device behind a GDB stub: QEMU's, or that of a probe's server (OpenOCD).

The device's memory is reached through the stub alone; this process has a copy, of which parts are sent and fetched.
The cores run, except while the host accesses memory, so that every access is atomic. The bell is the device's own UART:
the host lets it receive a byte from itself.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from motet.errors import DeviceError, DeviceLost
from motet.runtime.drivers.common.gdb import GdbStub
from motet.runtime.drivers.common.link import LinkLost, connect
from motet.runtime.drivers.riscv.installing import check_digest, device_half, install, mailbox
from motet.runtime.drivers.riscv.memory import RiscvMemory, anonymous_file
from motet.runtime.drivers.riscv.options import RiscvOptions
from motet.runtime.drivers.riscv.protocol import DIGEST, DRAM

ARCHITECTURE = "riscv:rv64"  # in the stub's description
_LOOK = 0.01  # seconds between two polls for the firmware

# Of the 16550 UART of QEMU's machine `virt`; in loopback, it receives what is transmitted.
_UART = 0x1000_0000
_MODEM_CONTROL = _UART + 4
_LOOPBACK = 0x10
# QEMU's stub writes to devices only if addresses are physical; those of probes answer that they do not know it.
_PHYSICAL, _OF_CORE = b"Qqemu.PhyMemMode:1", b"Qqemu.PhyMemMode:0"

_Result = TypeVar("_Result")


class StubMemory(RiscvMemory):
    """A copy of the device's memory, whose parts `line` sends and fetches; only pages that were used take memory."""

    shared = False

    def __init__(self, line: StubLine, size: int, device: str) -> None:
        descriptor = anonymous_file(size, device)
        try:
            super().__init__(descriptor, size, device)
        finally:
            os.close(descriptor)
        self._line = line

    def send(self, part: np.ndarray[Any, Any]) -> None:
        self._line.write(self._address(part), part.tobytes())

    def fetch(self, part: np.ndarray[Any, Any]) -> None:
        address = self._address(part)
        self.part(address, part.nbytes)[:] = np.frombuffer(self._line.read(address, part.nbytes), np.uint8)

    def _address(self, part: np.ndarray[Any, Any]) -> int:
        return DRAM + part.ctypes.data - self.bytes.ctypes.data


class StubLine:
    """A device behind a stub, whose cores have stopped. Raises DeviceError if the stub cannot be reached, or is that of
    another machine."""

    patience = 0.005  # the end of a batch is found by polling, which stops the cores for about 1 ms
    stopped = False  # cannot be detected

    def __init__(self, name: str, options: RiscvOptions) -> None:
        self._name = name
        self._options = options
        self._owner = os.getpid()
        self._lock = threading.RLock()  # held while the stub is used
        self._runs = False
        self._reason = ""  # why the stub cannot be reached any more
        self._lost: Callable[[str], None] = lambda reason: None
        self.memory = StubMemory(self, options.memory, name)
        try:
            self._stub = GdbStub(connect(options.gdb, options.baud), options.answer)
        except LinkLost as error:
            raise DeviceError(f"device {name}: {error}") from None
        found = re.search(rb"<architecture>([^<]*)<", self._stub.description)
        if found and not found[1].startswith(ARCHITECTURE.encode()):
            self._stub.close()
            raise DeviceError(
                f"device {name}: the stub at {options.gdb} is of a machine {found[1].decode(errors='replace')}; "
                f"expected {ARCHITECTURE}"
            )

    def start(self, lost: Callable[[str], None]) -> None:
        """Let the cores run, and find the firmware; installs it first if requested. `lost` is called with the reason
        when the stub cannot be reached any more. Raises DeviceError."""
        options, box = self._options, mailbox(self.memory)
        self._lost = lost
        try:
            self.read(self.memory.end - 1, 1)  # there is as much memory as the options say
            if options.install:
                install(self.memory, options)
            self._run()
            end = time.monotonic() + options.boot
            self.memory.fetch(box)
            while options.install and box["digest"][0] != DIGEST and time.monotonic() < end:
                time.sleep(_LOOK)
                self.memory.fetch(device_half(self.memory))
            check_digest(self.memory)
        except DeviceError as error:
            reason = f"device {self._name}: {self._reason}" if self._reason else str(error)
            self.stop()
            raise DeviceError(reason) from None

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the device. Raises DeviceLost."""
        return self._reach(lambda: self._stub.read(address, size))

    def write(self, address: int, data: bytes) -> None:
        """Write bytes of the device. Raises DeviceLost."""
        self._reach(lambda: self._stub.write(address, data))

    def ring(self) -> None:
        """Wake the device. Threads that wait for it notice if it is lost."""
        with contextlib.suppress(DeviceLost):
            self._reach(self._receive_own_byte)

    def stop(self) -> None:
        """The device itself keeps running. Has no effect in a forked child."""
        if os.getpid() != self._owner:
            return
        with self._lock, contextlib.suppress(DeviceLost):
            self._reach(self._detach)
        with self._lock:
            self._reason = self._reason or "it was closed"
            self._stub.close()

    # -- the stub --------------------------------------------------------------------------------

    def _reach(self, use: Callable[[], _Result]) -> _Result:
        """The result of `use`, while the cores are stopped. Raises DeviceLost."""
        try:
            with self._lock:
                if self._reason:
                    raise LinkLost(self._reason)
                try:
                    return self._stopped_for(use)
                except LinkLost as error:
                    self._reason = str(error)
                    raise
        except LinkLost as error:
            self._lost(str(error))
            raise DeviceLost(self._name, str(error)) from None

    def _stopped_for(self, use: Callable[[], _Result]) -> _Result:
        answer = self._options.answer
        if self._runs and not self._stub.interrupt(time.monotonic() + answer):
            raise LinkLost(f"the stub does not stop the cores within {answer:g} s (answer=SECONDS)")
        result = use()
        if self._runs:
            self._stub.send(b"c")
        return result

    def _run(self) -> None:
        self._runs = True
        self._stub.send(b"c")

    def _detach(self) -> None:
        self._runs = False  # the stub continues them itself
        self._stub.detach(self._options.answer)

    def _receive_own_byte(self) -> None:
        stub = self._stub
        stub.ask(_PHYSICAL)
        control = stub.read(_MODEM_CONTROL, 1)
        stub.write(_MODEM_CONTROL, bytes([control[0] | _LOOPBACK]))
        stub.write(_UART, b".")
        stub.write(_MODEM_CONTROL, control)
        stub.ask(_OF_CORE)
