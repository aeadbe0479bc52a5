"""The interface to a vendor's library that GPU drivers share: streams, events, memory, transfers.

A driver implements these calls over its library: CUDA's streams and events, Level Zero's command lists and events,
OpenCL's in-order queues and markers. Handles are opaque; addresses and sizes are ints. Failures raise `ApiError`. All
methods are called with the device's context current in the thread, if the library has contexts.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from motet.errors import MotetError
from motet.runtime.device import DeviceInfo

Handle = Any


class ApiError(Exception):
    """A failed call: its `code` and `name`, the `call`, and further text of the library. Drivers derive classes that
    define the codes that the shared parts handle."""

    out_of_memory: ClassVar[frozenset[int]] = frozenset()
    invalid_handle: ClassVar[frozenset[int]] = frozenset()

    def __init__(self, code: int, name: str, call: str, log: str = "") -> None:
        self.code = code
        self.name = name
        self.call = call
        self.log = log
        super().__init__(f"{call}: {name}" + (f": {log}" if log else ""))

    @property
    def is_out_of_memory(self) -> bool:
        return self.code in self.out_of_memory

    @property
    def is_invalid_handle(self) -> bool:
        """Whether a stream or event was already destroyed."""
        return self.code in self.invalid_handle


class StreamApi(Protocol):
    """Streams, which run work in order, and events, which mark positions in them."""

    def stream_create(self) -> Handle: ...

    def stream_destroy(self, stream: Handle) -> None: ...

    def stream_wait(self, stream: Handle, event: Handle) -> None:
        """Make work put on `stream` from now on run after the event's last recording."""
        ...

    def is_capturing(self, stream: Handle) -> bool:
        """Whether work on a stream is being captured into a graph instead of running."""
        ...

    def event_create(self) -> Handle: ...

    def event_destroy(self, event: Handle) -> None: ...

    def event_record(self, event: Handle, stream: Handle) -> None:
        """Record the event after the work on `stream`; events may be recorded repeatedly."""
        ...

    def event_query(self, event: Handle) -> bool:
        """Whether the work before an event has ended; true for an event that was never recorded."""
        ...

    def event_synchronize(self, event: Handle) -> None:
        """Block until the work before an event has ended."""
        ...

    def context_synchronize(self) -> None:
        """Block until all work of the context has ended, including that of other libraries."""
        ...


class TransferApi(StreamApi, Protocol):
    """Transfers between host and device memory, on a stream."""

    def host_allocate(self, size: int) -> int:
        """The address of pinned memory, which the device accesses directly."""
        ...

    def host_free(self, address: int) -> None: ...

    def is_pinned(self, address: int) -> bool: ...

    def upload(self, target: int, source: int, size: int, stream: Handle) -> None:
        """Host to device. Memory that is not pinned has been read on return."""
        ...

    def download(self, target: int, source: int, size: int, stream: Handle) -> None:
        """Device to host. Memory that is not pinned has been written on return."""
        ...


class BlockSource(Protocol):
    """Allocates the blocks of a pool of device memory."""

    def allocate(self, size: int) -> int:
        """The address of new memory, usable by all streams from now on."""
        ...

    def free(self, address: int) -> None:
        """Free memory that is no longer in use."""
        ...

    def trim(self) -> None:
        """Return freed memory to the system."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class StreamOwner(Protocol):
    """A device, as its `StreamQueue`s see it. `lock` protects shared state; `current` makes the device's context
    current in the thread; `process` is the id of the process that opened it; `lost` is permanent."""

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def api(self) -> StreamApi: ...

    @property
    def process(self) -> int: ...

    @property
    def lock(self) -> threading.RLock: ...

    @property
    def current(self) -> AbstractContextManager[object]: ...

    @property
    def lost(self) -> MotetError | None: ...

    def check_usable(self) -> None:
        """Raises the error that keeps the device from being used, if any."""
        ...

    def check_process(self) -> None:
        """Raises DeviceError in the child of a fork."""
        ...

    def lose(self, error: ApiError, kernels: Sequence[str] = ()) -> bool:
        """End all work if an error is permanent; returns whether it is. `kernels` may have been running."""
        ...

    def passing(self, error: ApiError) -> MotetError:
        """The exception for a failure that leaves the device usable."""
        ...

    def shares_events(self, other: StreamOwner) -> bool:
        """Whether this device's streams can wait for events of another one."""
        ...
