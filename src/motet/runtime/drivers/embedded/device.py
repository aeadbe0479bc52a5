"""An embedded device: memory that only its transport reaches, and one core that runs batches of commands.

The queue's thread waits for the device; transfers run there or, if they need not wait, in the caller's thread.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from motet.artifact.schema import Variant
from motet.errors import DeviceError, DeviceLost, OutOfMemoryError
from motet.runtime.device import Buffer, CommandBuffer, DeviceInfo, Event, Executable, Work
from motet.runtime.drivers.common.base import Array
from motet.runtime.drivers.common.heap import Heap
from motet.runtime.drivers.common.link import LinkLost
from motet.runtime.drivers.common.linked_code import LinkedCode
from motet.runtime.drivers.common.queued import CLOSING, QueuedDevice
from motet.runtime.drivers.common.recording import bytes_of
from motet.runtime.drivers.embedded.faults import error_of
from motet.runtime.drivers.embedded.image import AgentImage
from motet.runtime.drivers.embedded.machines import FEATURES
from motet.runtime.drivers.embedded.options import FAMILY, EmbeddedOptions
from motet.runtime.drivers.embedded.program import (
    EmbeddedBuffer,
    EmbeddedWork,
    link_objects,
    one_command,
)
from motet.runtime.drivers.embedded.protocol import COMMAND_TYPE, MAILBOX_TYPE, AgentOp, AgentStatus
from motet.runtime.drivers.embedded.transport import Transport
from motet.runtime.timeline import Point

_CONTROL = 256  # bytes for one copy or fill


class EmbeddedDevice(QueuedDevice[EmbeddedBuffer, LinkedCode, EmbeddedWork]):
    """See `motet.runtime.device.Device`. `stop` ends what was started with the device; `words` tells how it ended."""

    def __init__(
        self, info: DeviceInfo, options: EmbeddedOptions, image: AgentImage, transport: Transport,
        stop: Callable[[], None], words: Callable[[], str],
    ) -> None:
        super().__init__(info, 1, None if options.timeout else CLOSING)
        self.options = options
        self._image = image
        self._transport = transport
        self._words = words
        self._lock = threading.RLock()  # held while the transport is used
        self._lost: DeviceLost | None = None
        self._owner = os.getpid()
        self._aborts = 0  # work that was submitted before the last abort neither starts nor goes on
        self._heap = heap_of(image, options.memory, info.uri)
        self._control = self._allocate(_CONTROL)
        self._scratch = self._allocate(0)
        self._end = weakref.finalize(self, _end, transport, stop, self._owner)

    @property
    def bytes_used(self) -> int:
        """Allocated bytes."""
        return self._heap.used

    # -- memory ----------------------------------------------------------------------------------

    def _allocate(self, size: int) -> EmbeddedBuffer:
        try:
            return EmbeddedBuffer(self._heap, size)
        except OutOfMemoryError:
            raise self._no_memory(size) from None

    def _no_memory(self, size: int) -> OutOfMemoryError:
        total, used = self._heap.bytes, self._heap.used
        return OutOfMemoryError(size, f"{self.info.uri}: {used:,} of {total:,} bytes of its memory are in use")

    def _bytes(self, buffer: EmbeddedBuffer) -> np.ndarray[Any, np.dtype[np.uint8]]:
        raise NotImplementedError  # the host cannot address the memory; transfers use the transport

    def _write(
        self, target: EmbeddedBuffer, source: Array, offset: int, waits: Sequence[Point], queue: int
    ) -> Point:
        def work() -> None:
            self._reach(lambda: self._transport.write(target.address + offset, bytes_of(source).tobytes()))

        return self._start("write", source.nbytes, work, waits, queue)

    def _read(self, source: EmbeddedBuffer, target: Array, offset: int, waits: Sequence[Point], queue: int) -> Point:
        def work() -> None:
            data = self._reach(lambda: self._transport.read(source.address + offset, target.nbytes))
            bytes_of(target)[...] = np.frombuffer(data, np.uint8)

        return self._start("read", target.nbytes, work, waits, queue)

    def _copy(self, source: EmbeddedBuffer, target: EmbeddedBuffer, waits: Sequence[Point], queue: int) -> Point:
        places = [source.address, target.address]
        return self._start(
            "copy", source.bytes, lambda: self._run_one(AgentOp.COPY, places, source.bytes, target), waits, queue
        )

    def _fill(self, target: EmbeddedBuffer, byte: int, waits: Sequence[Point], queue: int) -> Point:
        return self._start(
            "fill", target.bytes, lambda: self._run_one(AgentOp.FILL, [target.address], target.bytes, target, byte),
            waits, queue,
        )

    def _run_one(self, op: AgentOp, places: list[int], size: int, kept: EmbeddedBuffer, value: int = 0) -> None:
        """Let the device copy or fill; `kept` must live until it has."""
        place = self._control.address
        with self._lock:
            order = one_command(op, place, self._image.pointer_bytes, places, size, value)
            self._reach(lambda: self._transport.write(place, order))
            box = self._run_batch(place, 1, self._aborts)
        if box["status"] != AgentStatus.OK:
            raise DeviceError(f"device {self.info.uri}: {op.name.lower()}: {AgentStatus(box['status']).name.lower()}")
        del kept

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        if variant.family != FAMILY:
            return f"for {variant.family} devices"
        wanted, own = variant.target, self.options.processor
        architecture = variant.triple.split("-")[0]
        same = architecture == self._image.machine or (architecture[:5] == "thumb" == self._image.machine)
        lacking = sorted(set(variant.features) - FEATURES[own])
        if same and lacking:
            return f"needs {', '.join(lacking)}, which it ({own}) lacks; compile with {FAMILY}{{cpu={own}}}"
        if same and (architecture[:5] != "thumb" or FEATURES[own] >= FEATURES.get(wanted, frozenset())):
            return None
        return f"for {wanted}, but it has a {own}; compile with {FAMILY}{{cpu={own}}}"

    def _load(self, objects: Sequence[bytes], names: Sequence[str]) -> LinkedCode:
        try:
            executable, content = link_objects(self._heap, self._image, objects, names, self.info.uri)
        except OutOfMemoryError as error:
            raise self._no_memory(error.bytes) from None
        self._reach(lambda: self._transport.write(executable.code.address, content))
        return executable

    def _record(
        self, executable: LinkedCode, work: Sequence[Work], externals: int, scratch: int
    ) -> EmbeddedWork:
        if scratch > self._scratch.bytes:
            self._scratch = self._allocate(scratch)
        try:
            return EmbeddedWork(
                self.info.uri, executable, work, externals, self._scratch, self._heap, self._image.pointer_bytes
            )
        except OutOfMemoryError as error:
            raise self._no_memory(error.bytes) from None

    def _submit(
        self, work: EmbeddedWork, buffers: Sequence[EmbeddedBuffer], waits: Sequence[Point], queue: int
    ) -> Point:
        return self._queues[queue].submit(partial(self._run, work, buffers, queue, self._aborts), waits)

    def _run(self, work: EmbeddedWork, buffers: Sequence[EmbeddedBuffer], queue: int, aborts: int) -> None:
        """Run `work`, which was submitted after `aborts` calls of `abort`."""
        if not work.work:
            return
        with self._lock:
            content = work.content([buffer.address for buffer in buffers])
            self._reach(lambda: self._transport.write(work.place.address, content))
            box = self._run_batch(work.place.address, len(work.work), aborts)
            ended = time.perf_counter()
            item = work.work[min(box["command"], len(work.work) - 1)]
            error = error_of(
                self.info.uri, self._image.machine, work.executable, item.described, box, self.options.timeout
            )
            if error is not None:
                raise error
            if self._profiling:
                self._note(work, ended, queue)

    def _run_batch(self, commands: int, count: int, aborts: int) -> dict[str, int]:
        """Run commands in memory; the fields of the mailbox after their end."""
        limit, answer, counting = self.options.timeout, self.options.answer, self.options.count
        box = np.zeros((), MAILBOX_TYPE)
        box["digest"] = int.from_bytes(self._reach(lambda: self._transport.read(self._mailbox, 4)), "little")
        box["commands"], box["count"] = commands, count
        # The device ends a launch at the limit itself, unless its clock counts instructions.
        box["limit"] = 0 if counting else round(limit * self._image.clock)
        with self._lock:
            if self._aborts != aborts:
                raise self._aborted()
            self._reach(lambda: self._transport.write(self._mailbox, box.tobytes()))
            whole = limit * count + (0 if counting else answer) if limit else 1e9
            late = not self._reach(lambda: self._transport.run(whole, lambda: self._aborts != aborts))
            if late and not self._reach(lambda: self._transport.finish(answer)):
                raise self._lose(f"it does not answer for {answer:g} s (answer=SECONDS)")
            after = np.frombuffer(
                self._reach(lambda: self._transport.read(self._mailbox, MAILBOX_TYPE.itemsize)), MAILBOX_TYPE
            )[0]
        fields = {name: int(after[name]) for name in MAILBOX_TYPE.names or ()}
        if fields["status"] in (AgentStatus.PANIC, AgentStatus.RUNNING, AgentStatus.NONE):
            raise self._lose(f"its agent failed: cause {fields['cause']:#x} at pc {fields['pc']:#x}")
        if late and fields["status"] == AgentStatus.ABORTED and self._aborts == aborts:
            fields["status"] = int(AgentStatus.TIMEOUT)
        return fields

    def _note(self, work: EmbeddedWork, ended: float, queue: int) -> None:
        """The events of a batch, which ended at `ended`: the device's clock gives their lengths."""
        data = self._reach(
            lambda: self._transport.read(work.place.address, len(work.work) * COMMAND_TYPE.itemsize)
        )
        commands = np.frombuffer(data, COMMAND_TYPE)
        begin = ended - int(commands["ticks"].sum()) / self._image.clock
        for item, command in zip(work.work, commands, strict=True):
            ticks = int(command["ticks"])
            end = begin + ticks / self._image.clock
            size = item.references[0].bytes if item.op == "copy" else 0
            instructions = self._instructions(ticks, int(command["instructions"]))
            self._events.append(Event(
                item.kernel or item.op, item.op, queue, begin, end, size, instructions, source=item.source
            ))
            begin = end

    def _instructions(self, ticks: int, counted: int) -> int:
        """The instructions of a command; 0 if they are not counted. An emulator without a counter takes 2**shift ns for
        each."""
        if not self.options.count:
            return 0
        return counted or round(ticks * 1e9 / self._image.clock / (1 << self.options.machine.shift))

    @property
    def _mailbox(self) -> int:
        return self._image.symbols["motet_mailbox"]

    # -- lifetime --------------------------------------------------------------------------------

    def _end_work(self) -> None:
        self._aborts += 1
        super()._end_work()

    def close(self) -> None:
        super().close()
        self._end()

    def _reach(self, use: Callable[[], Any]) -> Any:
        """The result of `use`, which uses the transport. A link that fails is a lost device."""
        with self._lock:
            if self._lost is not None:
                raise self._lost
            try:
                return use()
            except LinkLost as error:
                raise self._lose(": ".join(filter(None, (str(error), self._words())))) from None

    def _lose(self, reason: str) -> DeviceLost:
        self._lost = DeviceLost(self.info.uri, reason)
        self._end()
        return self._lost

    # -- checks ----------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        super()._check_usable()
        if self._lost is not None:
            raise self._lost
        if os.getpid() != self._owner:
            raise DeviceError(f"device {self.info.uri}: opened before a fork, in the parent; open it in this process")

    def _is_own_buffer(self, buffer: Buffer) -> TypeGuard[EmbeddedBuffer]:
        return isinstance(buffer, EmbeddedBuffer) and buffer.heap is self._heap

    def _is_own_code(self, executable: Executable) -> TypeGuard[LinkedCode]:
        return isinstance(executable, LinkedCode) and executable.code.heap is self._heap

    def _is_own_work(self, work: CommandBuffer) -> TypeGuard[EmbeddedWork]:
        return isinstance(work, EmbeddedWork) and work.scratch.heap is self._heap


def heap_of(image: AgentImage, most: int, device: str) -> Heap:
    """The memory for programs and data; `most` limits its bytes, 0 does not."""
    ranges: list[tuple[int, int]] = []
    left = most or 1 << 62
    for begin, end in image.heap:
        size = min(end - begin, left)
        left -= size
        if size:
            ranges.append((begin, begin + size))
    return Heap(ranges, device)


def _end(transport: Transport, stop: Callable[[], None], owner: int) -> None:
    """End the connection, unless this process is a fork of its owner."""
    if os.getpid() == owner:
        transport.close()
        stop()
