"""The host's side of transfers: memory that the GPU reads and writes by itself, through which all other memory goes.

Small transfers take a slot each. Large ones go through a ring of slots in chunks: threads fill the next slots while
the GPU moves the last ones, so that neither the bus nor the processor waits.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.runtime.devices.cuda.api import CudaApi, Handle

SMALL = 1 << 21  # bytes that go through one slot, copied in the thread that submits
_CHUNK = 4 << 20  # bytes of a slot of a ring
_LEAST_CHUNK = 2 << 20  # less is moved sooner than a thread is woken
_RING = 16
_COPIERS = min(8, max(2, (os.cpu_count() or 2) // 2))
_LEAST_SLOT = 1 << 12

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(eq=False)
class Slot:
    """Pinned memory, and what last moved to or from it."""

    address: int
    array: Bytes
    event: Handle = None
    copied: Future[None] | None = None


class Staging:
    """The slots of one device. Called with its context current."""

    def __init__(self, api: CudaApi) -> None:
        self._api = api
        self._free: dict[int, list[Slot]] = {}
        self._slots: list[Slot] = []
        self._lock = threading.Lock()
        self._copiers: ThreadPoolExecutor | None = None

    def take(self, size: int) -> Slot:
        """A slot of at least `size` bytes, which `give` must get when nothing moves to or from it any more."""
        block = max(_LEAST_SLOT, 1 << (size - 1).bit_length())
        with self._lock:
            free = self._free.get(block)
            return free.pop() if free else self._new(block)

    def give(self, slot: Slot) -> None:
        with self._lock:
            self._free.setdefault(slot.array.size, []).append(slot)

    def ring(self) -> Ring:
        """Slots for the large transfers of one queue."""
        with self._lock:
            slots = [self._new(_CHUNK) for _ in range(_RING)]
            for slot in slots:
                slot.event = self._api.event_create()
            if self._copiers is None:
                self._copiers = ThreadPoolExecutor(_COPIERS, "motet cuda copies")
            return Ring(self._api, slots, self._copiers)

    def close(self) -> None:
        """Gives everything back."""
        if self._copiers is not None:
            self._copiers.shutdown()
        slots, self._slots = self._slots, []
        self._free.clear()
        for slot in slots:
            if slot.event is not None:
                self._api.event_destroy(slot.event)
            self._api.host_free(slot.address)

    def _new(self, size: int) -> Slot:
        address = self._api.host_allocate(size)
        memory = (ctypes.c_uint8 * size).from_address(address)
        slot = Slot(address, np.ctypeslib.as_array(memory))
        self._slots.append(slot)
        return slot


class Ring:
    """A ring of slots, for one transfer at a time."""

    def __init__(self, api: CudaApi, slots: list[Slot], copiers: ThreadPoolExecutor) -> None:
        self._api = api
        self._slots = slots
        self._copiers = copiers

    def upload(self, target: int, source: Bytes, stream: Handle) -> None:
        """Host to device; `source` has been read when this ends, though the GPU may still move the end of it."""
        filling: deque[tuple[Slot, Bytes, int]] = deque()
        chunk = _chunk_of(source.size)
        for index, begin in enumerate(range(0, source.size, chunk)):
            if len(filling) == len(self._slots):
                self._move_in(*filling.popleft(), stream)
            slot, part = self._slots[index % len(self._slots)], source[begin : begin + chunk]
            self._api.event_synchronize(slot.event)
            slot.copied = self._copiers.submit(np.copyto, slot.array[: part.size], part)
            filling.append((slot, part, target + begin))
        while filling:
            self._move_in(*filling.popleft(), stream)

    def _move_in(self, slot: Slot, part: Bytes, target: int, stream: Handle) -> None:
        if slot.copied is not None:
            slot.copied.result()
        self._api.upload(target, slot.address, part.size, stream)
        self._api.event_record(slot.event, stream)

    def download(self, target: Bytes, source: int, stream: Handle) -> None:
        """Device to host; all of `target` is written when this ends."""
        moving: deque[tuple[Slot, Bytes]] = deque()
        chunk = _chunk_of(target.size)
        for index, begin in enumerate(range(0, target.size, chunk)):
            if len(moving) == len(self._slots) // 2:  # the other half is being copied out
                self._move_out(*moving.popleft())
            slot, part = self._slots[index % len(self._slots)], target[begin : begin + chunk]
            if slot.copied is not None:
                slot.copied.result()
            self._api.download(slot.address, source + begin, part.size, stream)
            self._api.event_record(slot.event, stream)
            moving.append((slot, part))
        while moving:
            self._move_out(*moving.popleft())
        for slot in self._slots:
            if slot.copied is not None:
                slot.copied.result()

    def _move_out(self, slot: Slot, part: Bytes) -> None:
        self._api.event_synchronize(slot.event)
        slot.copied = self._copiers.submit(np.copyto, part, slot.array[: part.size])


def _chunk_of(size: int) -> int:
    """Few enough that each is worth the trouble, and enough that all threads have some."""
    return min(_CHUNK, max(_LEAST_CHUNK, -(-size // (2 * _RING))))
