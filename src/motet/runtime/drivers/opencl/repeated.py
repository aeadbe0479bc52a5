"""A call like an earlier one: on the same queue, with the same buffers or with others of the same kinds and types.

What the earlier call has checked of the same buffers holds as long as their objects live; what the caller may have
released since, the queue and the memory that buffers do not keep, is checked by each call. Of other buffers, their
context, memory and overlaps are checked.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from motet.errors import CallError
from motet.runtime.drivers.opencl.api import Handle
from motet.runtime.drivers.opencl.context import MemoryPart
from motet.runtime.drivers.opencl.external import Array, ExternalWork
from motet.runtime.drivers.opencl.handles import OpenClBuffer, handle_of
from motet.runtime.drivers.opencl.objects import Objects, QueueFacts
from motet.runtime.foreign import Enqueued


@dataclass(frozen=True)
class RepeatedCall:
    """`given` are the arguments and `out` of the earlier call; all of its memory is `held`. `order` tells which of
    `given` each of `externals` is; it is empty if calls with other buffers must take the general way."""

    objects: Objects
    given: Sequence[Any]
    stream: Any
    queue: QueueFacts
    work: ExternalWork
    externals: Sequence[MemoryPart | Array]
    held: tuple[Sequence[Any], Sequence[Any]]
    result: Any
    order: Sequence[int]

    def __call__(
        self, arguments: Sequence[Any], out: Sequence[Any], stream: Any, wait: Sequence[Any]
    ) -> Enqueued | None:
        """Enqueue the call; None if it is not like the one before it, and for mistakes, which the general way names.
        Raises CallError for a wrong event, DeviceError."""
        if stream is not self.stream and (type(stream) is not int or stream != self.stream):
            return None
        given = (*arguments, *out)
        if None in out and any(each is None for each in self.given[len(arguments) :]):
            return None  # new results
        try:
            queue = self.objects.queue(self.queue.handle, "")
        except CallError:
            return None
        if queue != self.queue or not self.work.is_kept():
            return None
        held, externals, result = self.held, self.externals, self.result
        if all(map(operator.is_, given, self.given)):
            if not self._is_still(queue):
                return None
        elif self.order and self._is_alike(given, len(arguments), queue):
            held, externals = (arguments, out), [given[number].place for number in self.order]
            result = out[0] if len(out) == 1 else tuple(out) if out else None
        else:
            return None
        waits = wait_list(self.objects, queue, wait, self.work.name) if wait else ()
        return Enqueued(result, self.work(queue.handle, externals, waits, held))

    def _is_still(self, queue: QueueFacts) -> bool:
        """Whether memory that the buffers of the earlier call do not keep is what it was."""
        return all(
            buffer.is_kept or self.objects.is_still(buffer.handle, buffer.kind, queue)
            for buffers in self.held for buffer in buffers
        )

    def _is_alike(self, given: Sequence[Any], inputs: int, queue: QueueFacts) -> bool:
        """Whether a call with `given` is right, and differs from the earlier one by its addresses only."""
        places: list[MemoryPart] = []
        for one, other in zip(given, self.given, strict=True):
            if type(one) is not OpenClBuffer or one.kind != other.kind or one.shape != other.shape:
                return False
            if one.dtype != other.dtype or (one.context and one.context != queue.context):
                return False
            place = one.place
            try:
                if not one.is_kept and one.bytes:
                    self.objects.check_pointer(one.handle, one.kind, one.bytes, queue, "")
            except CallError:
                return False
            if any(place.overlaps(each) for each in (places if len(places) >= inputs else ())):
                return False
            places.append(place)
        return True


def wait_list(objects: Objects, queue: QueueFacts, wait: Sequence[Any], name: str) -> list[Handle]:
    """The handles of a call's events. Raises CallError for anything but an event of the queue's context."""
    found: list[Handle] = []
    if not isinstance(wait, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CallError(f"{name}: wait: {type(wait).__name__} given; expected a list of events")
    for number, event in enumerate(wait):
        where = f"{name}: wait {number}"
        handle = handle_of(event)
        if handle is None:
            raise CallError(f"{where}: {type(event).__name__} given; expected an event of OpenCL: pyopencl's, that of "
                            "a call, or a handle")  # fmt: skip
        objects.check_event(handle, queue, where)
        found.append(handle)
    return found
