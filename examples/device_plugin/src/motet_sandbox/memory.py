"""The device's memory: a file without a name that this process and every core map, and who has which part of it."""

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
# The first page is the cores' own: each leaves there which command it is at.
RESERVED = 4096
# Where the device's addresses begin; they mean nothing to this process.
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
        self._free = [(ORIGIN + RESERVED, ORIGIN + self.size)]  # ascending, no two of them touch
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
        """Called when a buffer goes, which may be anywhere, inside `allocate` too: it only leaves a note."""
        self._returned.append((begin, end))

    def part(self, buffer: SandboxBuffer) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A buffer's bytes, for the time of a transfer: nothing keeps them from being given back."""
        begin = buffer.address - ORIGIN
        return self.bytes[begin : begin + buffer.bytes]

    def progress(self, core: int) -> int:
        """Which of its commands a core is at, or was when it died."""
        return int(self.bytes[8 * core : 8 * core + 8].view(np.int64)[0])

    def close(self) -> None:
        """Unmaps the memory. Nothing may use it any more."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
            self.bytes = np.zeros(0, np.uint8)

    def _take_back(self) -> None:
        """Free ranges with those that were given back, joined where they touch."""
        returned: list[tuple[int, int]] = []
        while self._returned:
            returned.append(self._returned.popleft())
        if not returned:
            return
        joined: list[tuple[int, int]] = []
        for begin, end in sorted([*self._free, *returned]):
            if joined and joined[-1][1] == begin:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((begin, end))
        self._free = joined


class SandboxBuffer:
    """See `motet.runtime.device.Buffer`. `room` is what it takes of the memory, which is given back with it."""

    __slots__ = ("__weakref__", "address", "bytes", "memory")

    def __init__(self, memory: Memory, address: int, size: int, room: int) -> None:
        self.memory = memory
        self.address = address
        self.bytes = size
        weakref.finalize(self, memory.give_back, address, address + room).atexit = False
