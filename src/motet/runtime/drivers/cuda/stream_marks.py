"""Marks in the work of callers' streams, by events that are recorded again and again, and what is kept until them.

Streams do not wait for one another here: what is kept for work of one is released although another still works. A
stream that is being captured has streams beside it, for what runs concurrently in the graph. They are part of the
capture until it ends, as is the stream itself, so that no other capture uses them.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence

from motet.runtime.drivers.common.streams import ApiError, Handle, StreamApi


class StreamMarks:
    """Call with the device's lock held and its context current."""

    def __init__(self, api: StreamApi) -> None:
        self._api = api
        self._free: list[Handle] = []  # events
        self._kept: dict[Handle, deque[tuple[Handle, Sequence[object]]]] = {}  # by stream, in order
        self._beside: dict[Handle, list[Handle]] = {}  # by stream

    def beside(self, stream: Handle, count: int) -> list[Handle]:
        """Streams for concurrent work in the graph that is being captured on a stream. Raises ApiError."""
        streams = self._beside.setdefault(stream, [])
        while len(streams) < count:
            streams.append(self._api.stream_create())
        return streams[:count]

    def record(self, stream: Handle) -> Handle:
        """An event after the current work of a stream, to be given back. Raises ApiError."""
        event = self._free.pop() if self._free else self._api.event_create()
        try:
            self._api.event_record(event, stream)
        except ApiError:
            self._free.append(event)
            raise
        return event

    def give_back(self, events: Sequence[Handle]) -> None:
        """The events may be recorded again: waits are for what was recorded at the time."""
        self._free += events

    def let_wait(self, streams: Sequence[Handle], other: Handle) -> None:
        """Make later work on `streams` run after the current work of the other stream. Raises ApiError."""
        event = self.record(other)
        self.give_back([event])
        for stream in streams:
            self._api.stream_wait(stream, event)

    def keep(self, stream: Handle, owners: Sequence[object]) -> list[object]:
        """Keep `owners` until the current work of a stream has ended. Returns what was kept for work that has ended,
        to be released without the lock. Raises ApiError."""
        ended: list[object] = []
        for each, kept in list(self._kept.items()):
            while kept and self._api.event_query(kept[0][0]):
                event, owned = kept.popleft()
                self._free.append(event)
                ended.append(owned)
            if not kept:
                del self._kept[each]
        event = self.record(stream)
        self._kept.setdefault(stream, deque()).append((event, owners))
        return ended

    def drain(self) -> list[object]:
        """Block until nothing needs to be kept any more, and return what was kept."""
        kept = [each for line in self._kept.values() for each in line]
        self._kept.clear()
        for event, _ in kept:
            self._free.append(event)
            with contextlib.suppress(ApiError):  # of a lost device
                self._api.event_synchronize(event)
        return [owned for _, owned in kept]

    def close(self) -> None:
        """Destroy the events and streams."""
        self.drain()
        while self._free:
            self._api.event_destroy(self._free.pop())
        while self._beside:
            for stream in self._beside.popitem()[1]:
                self._api.stream_destroy(stream)
