"""A vendor's interface for tests: streams whose work runs step by step, when it is asked for.

It is written from the protocols in `motet.runtime.drivers.common.streams` alone, with no family's interface in mind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from motet.errors import DeviceError, DeviceLost, MotetError
from motet.runtime.device import DeviceInfo
from motet.runtime.drivers.common.streams import ApiError, StreamOwner

NO_MEMORY, NO_SUCH_THING, BROKEN = 1, 2, 3


class SteppedError(ApiError):
    out_of_memory = frozenset({NO_MEMORY})
    invalid_handle = frozenset({NO_SUCH_THING})


@dataclass(eq=False)
class SteppedEvent:
    mark: int = 0  # the recording that it stands for
    stream: SteppedStream | None = None


@dataclass(eq=False)
class SteppedStream:
    """`work` is what was put there and has not run; `put` and `ran` count all of it."""

    work: list[tuple[Callable[[], object], SteppedEvent | None, int]] = field(default_factory=list)
    put: int = 0
    ran: int = 0
    gone: bool = False


class SteppedApi:
    """`capacity` bytes of pinned memory or blocks; `broken` makes every query fail for good."""

    def __init__(self) -> None:
        self.streams: list[SteppedStream] = []
        self.memory: dict[int, ctypes.Array[ctypes.c_uint8]] = {}
        self.capturing: set[int] = set()
        self.broken = False
        self.events = 0
        self.lock = threading.RLock()
        self.runs_by_itself = False

    # -- streams and events

    def stream_create(self) -> SteppedStream:
        self.streams.append(SteppedStream())
        return self.streams[-1]

    def stream_destroy(self, stream: SteppedStream) -> None:
        stream.gone = True

    def stream_wait(self, stream: SteppedStream, event: SteppedEvent) -> None:
        self._put(stream, lambda: None, event, event.mark)

    def is_capturing(self, stream: SteppedStream) -> bool:
        return id(stream) in self.capturing

    def event_create(self) -> SteppedEvent:
        self.events += 1
        return SteppedEvent()

    def event_destroy(self, event: SteppedEvent) -> None:
        self.events -= 1

    def event_record(self, event: SteppedEvent, stream: SteppedStream) -> None:
        if stream.gone:
            raise SteppedError(NO_SUCH_THING, "no such stream", "event_record")
        event.stream, event.mark = stream, stream.put

    def event_query(self, event: SteppedEvent) -> bool:
        if self.broken:
            raise SteppedError(BROKEN, "broken", "event_query")
        if self.runs_by_itself:
            self.run()
        return event.stream is None or event.stream.ran >= event.mark

    def event_synchronize(self, event: SteppedEvent) -> None:
        while not self.event_query(event):
            assert self.step(), "waits for what never ends"

    def context_synchronize(self) -> None:
        self.run()

    # -- memory and moves

    def host_allocate(self, size: int) -> int:
        memory = (ctypes.c_uint8 * size)()
        self.memory[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def host_free(self, address: int) -> None:
        del self.memory[address]

    def is_pinned(self, address: int) -> bool:
        return any(base <= address < base + len(memory) for base, memory in self.memory.items())

    def upload(self, target: int, source: int, size: int, stream: SteppedStream) -> None:
        self._move(target, source, size, stream, read=source)

    def download(self, target: int, source: int, size: int, stream: SteppedStream) -> None:
        self._move(target, source, size, stream, read=target)

    def _move(self, target: int, source: int, size: int, stream: SteppedStream, read: int) -> None:
        self._put(stream, lambda: ctypes.memmove(target, source, size), None, 0)
        if not self.is_pinned(read):
            self.run()

    def put(self, stream: SteppedStream, work: Callable[[], object]) -> None:
        self._put(stream, work, None, 0)

    def _put(self, stream: SteppedStream, work: Callable[[], object], after: SteppedEvent | None, mark: int) -> None:
        with self.lock:
            stream.put += 1
            stream.work.append((work, SteppedEvent(mark, after.stream) if after is not None else None, mark))

    # -- running

    def step(self) -> bool:
        """Runs the first piece of work that may run; whether there was one."""
        with self.lock:
            for stream in self.streams:
                if not stream.work:
                    continue
                work, after, _ = stream.work[0]
                if after is None or after.stream is None or after.stream.ran >= after.mark:
                    stream.work.pop(0)
                    work()
                    stream.ran += 1
                    return True
        return False

    def run(self) -> None:
        while self.step():
            pass


class SteppedBlocks:
    """Blocks of `capacity` bytes in all; what is freed stays taken until `trim`, as a vendor's pool keeps it."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.taken: dict[int, int] = {}
        self.freed: dict[int, int] = {}
        self.next = 1 << 20
        self.closed = False

    def allocate(self, size: int) -> int:
        if sum(self.taken.values()) + sum(self.freed.values()) + size > self.capacity:
            raise SteppedError(NO_MEMORY, "no memory", "allocate")
        self.next += size
        self.taken[self.next] = size
        return self.next

    def free(self, address: int) -> None:
        self.freed[address] = self.taken.pop(address)

    def trim(self) -> None:
        self.freed.clear()

    def close(self) -> None:
        self.closed = True


class SteppedDevice:
    """The owner of queues; see `StreamOwner`."""

    def __init__(self, api: SteppedApi, uri: str = "stepped:0") -> None:
        self.info = DeviceInfo("stepped", uri)
        self.api = api
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.current = contextlib.nullcontext()
        self.lost: MotetError | None = None
        self.queues: list[object] = []

    def check_usable(self) -> None:
        if self.lost is not None:
            raise self.lost

    def check_process(self) -> None:
        pass

    def lose(self, error: ApiError, kernels: Sequence[str] = ()) -> bool:
        if error.code != BROKEN:
            return False
        if self.lost is None:
            self.lost = DeviceLost(self.info.uri, error.name)
            for queue in self.queues:
                queue.fail(self.lost)  # type: ignore[attr-defined]
        return True

    def passing(self, error: ApiError) -> MotetError:
        return DeviceError(f"device {self.info.uri}: {error}")

    def shares_events(self, other: StreamOwner) -> bool:
        return other.api is self.api
