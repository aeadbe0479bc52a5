"""Checks objects that a caller gives as handles: queues, events, buffers and unified shared memory.

A handle is the address of a structure whose first word points to its platform's functions. OpenCL's loader follows that
word without a check, so that a released or invented handle would end the process. The word is therefore read first, in
a way that cannot fault. Freed memory has another word there, unless another object has taken its place since. Sources:
https://github.com/KhronosGroup/OpenCL-ICD-Loader, cl_intel_unified_shared_memory.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Sequence
from ctypes import c_int, c_size_t, c_uint, c_void_p
from typing import Any, NamedTuple

from motet.errors import CallError
from motet.runtime.drivers.opencl.api import (
    DEVICE_NAME,
    DEVICE_PLATFORM,
    EVENT_CONTEXT,
    MEMORY_BUFFER,
    MEMORY_BYTES,
    MEMORY_CONTEXT,
    MEMORY_KIND,
    QUEUE_CONTEXT,
    QUEUE_DEVICE,
    USM_BASE,
    USM_BYTES,
    USM_KIND,
    Handle,
    OpenClApi,
    OpenClError,
    check,
    list_of,
    load_api,
)

USM_KINDS = {0x4197: "usm_host", 0x4198: "usm_device", 0x4199: "usm_shared"}
Place = tuple[str, Handle, int, int]  # a `context.MemoryPart`
KINDS = ("cl_mem", *USM_KINDS.values(), "svm", "host")


class QueueFacts(NamedTuple):
    """A caller's queue."""

    handle: Handle
    context: Handle
    device: Handle


class Usm:
    """A platform's unified shared memory."""

    def __init__(self, api: OpenClApi, platform: Handle) -> None:
        own, events = (c_void_p, c_size_t, c_uint, c_void_p), (c_uint, c_void_p, c_void_p)
        info = api.extension(
            platform, "clGetMemAllocInfoINTEL", c_int, c_void_p, c_void_p, c_uint, c_size_t, c_void_p, c_void_p
        )
        self._api = api
        self.is_there = info is not None
        self._info: Any = info
        self._kind_of_svm: str | None = None
        self._set: Any = api.extension(platform, "clSetKernelArgMemPointerINTEL", c_int, c_void_p, c_uint, c_void_p)
        self._copy: Any = api.extension(
            platform, "clEnqueueMemcpyINTEL", c_int, c_void_p, c_uint, c_void_p, c_void_p, c_size_t, *events
        )
        self._allocate = {
            kind: api.extension(platform, f"cl{kind[4:].title()}MemAllocINTEL", c_void_p, c_void_p, *parameters)
            for kind, parameters in (
                ("usm_host", (c_void_p, *own[1:])), ("usm_device", (c_void_p, *own)), ("usm_shared", (c_void_p, *own))
            )
        }
        self._free: Any = api.extension(platform, "clMemBlockingFreeINTEL", c_int, c_void_p, c_void_p)

    def kind(self, context: Handle, address: int) -> str:
        """The kind of memory at an address, empty if it is none of this context."""
        return USM_KINDS.get(self._about(context, address, USM_KIND, 4), "")

    def kind_of_svm(self, context: Handle) -> str:
        """What `kind` says of shared virtual memory; some platforms take it for unified shared memory."""
        if self._kind_of_svm is None:
            address = self._api.allocate(context, 64)
            self._kind_of_svm = self.kind(context, address)
            self._api.free(context, address)
        return self._kind_of_svm

    def range(self, context: Handle, address: int) -> tuple[int, int]:
        """The first address and the bytes of the memory at an address."""
        return self._about(context, address, USM_BASE, 8), self._about(context, address, USM_BYTES, 8)

    def _about(self, context: Handle, address: int, what: int, size: int) -> int:
        value = ctypes.c_uint64()
        check("clGetMemAllocInfoINTEL", self._info(context, address, what, size, ctypes.byref(value), None))
        return value.value

    def set_pointer(self, kernel: Handle, index: int, address: int) -> None:
        check("clSetKernelArgMemPointerINTEL", self._set(kernel, index, address))

    def copy(self, queue: Handle, target: int, source: int, size: int, waits: Sequence[Handle]) -> Handle:
        event = c_void_p()
        self._api.counts.copies += 1
        code = self._copy(queue, 0, target, source, size, *list_of(waits), ctypes.byref(event))
        check("clEnqueueMemcpyINTEL", code)
        return event.value or 0

    def allocate(self, kind: str, context: Handle, device: Handle, size: int) -> int:
        """Raises OpenClError."""
        function, code = self._allocate[kind], c_int()
        self._api.counts.allocations += 1
        if function is None:
            raise OpenClError(f"the platform has no {kind} memory")
        own = (context,) if kind == "usm_host" else (context, device)
        address = function(*own, None, max(size, 1), 64, ctypes.byref(code))
        check(f"cl{kind[4:].title()}MemAllocINTEL", code.value)
        return int(address)

    def free(self, context: Handle, address: int) -> None:
        self._free(context, address)


class Objects:
    """The caller's objects of all platforms of `api`."""

    def __init__(self, api: OpenClApi) -> None:
        self.api = api
        platforms = api.platforms()
        self._devices = {device for platform in platforms for device in api.devices(platform)}
        self._functions = {word_at(device) for device in self._devices}
        self._usm: dict[Handle, Usm] = {}

    def is_object(self, handle: Handle) -> bool:
        """Whether there is an object of a platform at an address."""
        return word_at(handle) in self._functions

    def usm(self, device: Handle) -> Usm:
        """The unified shared memory of a device's platform."""
        found = self._usm.get(device)
        if found is None:
            platform = self.api.device_number(device, DEVICE_PLATFORM)
            found = self._usm[device] = Usm(self.api, platform)
        return found

    def transfer(
        self, queue: Handle, device: Handle, place: Place, address: int, waits: Sequence[Handle], *, write: bool
    ) -> Handle:
        """Copy between memory that is not `host` and memory of the process; returns an event."""
        kind, handle, size, offset = place
        if kind == "cl_mem":
            return self.api.transfer(queue, handle, offset, address, size, waits, write=write)
        ends = (handle, address) if write else (address, handle)
        copy = self.api.copy if kind == "svm" else self.usm(device).copy
        return copy(queue, *ends, size, waits)

    def queue(self, handle: Handle, where: str) -> QueueFacts:
        """Raises CallError for anything but a queue."""
        context = self._context_of("CommandQueue", handle, QUEUE_CONTEXT, where, "a command queue")
        device = self.api.describe("CommandQueue", handle, QUEUE_DEVICE)
        if device not in self._devices:  # some platforms do not check the kind of an object
            raise CallError(f"{where}: the OpenCL object at {handle:#x} is not a command queue")
        return QueueFacts(handle, context, device)

    def check_event(self, handle: Handle, queue: QueueFacts, where: str) -> None:
        """Raises CallError for anything but an event of the queue's context."""
        context = self._context_of("Event", handle, EVENT_CONTEXT, where, "an event")
        if context != queue.context:
            raise CallError(f"{where}: an event of another context; expected one of the context of the call's queue")

    def buffer(self, handle: Handle, where: object) -> tuple[Handle, int]:
        """The context and the bytes of a `cl_mem`. Raises CallError for anything else."""
        context = self._context_of("MemObject", handle, MEMORY_CONTEXT, where, "a cl_mem")
        kind = self.api.describe("MemObject", handle, MEMORY_KIND)
        if kind != MEMORY_BUFFER:
            raise CallError(f"{where}: the OpenCL object at {handle:#x} is not a buffer")
        return context, self.api.describe("MemObject", handle, MEMORY_BYTES)

    def check_pointer(self, address: int, kind: str, size: int, queue: QueueFacts, where: str) -> None:
        """Check that `size` bytes at `address` are of a kind of memory, as far as the platform says. Raises CallError.
        A wrong address of shared virtual memory is found only if it is an OpenCL object, or unified shared memory of
        another kind."""
        usm = self.usm(queue.device)
        if kind != "svm" and not usm.is_there:
            name = self.api.device_text(queue.device, DEVICE_NAME)
            raise CallError(f"{where}: {kind} stated, but {name} has no unified shared memory "
                            "(cl_intel_unified_shared_memory); expected cl_mem or svm")  # fmt: skip
        found = usm.kind(queue.context, address) if usm.is_there else ""
        if found and kind == "svm" and found == usm.kind_of_svm(queue.context):
            return
        if found == kind or (not found and kind == "svm"):
            base, held = usm.range(queue.context, address) if found else (0, 0)
            if found and address + size > base + held:
                raise CallError(f"{where}: {base + held - address:,} bytes of {kind} memory at {address:#x}; expected "
                                f"{size:,}")  # fmt: skip
            if found or not self.is_object(address):
                return
        if found:
            raise CallError(f"{where}: {kind} stated, but {address:#x} is {found} memory")
        if self.is_object(address):
            raise CallError(f"{where}: {kind} stated, but {address:#x} is an OpenCL object; state cl_mem if it is a "
                            "buffer")  # fmt: skip
        raise CallError(f"{where}: {kind} stated, but {address:#x} is no unified shared memory of the queue's context: "
                        "it is freed, of another context, or of another kind")  # fmt: skip

    def is_still(self, address: int, kind: str, queue: QueueFacts) -> bool:
        """Whether memory that `check_pointer` has checked before is of the same kind."""
        if kind == "svm":
            return not self.is_object(address)
        return self.usm(queue.device).kind(queue.context, address) == kind

    def _context_of(self, kind: str, handle: Handle, what: int, where: object, name: str) -> Handle:
        if self.is_object(handle):
            try:
                return self.api.describe(kind, handle, what)
            except OpenClError as error:
                raise CallError(f"{where}: {handle:#x} is not {name}: {error}") from None
        raise CallError(f"{where}: {handle:#x} is not {name}: it is released, or another kind of pointer")


@functools.cache
def load_objects() -> Objects:
    """Raises DeviceError if there is no OpenCL."""
    return Objects(load_api())


class _Range(ctypes.Structure):
    _fields_ = (("address", c_void_p), ("bytes", c_size_t))


class _WordReader(threading.local):
    """Reads words of this process, with structures of the thread."""

    def __init__(self) -> None:
        self.read = ctypes.CDLL(None).process_vm_readv
        self.read.argtypes = [c_int, c_void_p, ctypes.c_ulong, c_void_p, ctypes.c_ulong, ctypes.c_ulong]
        self.read.restype = ctypes.c_ssize_t
        self.word, self.source = ctypes.c_uint64(), _Range(0, 8)
        self.target = _Range(ctypes.addressof(self.word), 8)
        self.ranges = ctypes.addressof(self.target), 1, ctypes.addressof(self.source), 1, 0


_reader = _WordReader()


def word_at(address: int) -> int:
    """The word at an address of this process; 0 if it cannot be read."""
    if not 0 < address < 1 << 63:
        return 0
    _reader.source.address = address
    return _reader.word.value if _reader.read(os.getpid(), *_reader.ranges) == 8 else 0
