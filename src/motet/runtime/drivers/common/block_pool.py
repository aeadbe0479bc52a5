"""Memory of a device with streams: blocks that were used before, by size, in front of where new ones come from.

A block comes back when its buffer is gone, and work in flight on the device's own queues holds its buffers; so the
block can be given out again at once, on any stream, without a call of the vendor's library. What works on a stream of
someone else's holds nothing: a buffer that is used there is `ordered` by that stream, and its block is given out again
for work on the same stream at once, for other work when an event behind it has come.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from motet.runtime.drivers.common.streams import ApiError, BlockSource, Handle, StreamApi

_SMALLEST = 512
_STEPS = 4  # sizes per power of two: at most a fifth of a block is wasted
_LARGE = 1 << 21  # from here on, sizes are multiples of this
_KEPT = 4  # the part of the memory, one in so many, that unused blocks may take


def rounded(size: int) -> int:
    """The size of the block that `size` bytes get."""
    if size <= _SMALLEST:
        return _SMALLEST
    if size >= _LARGE:
        return -(-size // _LARGE) * _LARGE
    step = max(_SMALLEST, (1 << (size - 1).bit_length() - 1) // _STEPS)
    return -(-size // step) * step


@dataclass(frozen=True)
class _Leaving:
    """Blocks that are free when the event has come."""

    event: Handle
    blocks: list[tuple[int, int]]


class BlockPool:
    """Blocks of one device, of `capacity` bytes. What is not said to work in any context is called with the device's
    current."""

    def __init__(self, api: StreamApi, source: BlockSource, capacity: int) -> None:
        self._api = api
        self._source = source
        self._capacity = capacity
        self._given_back: deque[tuple[int, int, int | None]] = deque()
        self._ordered: dict[int, dict[int, list[int]]] = {}  # by stream and size
        self._leaving: list[_Leaving] = []
        self._unused: dict[int, list[int]] = {}
        self._unused_bytes = 0
        self._lock = threading.Lock()
        self.used = 0

    def reuse(self, size: int, stream: int | None = None) -> int | None:
        """The address of a block for `size` bytes that was used before, if there is one; with `stream`, for work there
        alone. In any context."""
        block = rounded(size)
        with self._lock:
            if self._given_back:
                self._take_back()
            kept = self._ordered.get(stream, {}).get(block) if stream is not None else None
            if not kept:
                kept = self._unused.get(block)
                if not kept:
                    return None
                self._unused_bytes -= block
            self.used += block
            return kept.pop()

    def allocate(self, size: int) -> int:
        """The address of a new block, or of one that no stream uses any more. Raises ApiError."""
        block = rounded(size)
        with self._lock:
            self._take_back()
            self._settle()
            if kept := self._unused.get(block):
                self._unused_bytes -= block
                address = kept.pop()
            else:
                address = self._new(block)
            self.used += block
        return address

    def give_back(self, address: int, size: int, stream: int | None = None) -> None:
        """Only leaves a note: buffers go at any moment, inside `allocate` too. In any context."""
        self._given_back.append((address, size, stream))

    def destroy(self) -> None:
        """Everything goes, what is in use too. Nothing works with it any more."""
        with self._lock:
            self._take_back()
            for leaving in self._leaving:
                self._api.event_destroy(leaving.event)
            for block, address in [pair for leaving in self._leaving for pair in leaving.blocks] + self._take_ordered():
                self._free(block, address)
            self._leaving.clear()
            self._release_unused()
        self._source.close()

    def _take_back(self) -> None:
        while self._given_back:
            address, size, stream = self._given_back.popleft()
            block = rounded(size)
            if stream is None:
                self._free(block, address)
            else:
                self._ordered.setdefault(stream, {}).setdefault(block, []).append(address)
            self.used -= block

    def _settle(self, wait: bool = False) -> None:
        """Puts an event behind what is ordered by streams, and takes the blocks whose events have come."""
        for stream in [stream for stream in self._ordered if not self._api.is_capturing(stream)]:
            blocks = self._take_ordered(stream)
            event = self._api.event_create()
            try:
                self._api.event_record(event, stream)
            except ApiError as error:
                if not error.is_invalid_handle:
                    raise
                self._api.context_synchronize()  # the stream was destroyed, with its work maybe still on the way
            self._leaving.append(_Leaving(event, blocks))
        for leaving in list(self._leaving):
            if wait:
                self._api.event_synchronize(leaving.event)
            elif not self._api.event_query(leaving.event):
                continue
            self._leaving.remove(leaving)
            self._api.event_destroy(leaving.event)
            for block, address in leaving.blocks:
                self._free(block, address)

    def _take_ordered(self, stream: int | None = None) -> list[tuple[int, int]]:
        """The blocks that are ordered by a stream, or by any."""
        streams = list(self._ordered) if stream is None else [stream]
        return [
            (block, address) for each in streams for block, kept in self._ordered.pop(each).items() for address in kept
        ]

    def _free(self, block: int, address: int) -> None:
        self._unused.setdefault(block, []).append(address)
        self._unused_bytes += block

    def _new(self, block: int) -> int:
        if self._unused_bytes + block > self._capacity // _KEPT:
            self._release_unused()
        try:
            return self._source.allocate(block)
        except ApiError as error:
            if not error.is_out_of_memory:
                raise
        self._settle(wait=True)
        self._release_unused()
        self._source.trim()
        return self._source.allocate(block)

    def _release_unused(self) -> None:
        for addresses in self._unused.values():
            for address in addresses:
                self._source.free(address)
        self._unused.clear()
        self._unused_bytes = 0
