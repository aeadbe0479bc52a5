"""The device's memory: an unnamed file mapped by this process and every core, and its allocation."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np

from motet.errors import OutOfMemoryError

ALIGNMENT = 64
# The first page is for the cores: each stores the number of its current command there.
RESERVED = 4096
# The start of the device's address space, which this process does not use.
ORIGIN = 0x10_0000_0000


class Memory:
    """`size` bytes for buffers, with addresses from ORIGIN on. Raises OutOfMemoryError."""

    def __init__(self, size: int, device: str) -> None:
        self.device = device
        self.size = size + RESERVED
        self.file = os.memfd_create("motet-sandbox")
        try:
            os.ftruncate(self.file, self.size)
            mapping = mmap.mmap(self.file, self.size)
        except (OSError, ValueError, OverflowError):
            os.close(self.file)
            raise OutOfMemoryError(size, device) from None
        self.bytes: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(mapping, np.uint8)
        self._free = [(ORIGIN + RESERVED, ORIGIN + self.size)]  # ascending, without adjacent ranges
        self._returned: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()

    def allocate(self, size: int) -> SandboxBuffer:
        """The first free range that is large enough. Raises OutOfMemoryError."""
        room = max(1, -(-size // ALIGNMENT)) * ALIGNMENT
        with self._lock:
            self._take_back()
            for index, (begin, end) in enumerate(self._free):
                if end - begin >= room:
                    self._free[index : index + 1] = [(begin + room, end)] if end - begin > room else []
                    return SandboxBuffer(self, begin, size, room)
        raise OutOfMemoryError(size, self.device)

    def give_back(self, begin: int, end: int) -> None:
        """Return a range; called when a buffer is collected, possibly inside `allocate`, so that it only records the
        range."""
        self._returned.append((begin, end))

    def part(self, buffer: SandboxBuffer) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A buffer's bytes for the duration of a transfer; they do not keep the buffer alive."""
        begin = buffer.address - ORIGIN
        return self.bytes[begin : begin + buffer.bytes]

    def progress(self, core: int) -> int:
        """The number of a core's current command, or the last one before it died."""
        return int(self.bytes[8 * core : 8 * core + 8].view(np.int64)[0])

    def close(self) -> None:
        """Unmap the memory, which must no longer be in use."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
            self.bytes = np.zeros(0, np.uint8)

    def _take_back(self) -> None:
        """Merge returned ranges into the free ones."""
        returned: list[tuple[int, int]] = []
        while self._returned:
            returned.append(self._returned.popleft())
        if not returned:
            return
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*self._free, *returned]):
            if merged and merged[-1][1] == begin:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((begin, end))
        self._free = merged


class SandboxBuffer:
    """See `motet.runtime.device.Buffer`. `room` is the allocated size, which is returned with the buffer."""

    __slots__ = ("__weakref__", "address", "bytes", "memory")

    def __init__(self, memory: Memory, address: int, size: int, room: int) -> None:
        self.memory = memory
        self.address = address
        self.bytes = size
        weakref.finalize(self, memory.give_back, address, address + room).atexit = False
