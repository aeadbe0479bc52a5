"""A pool of device memory for devices with streams: caches freed blocks by size before it allocates new ones.

A block is freed with its buffer, and work in flight on the device's own queues keeps its buffers alive; the block can
then be reused immediately, on any stream, without a call of the vendor's library. Work on a caller's stream keeps no
buffers alive: a buffer used there is `ordered` by that stream, and its block is reused immediately for work on the same
stream, and for other work after an event on that stream.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from motet.runtime.drivers.common.streams import ApiError, BlockSource, Handle, StreamApi

_SMALLEST = 512
_STEPS = 4  # sizes per power of two: at most a fifth of a block is wasted
_LARGE = 1 << 21  # sizes from here on are multiples of it
_KEPT = 4  # unused blocks may take this fraction, 1 / _KEPT, of the memory


def rounded(size: int) -> int:
    """The size of the block for `size` bytes."""
    if size <= _SMALLEST:
        return _SMALLEST
    if size >= _LARGE:
        return -(-size // _LARGE) * _LARGE
    step = max(_SMALLEST, (1 << (size - 1).bit_length() - 1) // _STEPS)
    return -(-size // step) * step


@dataclass(frozen=True)
class _Leaving:
    """Blocks that are free once the event is reached."""

    event: Handle
    blocks: list[tuple[int, int]]


class BlockPool:
    """Blocks of one device with `capacity` bytes. Methods require the device's context to be current unless they state
    otherwise."""

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
        """The address of a cached block for `size` bytes, if there is one; with `stream`, for work on it only. Needs no
        context."""
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
        """Only record the block as freed: buffers may be collected at any time, also during `allocate`. Needs no
        context."""
        self._given_back.append((address, size, stream))

    def destroy(self) -> None:
        """Free all blocks, including those in use. The pool must not be used afterwards."""
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
        """Record an event for blocks ordered by streams, and collect the blocks whose events are reached."""
        for stream in [stream for stream in self._ordered if not self._api.is_capturing(stream)]:
            blocks = self._take_ordered(stream)
            event = self._api.event_create()
            try:
                self._api.event_record(event, stream)
            except ApiError as error:
                if not error.is_invalid_handle:
                    raise
                self._api.context_synchronize()  # the stream was destroyed, possibly with work in flight
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
        """Remove and return the blocks ordered by a stream, or by any stream."""
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
