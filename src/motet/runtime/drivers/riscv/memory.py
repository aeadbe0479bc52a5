"""The device's memory: one mapping shared by the emulator and this process, and its allocation."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

import numpy as np

from motet.errors import OutOfMemoryError
from motet.runtime.drivers.common import pages
from motet.runtime.drivers.common.heap import Heap, HeapBuffer
from motet.runtime.drivers.riscv.protocol import CODE_FIRST, DRAM


class RiscvMemory:
    """The device's memory: `size` bytes from `offset` of a file on. The mapping lives as long as any array of it; the
    file's descriptor stays with its owner.

    Who writes a part calls `send` after it, and who reads one calls `fetch` before it: they do nothing where, as here,
    the device shares the bytes."""

    shared = True  # whether the host addresses the device's own bytes

    def __init__(self, descriptor: int, size: int, device: str, offset: int = 0) -> None:
        self.device = device
        self.size = size
        self.bytes: np.ndarray[Any, np.dtype[np.uint8]] = np.asarray(_Mapping(descriptor, size, offset, device))
        area = min(max(size // 32, 4 << 20), 64 << 20)
        self.code_end = DRAM + CODE_FIRST + area
        self.control_end = self.code_end + area
        self.end = DRAM + size
        self.code = Heap([(DRAM + CODE_FIRST, self.code_end)], f"{device}: code")
        self.control = Heap([(self.code_end, self.control_end)], f"{device}: commands")
        self.heap = Heap([(self.control_end, self.end)], device)

    def part(self, address: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """`size` bytes from the device's `address` on, in place."""
        return self.bytes[address - DRAM : address - DRAM + size]

    def send(self, part: np.ndarray[Any, Any]) -> None:
        """Let the device see what was written to `part`, a contiguous array in place."""

    def fetch(self, part: np.ndarray[Any, Any]) -> None:
        """Update `part`, a contiguous array in place, with what the device wrote."""


class _Mapping:
    """Shared, writable bytes of a file for numpy. (An `mmap` object would keep the file open.)"""

    def __init__(self, descriptor: int, size: int, offset: int, device: str) -> None:
        address = pages.map_file(descriptor, size, offset, device)
        weakref.finalize(self, pages.unmap_pages, address, size).atexit = False
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def anonymous_file(size: int, device: str) -> int:
    """The descriptor of an unnamed file, freed with its last user. Raises OutOfMemoryError."""
    descriptor = os.memfd_create("motet-riscv")
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        os.close(descriptor)
        raise OutOfMemoryError(size, device) from None
    return descriptor


class RiscvBuffer(HeapBuffer):
    """Memory on the device; see `motet.runtime.device.Buffer`."""

    def __init__(self, memory: RiscvMemory, heap: Heap, size: int) -> None:
        super().__init__(heap, size)
        self.memory = memory

    @property
    def array(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes in place, for the duration of a transfer: they do not keep the buffer alive."""
        return self.memory.part(self._address, self._bytes)

    def lasting_array(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes in place, which keep the buffer alive."""
        raw = (ctypes.c_ubyte * self._bytes).from_buffer(self.array.data) if self._bytes else (ctypes.c_ubyte * 0)()
        raw.owner = self  # type: ignore[attr-defined]
        return np.frombuffer(memoryview(raw), np.uint8)
