"""Marks in the work of callers' streams, by events that are recorded again and again, and what is kept until them.

Streams do not wait for one another here: what is kept for work of one is released although another still works.
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

    def let_wait(self, streams: Sequence[Handle], other: Handle) -> None:
        """Make later work on `streams` run after the current work of the other stream. Raises ApiError."""
        event = self._record(other)
        self._free.append(event)  # waits are for what was recorded at the time
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
        event = self._record(stream)
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
        """Destroy the events."""
        self.drain()
        while self._free:
            self._api.event_destroy(self._free.pop())

    def _record(self, stream: Handle) -> Handle:
        event = self._free.pop() if self._free else self._api.event_create()
        try:
            self._api.event_record(event, stream)
        except ApiError:
            self._free.append(event)
            raise
        return event
