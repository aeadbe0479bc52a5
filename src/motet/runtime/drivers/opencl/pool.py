"""Keeps shared virtual memory that was given back for the next allocation of its size.

Platforms for processors return memory to the system at once, which clears each page of new memory again: 0.6 ms for
each MB. Sizes are rounded up, so that calls of similar extents use the same memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from motet.runtime.drivers.common.block_pool import rounded
from motet.runtime.drivers.opencl.api import Handle, OpenClApi


class SvmPool:
    """The memory of one context; at most `limit` bytes are kept. Thread-safe."""

    def __init__(self, api: OpenClApi, context: Handle, limit: int) -> None:
        self._api = api
        self._context = context
        self._limit = limit
        self._kept: OrderedDict[int, int] = OrderedDict()  # the size of each address, the oldest first
        self._of_size: dict[int, set[int]] = {}
        self._bytes = 0
        self._lock = threading.RLock()  # memory may be collected, and given back, at any point of a thread

    def take(self, size: int) -> int:
        """The address of `rounded(size)` bytes; 0 if there is not enough memory."""
        size = rounded(size)
        with self._lock:
            if addresses := self._of_size.get(size):
                found = next(iter(addresses))
                del self._kept[found]
                addresses.remove(found)
                self._bytes -= size
                return found
        address = self._api.allocate(self._context, size)
        if not address and self._kept:
            self.clear()
            address = self._api.allocate(self._context, size)
        return address

    def give(self, address: int, size: int) -> None:
        """Give back memory of `take(size)` that no command uses."""
        size = rounded(size)
        with self._lock:
            self._kept[address] = size
            self._of_size.setdefault(size, set()).add(address)
            self._bytes += size
            while self._kept and self._bytes > self._limit:
                oldest, held = self._kept.popitem(last=False)
                self._of_size[held].remove(oldest)
                self._bytes -= held
                self._api.free(self._context, oldest)

    def clear(self) -> None:
        """Return all memory to the platform."""
        with self._lock:
            while self._kept:
                self._api.free(self._context, self._kept.popitem()[0])
            self._of_size.clear()
            self._bytes = 0
