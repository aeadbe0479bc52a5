"""A call like the one before it: with the same buffers, on the same queue.

What an earlier call has checked of the arguments holds as long as their objects live; what the caller may have released
since, the queue and the memory that buffers do not keep, is checked by each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from motet.errors import CallError
from motet.runtime.drivers.opencl.api import Handle
from motet.runtime.drivers.opencl.context import MemoryPart
from motet.runtime.drivers.opencl.external import Array, ExternalWork
from motet.runtime.drivers.opencl.handles import handle_of
from motet.runtime.drivers.opencl.objects import Objects, QueueFacts
from motet.runtime.foreign import Enqueued


@dataclass(frozen=True)
class RepeatedCall:
    """`given` are the arguments and `out` of the call before it; all of its memory is `held`."""

    objects: Objects
    given: Sequence[Any]
    stream: Any
    queue: QueueFacts
    work: ExternalWork
    externals: Sequence[MemoryPart | Array]
    held: tuple[Sequence[Any], Sequence[Any]]
    result: Any

    def __call__(
        self, arguments: Sequence[Any], out: Sequence[Any], stream: Any, wait: Sequence[Any]
    ) -> Enqueued | None:
        """Enqueue the call; None if it is not like the one before it, and for mistakes, which the general way names.
        Raises CallError for a wrong event, DeviceError."""
        if stream is not self.stream and (type(stream) is not int or stream != self.stream):
            return None
        given = (*arguments, *out)
        for one, other in zip(given, self.given, strict=True):
            if one is not other:
                return None
        if None in out and any(each is None for each in self.given[len(arguments) :]):
            return None  # new results
        try:
            queue = self.objects.queue(self.queue.handle, "")
        except CallError:
            return None
        if queue != self.queue or not self.work.is_kept():
            return None
        for buffers in self.held:
            for buffer in buffers:
                if not buffer.is_kept and not self.objects.is_still(buffer.handle, buffer.kind, queue):
                    return None
        waits = wait_list(self.objects, queue, wait, self.work.name) if wait else ()
        return Enqueued(self.result, self.work(queue.handle, self.externals, waits, self.held))


def wait_list(objects: Objects, queue: QueueFacts, wait: Sequence[Any], name: str) -> list[Handle]:
    """The handles of a call's events. Raises CallError for anything but an event of the queue's context."""
    found: list[Handle] = []
    for number, event in enumerate(wait):
        where = f"{name}: wait {number}"
        handle = handle_of(event)
        if handle is None:
            raise CallError(f"{where}: {type(event).__name__} given; expected an event of OpenCL: pyopencl's, that of "
                            "a call, or a handle")  # fmt: skip
        objects.check_event(handle, queue, where)
        found.append(handle)
    return found
