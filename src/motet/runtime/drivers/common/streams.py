"""What the parts that GPUs share need of a vendor's interface: streams, events, memory, moves.

A driver implements these few calls over its library: CUDA's streams and events, Level Zero's command lists and events,
OpenCL's in-order queues and markers. Handles are opaque, addresses and sizes are numbers. What fails raises `ApiError`.
All is called with the device's context current in the thread, where there is such a thing.
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
    """A call that failed: its `code` and `name`, the `call`, and what else the library said. A driver's own class
    names the codes that the common parts act upon."""

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
        """Whether a stream or an event was destroyed before."""
        return self.code in self.invalid_handle


class StreamApi(Protocol):
    """Streams, whose work runs in order, and events, which mark places in it."""

    def stream_create(self) -> Handle: ...

    def stream_destroy(self, stream: Handle) -> None: ...

    def stream_wait(self, stream: Handle, event: Handle) -> None:
        """What is put on `stream` from now on runs after the event's last recording."""
        ...

    def is_capturing(self, stream: Handle) -> bool:
        """Whether work on a stream is recorded for a graph, and not done."""
        ...

    def event_create(self) -> Handle: ...

    def event_destroy(self, event: Handle) -> None: ...

    def event_record(self, event: Handle, stream: Handle) -> None:
        """The event is behind what is on `stream` now; it may be recorded any number of times."""
        ...

    def event_query(self, event: Handle) -> bool:
        """Whether the work before an event has ended; true for one that was never recorded."""
        ...

    def event_synchronize(self, event: Handle) -> None:
        """Blocks until the work before an event has ended."""
        ...

    def context_synchronize(self) -> None:
        """Blocks until all work of the context has ended, that of other libraries too."""
        ...


class TransferApi(StreamApi, Protocol):
    """Moves between the host's memory and the device's, on a stream."""

    def host_allocate(self, size: int) -> int:
        """The address of pinned memory: the device moves from and to it by itself."""
        ...

    def host_free(self, address: int) -> None: ...

    def is_pinned(self, address: int) -> bool: ...

    def upload(self, target: int, source: int, size: int, stream: Handle) -> None:
        """Host to device. Memory that is not pinned has been read when this returns."""
        ...

    def download(self, target: int, source: int, size: int, stream: Handle) -> None:
        """Device to host. Memory that is not pinned has been written when this returns."""
        ...


class BlockSource(Protocol):
    """Where a pool's blocks of device memory come from."""

    def allocate(self, size: int) -> int:
        """The address of new memory, which all streams may use from now on."""
        ...

    def free(self, address: int) -> None:
        """Takes back memory that no work uses any more."""
        ...

    def trim(self) -> None:
        """Gives what was freed back to the system."""
        ...

    def close(self) -> None:
        """Gives everything back."""
        ...


class StreamOwner(Protocol):
    """A device, as its `StreamQueue`s see it. `lock` is held around what must not happen at once; `current` makes the
    device's context the thread's; `process` is the id of the process that opened it; `lost` is set for good."""

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
        """Raises what keeps the device from being used."""
        ...

    def check_process(self) -> None:
        """Raises DeviceError in the child of a fork."""
        ...

    def lose(self, error: ApiError, kernels: Sequence[str] = ()) -> bool:
        """Ends everything if an error is final, and says whether it is. `kernels` may have been at work."""
        ...

    def passing(self, error: ApiError) -> MotetError:
        """What a failure that leaves the device usable raises."""
        ...

    def shares_events(self, other: StreamOwner) -> bool:
        """Whether this device's streams can wait for another one's events."""
        ...
