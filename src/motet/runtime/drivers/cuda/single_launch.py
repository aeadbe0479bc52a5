"""Recorded work on streams of others: put there as it is called, without a point, a queue or a thread of the device's.

The work is a function's, all of it on one GPU. Its constants stay where they are, what it works in belongs to the
stream (`CallerStreams.stream_memory`), so that only the addresses of arguments and results change from call to call;
the graphs for those that came before are at hand in `ready`. A single kernel has parameters of its own to be launched
with. On a stream that is captured the commands become part of the other library's graph, with memory for good.

Statuses of kernels that may fail are pinned memory of the host, which kernels write to only where a check fails: the
first call after that tells of it, as nothing is waited for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from motet.runtime.checks import Statuses
from motet.runtime.device import Buffer
from motet.runtime.drivers.cuda.api import CudaError
from motet.runtime.drivers.cuda.caller_streams import CallerStreams
from motet.runtime.drivers.cuda.commands import CudaCommandBuffer, GraphInstance
from motet.runtime.drivers.cuda.quick_calls import make_launch

_MOST_READY = 256
_ALIGNMENT = 256  # of the kernels' scratch behind the arena, bytes


class DirectWork:
    """`commands` with their last externals: an arena of `arena` bytes, then `parameters`, then `statuses`, where there
    are any. `told` are the words of the latter. Safe to use from several threads."""

    def __init__(
        self, device: CallerStreams, commands: CudaCommandBuffer, arena: int, parameters: Sequence[Buffer],
        statuses: Statuses | None = None,
    ) -> None:
        self.device = device
        self._api = device.api
        # Launches what `ready` has, with the device's lock held, and gives the code that the call ends with.
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
        self.ready: dict[tuple[int, ...], GraphInstance] = {}  # by the addresses, and the stream behind them
        device.note_direct(self)

    def forget(self) -> None:
        """With the device's lock held."""
        self.ready.clear()

    def raise_failed(self) -> None:
        """Raises CallError where a check has failed in a call before, once."""
        if self.told is None or self._statuses is None or not any(self.told):
            return
        data = self.told.tobytes()
        self.told[:] = memoryview(bytes(len(data))).cast("q")
        if (failure := self._statuses.failure_of(data)) is not None:
            raise failure

    def __call__(self, addresses: Sequence[int], stream: int, is_captured: bool | None = None) -> None:
        """Runs it once, behind what is on `stream`, a handle: `addresses` are those of the arguments, then of the
        results. `is_captured` says whether the stream is being captured, where the caller knows. Returns as soon as it
        is on the stream. Raises DeviceError, KernelFault or DeviceLost for what the driver refuses now; what goes wrong
        later, the next call tells."""
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
                with self._api.beside_captures():  # which libraries need too, to load their code
                    base = self.device.captured_memory(self._memory) if self._memory else 0
                    bases = (*addresses, base, *self._fixed, base + self._scratch_at)
                    self._commands.run_in_order(bases, stream)  # a graph cannot be put into another one
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

    def _prepare_single(self) -> Callable[[Sequence[int], int], None] | None:
        """The work as one launch, with an array of parameters of its own; None where it is not that."""
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
        self._pointers = pointers  # which only the driver knows of

        def put(addresses: Sequence[int], stream: int) -> None:
            for place, index, offset in places:
                words[place] = addresses[index] + offset
            launch_on(own, stream)  # which has read the parameters when it returns

        return put
