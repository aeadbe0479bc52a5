"""Functions in a context of the caller: their programs, constants and intermediate memory there, and calls on a queue.

A call enqueues its commands after the events that it is given, and returns an event that ends it. Nothing of the
caller's is copied. Intermediate memory belongs to one call at a time: a call takes that of an earlier one that has
ended, or else, of at most four, waits on the device for the oldest.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from motet.errors import DeviceError
from motet.runtime.checks import Statuses
from motet.runtime.drivers.opencl.api import Handle
from motet.runtime.drivers.opencl.context import Context, Memory, MemoryPart
from motet.runtime.drivers.opencl.handles import CallerEvent
from motet.runtime.drivers.opencl.program import OpenClCommands
from motet.runtime.instantiate import Concrete

_MOST_ARENAS = 4
Array = np.ndarray[Any, Any]


class _Lease:
    """The memory of one call at a time, and what that call keeps alive until its `event`, an own reference or 0."""

    def __init__(self, context: Context, arena: int, scratch: int, statuses: Statuses | None) -> None:
        self.arena = context.allocate(arena) if arena else None
        self.scratch = context.allocate(scratch) if scratch else None
        self.statuses = statuses
        self.told = np.zeros(statuses.bytes, np.uint8) if statuses is not None else None
        self.status = context.allocate(statuses.bytes) if statuses is not None else None
        self.event: Handle = 0
        self.held: tuple[object, object] | None = None
        self.copies: dict[int, Memory] = {}  # of arrays of the host, by external

    def copy_of(self, context: Context, external: int, size: int) -> Memory:
        """The memory on the device for an array of the host."""
        found = self.copies.get(external)
        if found is None or found.bytes < size:
            found = self.copies[external] = context.allocate(size)
        return found

    def settle(self) -> None:
        """Give up what a call kept alive, which has ended. Raises CallError, once, if a check has failed in it."""
        self.held = None
        self.raise_failed()

    def raise_failed(self) -> None:
        if self.told is None or self.statuses is None or not self.told.any():
            return
        failure = self.statuses.failure_of(self.told.tobytes())
        self.told[:] = 0
        if failure is not None:
            raise failure


class ExternalWork:
    """`commands` of the function `name` in a caller's `context`, with their externals after arguments and results: an
    arena, `parameters`, and the statuses of commands that may fail, if there are any. `is_kept` tells whether the
    device still keeps the context. Thread-safe."""

    def __init__(
        self, context: Context, commands: OpenClCommands, concrete: Concrete, parameters: Sequence[Memory],
        name: str, is_kept: Callable[[], bool],
    ) -> None:
        self.context = context
        self.name = name
        self.is_kept = is_kept
        self._commands = commands
        self._concrete = concrete
        self._fixed = [memory.place for memory in parameters]
        self._held = parameters
        self._arena = concrete.arena
        self._leases: deque[_Lease] = deque()  # those in use, oldest first
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, _end, context, self._leases)
        self._end.atexit = False

    def __call__(
        self, queue: Handle, places: Sequence[MemoryPart | Array], waits: Sequence[Handle], held: object
    ) -> CallerEvent:
        """Enqueue a call on arguments and results: memory in the context, or arrays of the host, which are copied.
        `held` is kept alive until it has ended. Raises DeviceError if the platform refuses it, CallError for a failed
        check of the call whose memory it takes."""
        api = self.context.api
        own: list[Handle] = []
        with self._lock:
            lease, before = self._take(any(isinstance(place, np.ndarray) for place in places))
            try:
                lease.held = (held, lease.held)
                event = self._enqueue(lease, queue, places, [*waits, *before], own)
                api.flush(queue)
            except BaseException:
                self._recover(lease, [*own, *before])
                raise
            own.remove(event)
            lease.event = event
            self._leases.append(lease)
            api.retain("Event", event)
        for handle in (*own, *before):
            api.release("Event", handle)
        return CallerEvent(api, event, lease.settle)

    # -- commands ---------------------------------------------------------------------------------

    def _enqueue(
        self, lease: _Lease, queue: Handle, places: Sequence[MemoryPart | Array], waits: list[Handle], own: list[Handle]
    ) -> Handle:
        """Enqueue the work with the transfers before and after it; returns the event of its end, the last of `own`."""
        api, context = self.context.api, self.context
        inputs = len(self._concrete.inputs)
        taken: list[MemoryPart] = []
        after: list[tuple[Memory, Array]] = []
        first = list(waits)
        there: dict[int, Memory] = {}  # a destination is an argument and a result
        for number, place in enumerate(places):
            if isinstance(place, MemoryPart):
                taken.append(place)
                continue
            memory = there.get(id(place)) or lease.copy_of(context, number, place.nbytes)
            there[id(place)] = memory
            taken.append(memory.place)
            if number >= inputs:
                after.append((memory, place))
            elif place.nbytes:
                part = memory.place.part(0, place.nbytes)
                own.append(context.transfer(queue, part, place.ctypes.data, waits, write=True))
                first.append(own[-1])
        taken.append(lease.arena.place if lease.arena is not None else context.nothing)
        taken += self._fixed
        if lease.status is not None:
            own.append(context.fill(queue, lease.status.place, 0, waits))
            first.append(own[-1])
            taken.append(lease.status.place)
        last = self._commands.enqueue(queue, taken, lease.scratch, first, own)
        ends = [
            context.transfer(queue, memory.place.part(0, array.nbytes), array.ctypes.data, last, write=False)
            for memory, array in after if array.nbytes
        ]
        if lease.status is not None and lease.told is not None:
            ends.append(context.transfer(queue, lease.status.place, lease.told.ctypes.data, last, write=False))
        own += ends
        ends = ends or last
        if len(ends) != 1 or ends[0] not in own:
            own.append(api.marker(queue, ends))
            return own[-1]
        return ends[0]

    # -- memory -----------------------------------------------------------------------------------

    def _take(self, copies: bool) -> tuple[_Lease, list[Handle]]:
        """Memory for a call, and the events of an earlier one that used it, which the call waits for and releases."""
        api, statuses = self.context.api, self._concrete.statuses
        ended: _Lease | None = None
        while self._leases and api.has_ended(self._leases[0].event):
            ended = self._leases.popleft()
            api.release("Event", ended.event)
            ended.event, ended.held = 0, None
            ended.raise_failed()
        if ended is not None:
            return ended, []
        if len(self._leases) < _MOST_ARENAS or not (self._arena or self._commands.scratch or copies):
            return _Lease(self.context, self._arena, self._commands.scratch, statuses), []
        oldest = self._leases.popleft()
        event, oldest.event = oldest.event, 0
        if copies or statuses is not None:  # the host reads its memory
            try:
                api.wait([event])
            finally:
                api.release("Event", event)
            oldest.raise_failed()
            return oldest, []
        return oldest, [event]

    def _recover(self, lease: _Lease, own: Sequence[Handle]) -> None:
        """After a failure, wait for what was enqueued before it."""
        api = self.context.api
        with contextlib.suppress(DeviceError):  # the failure itself is raised
            api.wait(own)
        lease.held = None
        for handle in own:
            api.release("Event", handle)


def _end(context: Context, leases: deque[_Lease]) -> None:
    """Wait for the calls whose memory is about to be freed."""
    for lease in leases:
        with contextlib.suppress(DeviceError):  # it belongs to the call, which has an event of its own
            context.api.wait([lease.event])
        context.api.release("Event", lease.event)
    leases.clear()
