"""Allocation of ranges of a device's memory, which is managed on the host."""

from __future__ import annotations

import bisect
import threading
import weakref
from collections import deque
from collections.abc import Sequence

from motet.errors import OutOfMemoryError

ALIGNMENT = 64
_LARGE = 4096  # sizes from here on are rounded to pages


class Heap:
    """Allocates parts of `ranges`, pairs of a begin and an end, best fit. `free` may be called from a finalizer, which
    can interrupt `allocate`, so that it only records the range."""

    def __init__(self, ranges: Sequence[tuple[int, int]], device: str) -> None:
        ordered = sorted(ranges)
        self._starts = [begin for begin, _ in ordered]
        self._ends = [end for _, end in ordered]
        self._taken: dict[int, int] = {}
        self._returned: deque[int] = deque()
        self._lock = threading.Lock()
        self._device = device
        self.begin = ordered[0][0]
        self.bytes = sum(end - begin for begin, end in ordered)

    def allocate(self, size: int) -> int:
        """Allocate `size` bytes aligned to ALIGNMENT; returns the address. Raises OutOfMemoryError."""
        wanted = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        alignment = _LARGE if wanted >= _LARGE else ALIGNMENT
        with self._lock:
            self._take_back()
            best, best_left = -1, 0
            for index, (start, end) in enumerate(zip(self._starts, self._ends, strict=True)):
                left = end - (-(-start // alignment) * alignment) - wanted
                if left >= 0 and (best < 0 or left < best_left):
                    best, best_left = index, left
            if best < 0:
                raise OutOfMemoryError(size, self._device)
            return self._take(best, wanted, alignment)

    def free(self, address: int) -> None:
        self._returned.append(address)

    @property
    def used(self) -> int:
        """Allocated bytes."""
        with self._lock:
            self._take_back()
            return sum(self._taken.values())

    def _take(self, index: int, size: int, alignment: int) -> int:
        start, end = self._starts[index], self._ends[index]
        address = -(-start // alignment) * alignment
        pieces = [(a, b) for a, b in ((start, address), (address + size, end)) if a < b]
        self._starts[index : index + 1] = [a for a, _ in pieces]
        self._ends[index : index + 1] = [b for _, b in pieces]
        self._taken[address] = size
        return address

    def _take_back(self) -> None:
        while self._returned:
            start = self._returned.popleft()
            end = start + self._taken.pop(start)
            index = bisect.bisect_left(self._starts, start)
            if index < len(self._starts) and self._starts[index] == end:
                end = self._ends[index]
                del self._starts[index], self._ends[index]
            if index and self._ends[index - 1] == start:
                self._ends[index - 1] = end
            else:
                self._starts.insert(index, start)
                self._ends.insert(index, end)


class HeapBuffer:
    """Memory of a heap, which is freed with the object; see `motet.runtime.device.Buffer`."""

    def __init__(self, heap: Heap, size: int) -> None:
        self.heap = heap
        self._address = heap.allocate(size)
        self._bytes = size
        weakref.finalize(self, heap.free, self._address).atexit = False

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def address(self) -> int:
        return self._address
