"""Copies of parts of a `cl_mem` that begin where a device cannot address, for one launch.

Arguments of kernels are parts that begin at multiples of the device's alignment (`clCreateSubBuffer`), which other
parts of an arena do not. Devices with shared virtual memory need no copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from motet.errors import DeviceError
from motet.runtime.drivers.opencl.api import Handle
from motet.runtime.drivers.opencl.context import Context, Memory, MemoryPart


class StandIns:
    """The arguments `parts` of a launch on `queue`, in which copies stand for those that the device does not take. The
    launch waits for the events `ready`; `end` copies back, and the launch and its copies have ended with `event`.
    Raises DeviceError for parts that overlap without being equal."""

    def __init__(
        self, context: Context, queue: Handle, parts: Sequence[MemoryPart], waits: Sequence[Handle]
    ) -> None:
        self.event: Handle = 0
        self._context = context
        self._queue = queue
        self._events: list[Handle] = []
        self._copies: dict[MemoryPart, Memory] = {}
        for part in parts:
            if not context.takes(part) and part not in self._copies:
                self._check(part, parts)
                self._copies[part] = context.allocate(part.bytes)
        self.parts = [self._copies[part].place if part in self._copies else part for part in parts]
        try:
            for part, memory in self._copies.items():
                self._events.append(context.copy(queue, part, memory.place, waits))
        except BaseException:
            self._release()
            raise
        self.ready = [*waits, *self._events]

    def __enter__(self) -> StandIns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def end(self, launch: Handle) -> None:
        """Copy back what the launch, whose event is given up here, may have written."""
        self._events.append(launch)
        back = [
            self._context.copy(self._queue, memory.place, part, [launch]) for part, memory in self._copies.items()
        ]
        self._events += back
        self.event = self._context.api.marker(self._queue, back)

    def _check(self, part: MemoryPart, parts: Sequence[MemoryPart]) -> None:
        if any(other != part and part.overlaps(other) for other in parts):
            raise DeviceError(
                f"device {self._context.name}: arguments of a kernel overlap in part, {part.bytes:,} bytes at byte "
                f"{part.offset:,} of a cl_mem; expected places that the device can address"
            )

    def _release(self) -> None:
        for event in self._events:
            self._context.api.release("Event", event)
        self._events.clear()
