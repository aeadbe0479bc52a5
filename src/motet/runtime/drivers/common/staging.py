"""Pinned host memory for transfers: the device accesses it directly, and data of all other host memory goes through it.

Small transfers use one slot each. Large ones, and many together, go through a ring of slots in chunks: threads fill the
next slots while the device transfers the previous ones, so that neither the bus nor the CPU waits. Pinning a slot takes
as long as ten transfers; a ring therefore allocates slots one by one, as its traffic justifies them.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.runtime.drivers.common.streams import Handle, TransferApi

SMALL = 1 << 21  # bytes that use one slot, copied in the submitting thread
_CHUNK = 2 << 20  # bytes of a ring's slot; smaller transfers take less than waking a thread
_RING = 16  # maximum number of slots
_FEWEST = 2
_WORTH = 4  # chunks transferred through a ring for each of its slots
_COPIERS = min(8, max(2, (os.cpu_count() or 2) // 2))
_LEAST_SLOT = 1 << 12

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Part = tuple[int, Bytes]  # offset, and bytes


@dataclass(eq=False)
class StagingSlot:
    """Pinned memory, and the last transfer to or from it."""

    address: int
    array: Bytes
    event: Handle = None
    copied: Future[None] | None = None


class StagingMemory:
    """The slots of one device. Call with its context current."""

    def __init__(self, api: TransferApi) -> None:
        self._api = api
        self._free: dict[int, list[StagingSlot]] = {}
        self._slots: list[StagingSlot] = []
        self._lock = threading.Lock()
        self._copiers: ThreadPoolExecutor | None = None

    def take(self, size: int) -> StagingSlot:
        """A slot of at least `size` bytes, to be returned by `give` when its transfer has ended."""
        block = max(_LEAST_SLOT, 1 << (size - 1).bit_length())
        with self._lock:
            free = self._free.get(block)
            return free.pop() if free else self._new(block)

    def give(self, slot: StagingSlot) -> None:
        with self._lock:
            self._free.setdefault(slot.array.size, []).append(slot)

    def ring(self) -> StagingRing:
        """A ring for the large transfers of one queue."""
        with self._lock:
            if self._copiers is None:
                self._copiers = ThreadPoolExecutor(_COPIERS, "motet copies")
            return StagingRing(self._api, self._new_of_ring, self._copiers)

    def close(self) -> None:
        """Free all slots."""
        if self._copiers is not None:
            self._copiers.shutdown()
        slots, self._slots = self._slots, []
        self._free.clear()
        for slot in slots:
            if slot.event is not None:
                self._api.event_destroy(slot.event)
            self._api.host_free(slot.address)

    def _new_of_ring(self) -> StagingSlot:
        with self._lock:
            slot = self._new(_CHUNK)
        slot.event = self._api.event_create()
        return slot

    def _new(self, size: int) -> StagingSlot:
        address = self._api.host_allocate(size)
        memory = (ctypes.c_uint8 * size).from_address(address)
        slot = StagingSlot(address, np.ctypeslib.as_array(memory))
        self._slots.append(slot)
        return slot


class StagingRing:
    """A ring of slots for one transfer at a time; `new` allocates a slot."""

    def __init__(self, api: TransferApi, new: Callable[[], StagingSlot], copiers: ThreadPoolExecutor) -> None:
        self._api = api
        self._new = new
        self._slots: list[StagingSlot] = []
        self._copiers = copiers
        self._chunks = 0  # chunks transferred so far

    def upload(self, target: int, size: int, parts: Sequence[Part], stream: Handle) -> None:
        """Host to device: `parts`, in order, to their offsets in `size` bytes; bytes between them are undefined.
        Returns when `parts` have been read, possibly before the device has received the last of them."""
        filling: deque[tuple[StagingSlot, int, int]] = deque()
        most = self._worth(size)
        for index, (begin, length, inside) in enumerate(_chunks(size, parts)):
            while filling and (len(filling) == most or _is_filled(filling[0][0])):
                self._move_in(*filling.popleft(), stream)
            slot = self._slot(index % most)
            self._api.event_synchronize(slot.event)
            slot.copied = self._copiers.submit(_fill, slot.array, inside)
            filling.append((slot, target + begin, length))
        while filling:
            self._move_in(*filling.popleft(), stream)

    def _move_in(self, slot: StagingSlot, target: int, length: int, stream: Handle) -> None:
        if slot.copied is not None:
            slot.copied.result()
        self._api.upload(target, slot.address, length, stream)
        self._api.event_record(slot.event, stream)

    def download(self, target: Bytes, source: int, stream: Handle) -> None:
        """Device to host; returns when all of `target` is written."""
        moving: deque[tuple[StagingSlot, Bytes]] = deque()
        most = self._worth(target.size)
        for index, begin in enumerate(range(0, target.size, _CHUNK)):
            if len(moving) == most // 2:  # the other half is being copied out
                self._move_out(*moving.popleft())
            slot, part = self._slot(index % most), target[begin : begin + _CHUNK]
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

    def _move_out(self, slot: StagingSlot, part: Bytes) -> None:
        self._api.event_synchronize(slot.event)
        slot.copied = self._copiers.submit(np.copyto, part, slot.array[: part.size])

    def _worth(self, size: int) -> int:
        """The number of slots that a transfer of `size` bytes may use."""
        self._chunks += -(-size // _CHUNK)
        return min(_RING, max(_FEWEST, self._chunks // _WORTH))

    def _slot(self, index: int) -> StagingSlot:
        """An existing slot, or a new one."""
        if index == len(self._slots):
            self._slots.append(self._new())
        return self._slots[index]


def _chunks(size: int, parts: Sequence[Part]) -> Iterator[tuple[int, int, list[Part]]]:
    """The offset and length of each chunk of `size` bytes, and the parts in it by their offsets there."""
    left = deque(parts)
    for begin in range(0, size, _CHUNK):
        end = min(begin + _CHUNK, size)
        inside: list[Part] = []
        while left and left[0][0] < end:
            at, data = left.popleft()
            inside.append((at - begin, data[: end - at]))
            if at + data.size > end:
                left.appendleft((end, data[end - at :]))
        yield begin, end - begin, inside


def _is_filled(slot: StagingSlot) -> bool:
    return slot.copied is None or slot.copied.done()


def _fill(slot: Bytes, inside: Sequence[Part]) -> None:
    for at, data in inside:
        slot[at : at + data.size] = data
