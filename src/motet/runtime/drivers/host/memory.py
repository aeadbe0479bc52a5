"""Pooled host memory on huge pages: memory freed by one call is reused by the next without page faults.

Sizes are rounded up to classes, four per power of two. Small blocks are parts of slabs; large ones are separate
mappings aligned to 2 MiB, with huge pages requested. A block returns to the pool when its Allocation, and every array
made from it, is collected; the pool keeps up to `keep` bytes of large blocks. Reused memory is not cleared.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from motet.errors import OutOfMemoryError
from motet.runtime.drivers.common import pages

ALIGNMENT = 64
LARGE = 1 << 20
_SLAB = pages.HUGE_PAGE


@dataclass(frozen=True)
class Statistics:
    """Bytes: `in_use` by allocations now, its `peak` so far, `kept` free by the pool."""

    in_use: int
    peak: int
    kept: int


class Allocation:
    """`bytes` bytes at `address`, aligned to 64 bytes, or to 2 MiB if large. Arrays made from it keep it alive."""

    __slots__ = ("__weakref__", "_block", "_pool", "address", "bytes")

    def __init__(self, pool: Pool, address: int, size: int, block: int) -> None:
        self._pool = pool
        self._block = block
        self.address = address
        self.bytes = size

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"data": (self.address, False), "shape": (self.bytes,), "typestr": "|u1", "version": 3}

    def array(self, dtype: np.dtype[Any], shape: Sequence[int], offset: int = 0) -> np.ndarray:
        """A view of this memory from byte `offset` on, which keeps the allocation alive.

        Raises: TypeError, ValueError if it does not fit.
        """
        return np.ndarray(shape, dtype, np.asarray(self), offset)

    def __del__(self) -> None:
        self._pool.give_back(self.address, self._block)


class _Mappings:
    """A pool's memory from the system; it outlives the pool object just long enough to unmap it."""

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}

    def add(self, size: int) -> int:
        """Map `size` bytes aligned to a huge page."""
        span = pages.round_up(size, pages.PAGE) + pages.HUGE_PAGE
        base = pages.map_pages(span)
        address = pages.round_up(base, pages.HUGE_PAGE)
        end = address + pages.round_up(size, pages.PAGE)
        if address > base:
            pages.unmap_pages(base, address - base)
        if base + span > end:
            pages.unmap_pages(end, base + span - end)
        pages.ask_for_huge_pages(address, end - address)
        self.blocks[address] = end - address
        return address

    def remove(self, address: int) -> None:
        pages.unmap_pages(address, self.blocks.pop(address))

    def clear(self) -> None:
        for address in tuple(self.blocks):
            self.remove(address)


class _Section:
    """The pool's lock. Leaving it collects blocks that were freed meanwhile.

    A block may be freed at any time, even by the garbage collector inside the pool's own code. Freeing therefore never
    blocks: it records the block, and takes the lock only if it is free.
    """

    def __init__(self, collect: Callable[[], None], notes: deque[tuple[int, int]]) -> None:
        self.lock = threading.Lock()
        self.collect = collect
        self.notes = notes

    def __enter__(self) -> None:
        self.lock.acquire()
        self.collect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lock.release()
        self.try_collect()

    def try_collect(self) -> None:
        while self.notes and self.lock.acquire(blocking=False):
            try:
                before = len(self.notes)
                self.collect()
                if len(self.notes) >= before:
                    return  # the pool and its mappings are being destroyed: freed blocks are no longer recorded
            finally:
                self.lock.release()


class Pool:
    """A pool of host memory, thread-safe and usable after a fork.

    `keep` limits the bytes of free large blocks; by default, a quarter of the machine's memory.
    """

    def __init__(self, keep: int | None = None) -> None:
        self.keep = _physical_memory() // 4 if keep is None else keep
        self._free: dict[int, list[int]] = {}
        self._slab = self._slab_end = 0
        self._in_use = self._peak = self._kept = 0
        self._mappings = _Mappings()
        self._notes: deque[tuple[int, int]] = deque()
        collect = weakref.WeakMethod(self._collect)
        self._section = _Section(lambda: _call(collect), self._notes)
        weakref.finalize(self, self._mappings.clear).atexit = False
        renew = weakref.WeakMethod(self._renew_lock)
        os.register_at_fork(after_in_child=lambda: _call(renew))

    def allocate(self, size: int) -> Allocation:
        """Allocate at least `size` bytes (0 is allowed), not cleared. Raises: OutOfMemoryError."""
        block = size_class(size)
        with self._section:
            free = self._free.get(block)
            if free:
                address = free.pop()
                if block >= LARGE:
                    self._kept -= block
            elif block >= LARGE:
                address = self._map(block, size)
            else:
                address = self._carve(block, size)
            self._in_use += block
            self._peak = max(self._peak, self._in_use)
        return Allocation(self, address, size, block)

    def give_back(self, address: int, block: int) -> None:
        """Return a block; called when an Allocation is collected."""
        self._notes.append((address, block))
        self._section.try_collect()

    @property
    def statistics(self) -> Statistics:
        with self._section:
            return Statistics(self._in_use, self._peak, self._kept)

    def _collect(self) -> None:
        while self._notes:
            address, block = self._notes.popleft()
            self._in_use -= block
            self._free.setdefault(block, []).append(address)
            if block >= LARGE:
                self._kept += block
        if self._kept > self.keep:
            self._trim(self.keep)

    def _trim(self, keep: int) -> None:
        """Return free large blocks to the system, largest first, until at most `keep` bytes are left."""
        for block in sorted((block for block in self._free if block >= LARGE), reverse=True):
            free = self._free[block]
            while free and self._kept > keep:
                self._mappings.remove(free.pop())
                self._kept -= block

    def _map(self, block: int, size: int) -> int:
        try:
            return self._mappings.add(block)
        except OutOfMemoryError:
            self._trim(0)
        try:
            return self._mappings.add(block)
        except OutOfMemoryError:
            raise OutOfMemoryError(size, "host") from None

    def _carve(self, block: int, size: int) -> int:
        if self._slab + block > self._slab_end:
            self._slab = self._map(_SLAB, size)
            self._slab_end = self._slab + _SLAB
        address = self._slab
        self._slab += block
        return address

    def _renew_lock(self) -> None:
        self._section.lock = threading.Lock()


def size_class(size: int) -> int:
    """The bytes allocated for `size`: a multiple of a quarter of the power of two below it."""
    if size <= ALIGNMENT:
        return ALIGNMENT
    quarter = max(1 << ((size - 1).bit_length() - 3), ALIGNMENT)
    return pages.round_up(size, quarter)


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    target = method()
    if target is not None:
        target()


def _physical_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
