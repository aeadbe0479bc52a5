"""Recorded work on callers' streams: issued directly, without a point, a queue or a thread of the device.

The work is a whole function on one GPU. Constants stay in place, and intermediate memory belongs to the stream
(`CallerStreams.stream_memory`), so that only the addresses of arguments and results change between calls; graphs for
earlier addresses are kept in `ready`. A single kernel is launched with a separate parameter array. On a stream that is
being captured, the commands become part of the other library's graph, with their dependences and with memory that is
never reused.

Statuses of kernels that may fail are in pinned host memory, to which kernels write only if a check fails. As calls do
not wait, the next call reports the failure.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from motet.runtime.checks import Statuses
from motet.runtime.device import Buffer
from motet.runtime.drivers.common.streams import Handle
from motet.runtime.drivers.cuda.api import CudaError
from motet.runtime.drivers.cuda.caller_streams import CallerStreams
from motet.runtime.drivers.cuda.commands import CudaCommand, CudaCommandBuffer, GraphInstance
from motet.runtime.drivers.cuda.quick_calls import make_launch

_MOST_READY = 256
_MOST_LANES = 16  # branches of a captured graph
_ALIGNMENT = 256  # bytes; of the kernels' scratch after the arena


class DirectWork:
    """`commands` with their last externals: an arena of `arena` bytes, then `parameters`, then `statuses`, if there are
    any, whose words are `told`. Thread-safe."""

    def __init__(
        self, device: CallerStreams, commands: CudaCommandBuffer, arena: int, parameters: Sequence[Buffer],
        statuses: Statuses | None = None,
    ) -> None:
        self.device = device
        self._api = device.api
        # Launches an instance of `ready`, with the device's lock held, and returns the driver's code.
        self.launch_ready = device.api.try_executable_launch
        self._commands = commands
        self._held = parameters
        self._fixed = tuple([buffer.address for buffer in parameters])
        self._statuses = statuses
        self.told: memoryview | None = None
        if statuses is not None:
            slot = device.keep_pinned(statuses.bytes, self)
            self.told = slot.array[: statuses.bytes].data.cast("q")
            self._fixed = (*self._fixed, slot.address)
        self._scratch_at = -(-arena // _ALIGNMENT) * _ALIGNMENT
        self._memory = self._scratch_at + commands.scratch if commands.scratch else arena
        self._is_alone = device.api.count() == 1
        self._single = self._prepare_single()
        self.ready: dict[tuple[int, ...], GraphInstance] = {}  # by the addresses, followed by the stream
        device.note_direct(self)

    def forget(self) -> None:
        """Call with the device's lock held."""
        self.ready.clear()

    def raise_failed(self) -> None:
        """Raises CallError, once, if a check has failed in an earlier call."""
        if self.told is None or self._statuses is None or not any(self.told):
            return
        data = self.told.tobytes()
        self.told[:] = memoryview(bytes(len(data))).cast("q")
        if (failure := self._statuses.failure_of(data)) is not None:
            raise failure

    def __call__(self, addresses: Sequence[int], stream: int, is_captured: bool | None = None) -> None:
        """Run the work once, after the current work of `stream`, a handle: `addresses` are those of the arguments, then
        of the results. `is_captured` tells whether the stream is being captured, if the caller knows. Returns as soon
        as the work is on the stream. Raises DeviceError, KernelFault or DeviceLost if the driver refuses it; later
        failures are raised by the next call."""
        self.raise_failed()
        try:
            if self._api.current_context() == self.device.current.context:
                self._put(addresses, stream, is_captured)
                return
            self.device.check_usable()
            with self.device.current:
                self._put(addresses, stream, is_captured)
        except CudaError as error:
            self.device.check_process()
            raise self.device.failure(error) from error

    def _put(self, addresses: Sequence[int], stream: int, is_captured: bool | None) -> None:
        with self.device.lock:
            if is_captured or (is_captured is None and self._api.is_capturing(stream)):
                with self._api.beside_captures():  # libraries, too, need it to load their code
                    base = self.device.captured_memory(self._memory) if self._memory else 0
                    bases = (*addresses, base, *self._fixed, base + self._scratch_at)
                    self._capture(bases, stream)
                return
            base = self.device.stream_memory(stream, self._memory) if self._memory else 0
            bases = (*addresses, base, *self._fixed, base + self._scratch_at)
            if self.device.checks:
                self._commands.run_checked(bases, stream)
                self.device.check_usable()
                return
            instance = self._commands.instance(bases)
            if instance is not None:
                if len(self.ready) >= _MOST_READY:
                    self.ready.clear()
                if self._is_alone:
                    self.ready[*addresses, stream] = instance
                self._api.executable_launch(instance.handle, stream)
            elif self._single is not None:
                self._single(addresses, stream)
            else:
                self._commands.run_in_order(bases, stream)

    def _capture(self, bases: tuple[int, ...], stream: int) -> None:
        """Put the commands on a stream that is being captured, where a graph cannot be launched, and on streams beside
        it, so that the captured graph has their dependences."""
        marks, events = self.device.marks, list[Handle]()
        lanes = self._commands.lanes(_MOST_LANES)

        def around(command: CudaCommand, lane: Handle, put: Callable[[], None], is_marked: bool) -> Handle | None:
            put()
            if not is_marked:
                return None
            events.append(marks.record(lane))
            return events[-1]

        try:
            streams = [stream, *marks.beside(stream, len(lanes.last))]
            self._commands.run_on(bases, lanes, streams, around, overlaps=True)
        finally:
            marks.give_back(events)

    def _prepare_single(self) -> Callable[[Sequence[int], int], None] | None:
        """The work as one launch with a separate parameter array; None if it is not a single launch."""
        single = self._commands.single()
        if single is None or self._memory:
            return None
        launch, values, moving = single
        count = self._commands.externals - 1 - len(self._fixed)
        words = (ctypes.c_uint64 * len(values))(*values)
        first = ctypes.addressof(words)
        pointers = (ctypes.c_uint64 * len(values))(*range(first, first + 8 * len(values), 8))
        places: list[tuple[int, int, int]] = []
        for place, external, offset in moving:
            if external < count:
                places.append((place, external, offset))
            else:
                words[place] = self._fixed[external - count - 1] + offset
        own = make_launch(
            launch.function, launch.programs, launch.threads, launch.shared, ctypes.addressof(pointers)
        )
        launch_on = self._api.launch
        self._pointers = pointers  # referenced only by the driver's structures

        def put(addresses: Sequence[int], stream: int) -> None:
            for place, index, offset in places:
                words[place] = addresses[index] + offset
            launch_on(own, stream)  # the parameters have been read on return

        return put
