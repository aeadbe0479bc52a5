"""A device with the checks of the contract: arguments, ownership, queues, and whether it is open.

A driver's device inherits `BaseDevice` and implements the methods that begin with an underscore, whose arguments are
checked, and whose buffers, code and work are this device's. The contract is `motet.runtime.device.Device`; a device may
also implement it without this base.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeGuard, TypeVar

import numpy as np

from motet.artifact.schema import Variant
from motet.errors import DeviceError
from motet.runtime.device import Buffer, CommandBuffer, DeviceInfo, Event, Executable, Work
from motet.runtime.drivers.common.recording import (
    check_buffers,
    check_byte,
    check_copy,
    check_open,
    check_queue,
    check_scratch,
    check_size,
    check_transfer,
    foreign_buffer,
    foreign_executable,
    foreign_work,
)
from motet.runtime.timeline import Point

Array = np.ndarray[Any, Any]


class RecordedWork(Protocol):
    """A device's command buffer; `needed` is the required bytes of each external."""

    @property
    def externals(self) -> int: ...

    @property
    def needed(self) -> Sequence[int]: ...


BufferT = TypeVar("BufferT", bound=Buffer)
CodeT = TypeVar("CodeT", bound=Executable)
WorkT = TypeVar("WorkT", bound=RecordedWork)


class BaseDevice(ABC, Generic[BufferT, CodeT, WorkT]):
    """See `motet.runtime.device.Device`. `queues` is their number. The type parameters are the device's buffers,
    executables and command buffers."""

    def __init__(self, info: DeviceInfo, queues: int) -> None:
        self.info = info
        self._count = queues
        self._closed = False

    @property
    def queues(self) -> int:
        return self._count

    # -- memory ----------------------------------------------------------------------------------

    def allocate(self, size: int) -> BufferT:
        self._check_usable()
        check_size(self.info.uri, size)
        return self._allocate(size)

    def adopt(self, array: Array) -> BufferT | None:
        """None; overridden by devices that work on host memory."""
        return None

    def view(self, buffer: Buffer) -> Array | None:
        """None; overridden by devices whose memory the host can address."""
        self._own(buffer)
        return None

    def write(
        self, target: Buffer, source: Array, offset: int = 0, waits: Sequence[Point] = (), queue: int = 0
    ) -> Point:
        own = self._writable(target)
        check_transfer(self.info.uri, "write", own, source, offset, writes_array=False)
        self._check_queue(queue)
        return self._write(own, source, offset, waits, queue)

    def read(
        self, source: Buffer, target: Array, offset: int = 0, waits: Sequence[Point] = (), queue: int = 0
    ) -> Point:
        own = self._own(source)
        check_transfer(self.info.uri, "read", own, target, offset, writes_array=True)
        self._check_queue(queue)
        return self._read(own, target, offset, waits, queue)

    def copy(self, source: Buffer, target: Buffer, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        origin, own = self._readable(source), self._writable(target)
        check_copy(self.info.uri, origin, own)
        self._check_queue(queue)
        return self._copy(origin, own, waits, queue)

    def fill(self, target: Buffer, byte: int, waits: Sequence[Point] = (), queue: int = 0) -> Point:
        own = self._writable(target)
        check_byte(self.info.uri, byte)
        self._check_queue(queue)
        return self._fill(own, byte, waits, queue)

    # -- code and work ---------------------------------------------------------------------------

    @abstractmethod
    def obstacle(self, variant: Variant) -> str | None:
        """See `motet.runtime.device.Device`."""

    def load(self, objects: Sequence[bytes], names: Sequence[str]) -> CodeT:
        self._check_usable()
        return self._load(objects, names)

    def record(self, executable: Executable, work: Sequence[Work], externals: int, scratch: int) -> WorkT:
        self._check_usable()
        if not self._is_own_code(executable):
            raise foreign_executable(self.info.uri)
        check_scratch(self.info.uri, scratch)
        return self._record(executable, work, externals, scratch)

    def submit(
        self, work: CommandBuffer, buffers: Sequence[Buffer], waits: Sequence[Point] = (), queue: int = 0
    ) -> Point:
        if not self._is_own_work(work):
            raise foreign_work(self.info.uri)
        own = [self._own(buffer) for buffer in buffers]
        check_buffers(self.info.uri, own, work.needed)
        self._check_queue(queue)
        return self._submit(work, own, waits, queue)

    # -- lifetime --------------------------------------------------------------------------------

    @abstractmethod
    def abort(self) -> None:
        """See `motet.runtime.device.Device`."""

    @abstractmethod
    def profile(self, on: bool) -> list[Event]:
        """See `motet.runtime.device.Device`."""

    @abstractmethod
    def close(self) -> None:
        """See `motet.runtime.device.Device`."""

    # -- methods for devices to implement --------------------------------------------------------

    @abstractmethod
    def _is_own_buffer(self, buffer: Buffer) -> TypeGuard[BufferT]: ...

    @abstractmethod
    def _is_own_code(self, executable: Executable) -> TypeGuard[CodeT]: ...

    @abstractmethod
    def _is_own_work(self, work: CommandBuffer) -> TypeGuard[WorkT]: ...

    @abstractmethod
    def _allocate(self, size: int) -> BufferT: ...

    @abstractmethod
    def _write(self, target: BufferT, source: Array, offset: int, waits: Sequence[Point], queue: int) -> Point: ...

    @abstractmethod
    def _read(self, source: BufferT, target: Array, offset: int, waits: Sequence[Point], queue: int) -> Point: ...

    @abstractmethod
    def _copy(self, source: BufferT, target: BufferT, waits: Sequence[Point], queue: int) -> Point: ...

    @abstractmethod
    def _fill(self, target: BufferT, byte: int, waits: Sequence[Point], queue: int) -> Point: ...

    @abstractmethod
    def _load(self, objects: Sequence[bytes], names: Sequence[str]) -> CodeT: ...

    @abstractmethod
    def _record(self, executable: CodeT, work: Sequence[Work], externals: int, scratch: int) -> WorkT: ...

    @abstractmethod
    def _submit(self, work: WorkT, buffers: Sequence[BufferT], waits: Sequence[Point], queue: int) -> Point: ...

    # -- checks ----------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        """Raises DeviceError if the device is closed. Devices add further conditions, such as being lost."""
        check_open(self.info.uri, self._closed)

    def _check_queue(self, queue: int) -> None:
        self._check_usable()
        check_queue(self.info.uri, queue, self._count)

    def _own(self, buffer: Buffer) -> BufferT:
        """`buffer` as a buffer of this device. Raises DeviceError if it is another device's."""
        if not self._is_own_buffer(buffer):
            raise foreign_buffer(self.info.uri)
        return buffer

    def _readable(self, buffer: Buffer) -> BufferT:
        """A buffer that `copy` may read; overridden by devices that read those of others."""
        return self._own(buffer)

    def _writable(self, buffer: Buffer) -> BufferT:
        """A buffer that may be written; overridden by devices that adopt read-only arrays."""
        return self._own(buffer)

    def _aborted(self) -> DeviceError:
        """The error that poisons work ended by `abort`."""
        return DeviceError(f"device {self.info.uri}: aborted")
