"""Times of the GPU's commands: a pair of events around each, converted to this process's clock."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from motet.runtime.device import Event
from motet.runtime.drivers.common.streams import Handle
from motet.runtime.drivers.cuda.api import CudaApi

_STREAMS = 7  # streams besides the queue's own


@dataclass(frozen=True)
class _Span:
    name: str
    kind: str
    queue: int
    bytes: int
    begin: Handle
    end: Handle
    source: str = ""


@dataclass(eq=False)
class Profiler:
    """The commands since profiling was switched on. Call with the device's context current."""

    api: CudaApi
    base: Handle
    base_time: float
    streams: list[Handle]  # for commands that run concurrently with those on the queue's stream
    _spans: list[_Span] = field(default_factory=list[_Span])

    @staticmethod
    def begin(api: CudaApi, stream: Handle) -> Profiler:
        """Relate the GPU's clock to ours on an idle stream."""
        base = api.event_create(timed=True)
        times = [_time_of(api, base, stream) for _ in range(2)]  # the first time includes set-up
        return Profiler(api, base, times[-1], [api.stream_create() for _ in range(_STREAMS)])

    def mark(self, stream: Handle) -> Handle:
        event = self.api.event_create(timed=True)
        self.api.event_record(event, stream)
        return event

    def note(
        self, name: str, kind: str, queue: int, size: int, begin: Handle, stream: Handle, source: str = ""
    ) -> Handle:
        """Record what was put on `stream` since the event `begin`; returns the event after it."""
        end = self.mark(stream)
        self._spans.append(_Span(name, kind, queue, size, begin, end, source))
        return end

    def end(self) -> list[Event]:
        """Wait for the recorded commands and return their events. The profiler must not be used afterwards."""
        events: list[Event] = []
        for span in self._spans:
            self.api.event_synchronize(span.end)
            begin, end = (self.base_time + self.api.elapsed(self.base, event) for event in (span.begin, span.end))
            events.append(Event(span.name, span.kind, span.queue, begin, end, span.bytes, source=span.source))
            self.api.event_destroy(span.begin)
            self.api.event_destroy(span.end)
        self.api.event_destroy(self.base)
        for stream in self.streams:
            self.api.stream_destroy(stream)
        self._spans.clear()
        return sorted(events, key=lambda event: event.begin)


def _time_of(api: CudaApi, event: Handle, stream: Handle) -> float:
    before = time.perf_counter()
    api.event_record(event, stream)
    api.event_synchronize(event)
    return (before + time.perf_counter()) / 2
