"""The accelerator as a device: separate memory, which the host can address or has a copy of, and work run by its cores.

The queues' threads wait for the device; only small transfers run in the submitting thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from motet.artifact.schema import Variant
from motet.errors import DeviceError
from motet.runtime.device import Buffer, CommandBuffer, DeviceInfo, Event, Executable, Piece, Work
from motet.runtime.drivers.common.heap import HeapBuffer
from motet.runtime.drivers.common.linked_code import LinkedCode
from motet.runtime.drivers.common.queued import CLOSING, QueuedDevice
from motet.runtime.drivers.riscv.connection import Batch, BatchOutcome, Connection, DeviceLine
from motet.runtime.drivers.riscv.emulator import Emulator, check_version
from motet.runtime.drivers.riscv.errata import FIXED
from motet.runtime.drivers.riscv.faults import error_of
from motet.runtime.drivers.riscv.installing import mailbox, open_protection_address, write
from motet.runtime.drivers.riscv.memory import RiscvBuffer
from motet.runtime.drivers.riscv.options import ARCHITECTURES, RiscvOptions
from motet.runtime.drivers.riscv.program import BatchInstance, Cores, RiscvCommandBuffer, load_riscv
from motet.runtime.drivers.riscv.protocol import COMMAND_TYPE, COPY_CHUNK, STACK, TICKS, Op, Status
from motet.runtime.drivers.riscv.stub import StubLine
from motet.runtime.drivers.riscv.window import MemoryWindow
from motet.runtime.timeline import Point

FAMILY = "riscv"
QUEUES = 2
_ALIGNMENT = 64  # of each core's memory
_AT_ONCE = 64 << 10  # bytes that are copied in less time than waking another thread takes
_GAP = 4096  # bytes between the cores' memory and other memory


class RiscvDevice(QueuedDevice[RiscvBuffer, LinkedCode, RiscvCommandBuffer]):
    """See `motet.runtime.device.Device`. `line` is a started device with the cores that `options` describe; `errata`
    marks an emulator with defects that code must avoid."""

    def __init__(
        self, info: DeviceInfo, options: RiscvOptions, line: DeviceLine, connection: Connection,
        errata: bool = False,
    ) -> None:
        super().__init__(info, QUEUES, None if options.timeout else CLOSING)
        self.options = options
        self._line = line
        self._errata = errata
        self._connection = connection
        self._memory = connection.memory
        self._stride = STACK
        self._private = self._cores_memory()
        weakref.finalize(self, line.stop)

    @property
    def bytes_used(self) -> int:
        """Allocated bytes of the heap."""
        return self._memory.heap.used

    @property
    def emulator(self) -> Emulator | None:
        """The emulator process, if there is one."""
        return self._line if isinstance(self._line, Emulator) else None

    # -- memory ----------------------------------------------------------------------------------

    def _allocate(self, size: int) -> RiscvBuffer:
        return RiscvBuffer(self._memory, self._memory.heap, size)

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        own = self._own(buffer)
        return own.lasting_array() if self._memory.shared else None

    def _bytes(self, buffer: RiscvBuffer) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return buffer.array

    def _send(self, part: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        self._memory.send(part)

    def _fetch(self, part: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        self._memory.fetch(part)

    def _start(
        self, kind: str, size: int, work: Callable[[], None], waits: Sequence[Point], queue: int
    ) -> Point:
        """Queue a transfer of `size` bytes; a small one runs immediately if it does not have to wait."""

        def checked() -> None:
            self._connection.check()
            work()

        lane, timed = self._queues[queue], self._timed(kind, size, checked, queue)
        return lane.run(timed, waits) if size <= _AT_ONCE else lane.submit(timed, waits)

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        if variant.family != FAMILY:
            return f"for {variant.family} devices"
        if (needed := variant.triple.split("-")[0]) != "riscv64":
            return f"for {needed}"
        missing = [feature for feature in variant.features if feature not in self.options.features]
        if not missing:
            return None
        lack = f"needs {', '.join(missing)}, which its cores ({self.options.arch}) lack"
        return f"{lack}; open it with arch={variant.target}" if variant.target in ARCHITECTURES else lack

    def _load(self, objects: Sequence[bytes], names: Sequence[str]) -> LinkedCode:
        return load_riscv(self._memory, objects, names, self._place, self._errata)

    def _place(self, code: HeapBuffer, content: bytes) -> None:
        """Let the device copy code to its place, as only the device can invalidate its translations of old code."""
        source = RiscvBuffer(self._memory, self._memory.heap, len(content))
        write(self._memory, source.address, content)
        order = RiscvBuffer(self._memory, self._memory.control, COMMAND_TYPE.itemsize + 24)
        table = order.address + COMMAND_TYPE.itemsize
        command = np.zeros(1, COMMAND_TYPE)
        command["op"], command["buffers"] = Op.LOAD, table
        command["tasks"] = command["parts"] = max(1, -(-len(content) // COPY_CHUNK))
        command["grain"], command["bytes"] = 1, len(content)
        command["protection"] = open_protection_address()
        order.array[: command.nbytes] = command.view(np.uint8)
        order.array[command.nbytes :].view(np.uint64)[:] = source.address, code.address, 0
        self._memory.send(order.array)
        private = self._private.address + _GAP
        outcome = self._connection.run(
            Batch(order.address, 1, table + 16, private, self._stride), self._connection.aborts
        )
        if outcome.status != Status.OK:
            raise DeviceError(f"device {self.info.uri}: load: the device answered {outcome.status.name.lower()}")

    def _record(
        self, executable: LinkedCode, work: Sequence[Work], externals: int, scratch: int
    ) -> RiscvCommandBuffer:
        return RiscvCommandBuffer(
            self._memory, executable, work, externals, self._cores(scratch), self.options.guard
        )

    def _cores(self, scratch: int) -> Cores:
        """A stack and `scratch` bytes for each core. One batch runs at a time: all share it."""
        stride = -(-(STACK + scratch) // _ALIGNMENT) * _ALIGNMENT
        if stride > self._stride:
            self._stride = stride
            self._private = self._cores_memory()
        return Cores(self.options.harts, self._private, self._stride)

    def _cores_memory(self) -> RiscvBuffer:
        """`_stride` bytes for each core, between two gaps that guards protect."""
        return RiscvBuffer(self._memory, self._memory.heap, self.options.harts * self._stride + 2 * _GAP)

    def _submit(
        self, work: RiscvCommandBuffer, buffers: Sequence[RiscvBuffer], waits: Sequence[Point], queue: int
    ) -> Point:
        return self._queues[queue].submit(partial(self._run, work, buffers, queue, self._connection.aborts), waits)

    def _run(self, work: RiscvCommandBuffer, buffers: Sequence[RiscvBuffer], queue: int, aborts: int) -> None:
        """Run `work`, which was submitted after `aborts` calls of `abort`."""
        self._connection.check()
        if not work.work:
            return
        instance = work.take()
        instance.prepare(work, [buffer.address for buffer in buffers], self._profiling)
        outcome = self._connection.run(
            Batch(instance.memory.address, len(work.work), instance.ready, work.cores.private.address + _GAP,
                  work.cores.stride),
            aborts,
        )
        error = error_of(self.info.uri, work, outcome, self.options.timeout)
        if error is None and self._profiling:
            self._note(work, instance, outcome, queue)
        work.give_back(instance)
        if error is not None:
            raise error

    def _note(self, work: RiscvCommandBuffer, instance: BatchInstance, outcome: BatchOutcome, queue: int) -> None:
        """The events of a batch: the device's clock is aligned with ours at the end of the batch."""

        def here(ticks: int) -> float:
            return outcome.heard - (outcome.end - ticks) / TICKS

        instance.fetch()
        found = instance.pieces()
        for place in work.places:
            item, command = work.work[place], instance.commands[place]
            pieces = tuple(Piece(hart, here(begin), here(end)) for hart, begin, end in found[place])
            begin = min((piece.begin for piece in pieces), default=here(int(command["begin"])))
            end = max((piece.end for piece in pieces), default=here(int(command["end"])))
            size = item.references[0].bytes if item.op == "copy" else 0
            retired = int(command["instructions"])
            self._events.append(Event(
                item.kernel or item.op, item.op, queue, begin, end, size, retired, pieces, item.source
            ))

    # -- timing and lifetime ---------------------------------------------------------------------

    def _end_work(self) -> None:
        self._connection.abort()
        super()._end_work()

    def abandon(self) -> None:
        """Give the device up: waiting threads get DeviceLost, and an emulator ends."""
        self._connection.lose("it was given up")
        self._line.stop()

    def close(self) -> None:
        super().close()
        self._line.stop()

    # -- checks ----------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        super()._check_usable()
        self._connection.check()

    def _is_own_buffer(self, buffer: Buffer) -> TypeGuard[RiscvBuffer]:
        return isinstance(buffer, RiscvBuffer) and buffer.memory is self._memory

    def _is_own_code(self, executable: Executable) -> TypeGuard[LinkedCode]:
        return isinstance(executable, LinkedCode) and executable.code.heap is self._memory.code

    def _is_own_work(self, work: CommandBuffer) -> TypeGuard[RiscvCommandBuffer]:
        return isinstance(work, RiscvCommandBuffer) and work.cores.private.memory is self._memory


def open_emulator(info: DeviceInfo, options: RiscvOptions) -> RiscvDevice:
    """Start an emulator. Raises DeviceError if it is not installed, too old, or does not start."""
    version = check_version(info.uri)
    emulator = Emulator(info.uri, options)
    connection = Connection(emulator.memory, emulator, options)
    emulator.start(connection.heard, connection.lose)
    return _checked(info, options, emulator, connection, errata=version < FIXED)


def open_window(info: DeviceInfo, options: RiscvOptions) -> RiscvDevice:
    """Open a device that is running already. Raises DeviceError if its files cannot be opened or its firmware is not
    found."""
    window = MemoryWindow(info.uri, options)
    window.start()
    return _checked(info, options, window, Connection(window.memory, window, options))


def open_stub(info: DeviceInfo, options: RiscvOptions) -> RiscvDevice:
    """Open a device behind a GDB stub. Raises DeviceError if it cannot be reached or its firmware is not found."""
    stub = StubLine(info.uri, options)
    connection = Connection(stub.memory, stub, options)
    stub.start(connection.lose)
    return _checked(info, options, stub, connection)


def _checked(
    info: DeviceInfo, options: RiscvOptions, line: DeviceLine, connection: Connection, errata: bool = False
) -> RiscvDevice:
    """The device, after a check that it has the properties that its options state."""
    box = mailbox(connection.memory)
    harts, vector_bits = int(box["harts"][0]), 8 * int(box["vector_bytes"][0])
    if harts != options.harts or vector_bits < options.vector_bits:
        line.stop()
        raise DeviceError(
            f"device {info.uri}: {harts} harts with vectors of {vector_bits} bits; expected harts={options.harts} and "
            f"arch={options.arch}"
        )
    return RiscvDevice(info, options, line, connection, errata)
