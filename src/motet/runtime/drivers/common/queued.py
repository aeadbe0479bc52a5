"""Devices driven by this process: their queues are its threads, and the memory of some is addressable here."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from motet.runtime.device import DeviceInfo, Event
from motet.runtime.drivers.common.base import Array, BaseDevice, BufferT, CodeT, WorkT
from motet.runtime.drivers.common.recording import bytes_of
from motet.runtime.drivers.common.work_queue import WorkQueue
from motet.runtime.timeline import Point

CLOSING = 60.0  # seconds that `close` waits for launches without a time limit, on devices that can end them


class ThreadedDevice(BaseDevice[BufferT, CodeT, WorkT]):
    """A device whose queues are `WorkQueue`s. `close` waits for work without limit, unless `patience` is in seconds: it
    then ends the work as `abort` does."""

    def __init__(self, info: DeviceInfo, queues: int, patience: float | None = None) -> None:
        super().__init__(info, queues)
        self.patience = patience
        self._queues = [WorkQueue(f"{info.uri} queue {number}") for number in range(queues)]
        self._profiling = False
        self._events: list[Event] = []

    def _start(
        self, kind: str, size: int, work: Callable[[], None], waits: Sequence[Point], queue: int
    ) -> Point:
        """Queue a transfer of `size` bytes; it runs in the caller's thread if it does not have to wait."""
        return self._queues[queue].run(self._timed(kind, size, work, queue), waits)

    def _timed(self, kind: str, size: int, work: Callable[[], None], queue: int) -> Callable[[], None]:
        """`work`, recorded as an event if the device is profiled."""

        def timed() -> None:
            begin = time.perf_counter()
            work()
            if self._profiling:
                self._events.append(Event(kind, kind, queue, begin, time.perf_counter(), size))

        return timed

    # -- timing and lifetime ---------------------------------------------------------------------

    def profile(self, on: bool) -> list[Event]:
        events, self._events = self._events, []
        self._profiling = on
        return events

    def abort(self) -> None:
        self._check_usable()
        self._end_work()

    def _end_work(self) -> None:
        """End queued work immediately; work that a thread has started runs to its end, and its point is then poisoned.
        Devices that can end running work, or keep it from starting, do so before."""
        error = self._aborted()
        for queue in self._queues:
            queue.abort(error)

    def close(self) -> None:
        self._closed = True
        if not all(queue.close(self.patience) for queue in self._queues):
            self._end_work()
            for queue in self._queues:
                queue.close()


class QueuedDevice(ThreadedDevice[BufferT, CodeT, WorkT]):
    """One whose transfers are numpy copies. `_bytes` gives access to memory."""

    @abstractmethod
    def _bytes(self, buffer: BufferT) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A buffer's bytes in place, for the duration of a transfer."""

    def _send(self, part: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Let the device see what was written to a part of `_bytes`; overridden where memory is not shared with it."""

    def _fetch(self, part: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Update a part of `_bytes` with what the device wrote there; overridden where memory is not shared with it."""

    # Each closure keeps its buffers and arrays alive, so that their owners may drop them.

    def _write(self, target: BufferT, source: Array, offset: int, waits: Sequence[Point], queue: int) -> Point:
        def work() -> None:
            part = self._bytes(target)[offset : offset + source.nbytes]
            part[:] = bytes_of(source)
            self._send(part)

        return self._start("write", source.nbytes, work, waits, queue)

    def _read(self, source: BufferT, target: Array, offset: int, waits: Sequence[Point], queue: int) -> Point:
        def work() -> None:
            part = self._bytes(source)[offset : offset + target.nbytes]
            self._fetch(part)
            bytes_of(target)[...] = part

        return self._start("read", target.nbytes, work, waits, queue)

    def _copy(self, source: BufferT, target: BufferT, waits: Sequence[Point], queue: int) -> Point:
        def work() -> None:
            origin, part = self._bytes(source), self._bytes(target)[: source.bytes]
            self._fetch(origin)
            part[:] = origin
            self._send(part)

        return self._start("copy", source.bytes, work, waits, queue)

    def _fill(self, target: BufferT, byte: int, waits: Sequence[Point], queue: int) -> Point:
        def work() -> None:
            part = self._bytes(target)
            part[...] = byte
            self._send(part)

        return self._start("fill", target.bytes, work, waits, queue)
