"""The calls of OpenCL that the device needs, with failures as exceptions; the only module that makes them.

Handles and addresses are ints. Reference: The OpenCL Specification, version 3.0,
https://registry.khronos.org/OpenCL/specs/3.0-unified/html/OpenCL_API.html.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from motet.errors import DeviceError
from motet.runtime.drivers.opencl.apart import first_error
from motet.runtime.drivers.opencl.loader import load_library
from motet.runtime.drivers.opencl.prototypes import PROTOTYPES

Handle = int

_ALL_DEVICES = 0xFFFFFFFF
_READ_WRITE = 1  # flag of memory
_QUEUE_PROPERTIES, _OUT_OF_ORDER = 0x1093, 1
_BUILD_LOG = 0x1183
_KERNEL_NAMES, _BINARY_SIZES, _BINARIES = 0x1168, 0x1165, 0x1166
_NO_DEVICE = -1
_REGION = 0x1220
_ERRORS = {
    -1: "CL_DEVICE_NOT_FOUND", -2: "CL_DEVICE_NOT_AVAILABLE", -3: "CL_COMPILER_NOT_AVAILABLE",
    -4: "CL_MEM_OBJECT_ALLOCATION_FAILURE", -5: "CL_OUT_OF_RESOURCES", -6: "CL_OUT_OF_HOST_MEMORY",
    -8: "CL_MEM_COPY_OVERLAP", -13: "CL_MISALIGNED_SUB_BUFFER_OFFSET",
    -11: "CL_BUILD_PROGRAM_FAILURE", -14: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", -30: "CL_INVALID_VALUE",
    -34: "CL_INVALID_CONTEXT", -36: "CL_INVALID_COMMAND_QUEUE", -38: "CL_INVALID_MEM_OBJECT",
    -42: "CL_INVALID_BINARY", -44: "CL_INVALID_PROGRAM", -45: "CL_INVALID_PROGRAM_EXECUTABLE",
    -46: "CL_INVALID_KERNEL_NAME", -48: "CL_INVALID_KERNEL", -49: "CL_INVALID_ARG_INDEX", -50: "CL_INVALID_ARG_VALUE",
    -51: "CL_INVALID_ARG_SIZE", -52: "CL_INVALID_KERNEL_ARGS", -54: "CL_INVALID_WORK_GROUP_SIZE",
    -57: "CL_INVALID_EVENT_WAIT_LIST", -58: "CL_INVALID_EVENT", -59: "CL_INVALID_OPERATION",
    -61: "CL_INVALID_BUFFER_SIZE", -63: "CL_INVALID_GLOBAL_WORK_SIZE", -1001: "CL_PLATFORM_NOT_FOUND_KHR",
}

# Properties of platforms and devices.
PLATFORM_NAME, PLATFORM_VERSION, PLATFORM_SUFFIX = 0x0902, 0x0901, 0x0920
DEVICE_FLOATS = 0x103A  # how many floats a vector of the device's instructions has
DEVICE_NAME, DEVICE_VERSION, DEVICE_IL, DEVICE_EXTENSIONS = 0x102B, 0x102F, 0x105B, 0x1030
DEVICE_AVAILABLE, DEVICE_COMPUTE_UNITS, DEVICE_MEMORY, DEVICE_LARGEST = 0x1027, 0x1002, 0x101F, 0x1010
DEVICE_QUEUE_PROPERTIES, DEVICE_SVM, DEVICE_SINGLE_FP = 0x102A, 0x1053, 0x101B
DEVICE_PLATFORM, DEVICE_DRIVER, DEVICE_HOST_UNIFIED = 0x1031, 0x102D, 0x1035
DEVICE_PCI_BUS = 0x410F
DEVICE_ALIGNMENT = 0x1019  # of parts of a cl_mem, in bits
DEVICE_VENDOR, DEVICE_ID_INTEL, DEVICE_SUB_GROUPS = 0x1001, 0x4251, 0x4108  # the last two are Intel's

# Properties of a caller's objects.
QUEUE_CONTEXT, QUEUE_DEVICE, CONTEXT_DEVICES = 0x1090, 0x1091, 0x1081
MEMORY_KIND, MEMORY_BYTES, MEMORY_CONTEXT, MEMORY_BUFFER = 0x1100, 0x1102, 0x1106, 0x10F0
EVENT_STATUS, EVENT_CONTEXT, EVENT_COMPLETE = 0x11D3, 0x11D4, 0
_TURNS, _PAUSE = 50, 50e-6  # looks at an event without a pause, then seconds between them
USM_KIND, USM_BASE, USM_BYTES = 0x419A, 0x419B, 0x419C


class OpenClError(DeviceError):
    """A failed call, with OpenCL's code."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class PlatformDied(OpenClError):
    """The platform ended the process that called it, did not answer, or answered with an empty program."""


@dataclass
class Counts:
    """How often memory of devices was allocated, and copied or filled, since the process began."""

    allocations: int = 0
    copies: int = 0


class OpenClApi:
    """OpenCL through its loader."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.counts = Counts()
        self._functions: dict[str, Any] = {}
        for name, (result, parameters) in PROTOTYPES.items():
            try:
                function = library[name]
            except AttributeError as error:
                raise OpenClError(f"the OpenCL loader has no {name}; expected OpenCL 2.1 or newer") from error
            function.restype, function.argtypes = result or c_int, parameters
            self._functions[name] = function

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function whose result is a code."""
        check(name, self._functions[name](*arguments))

    def _create(self, name: str, *arguments: Any) -> Handle:
        """Call a function that returns a handle, and a code through its last argument."""
        code = c_int()
        handle = self._functions[name](*arguments, ctypes.byref(code))
        check(name, code.value)
        return int(handle)

    # -- platforms and devices -------------------------------------------------------------------

    def platforms(self) -> list[Handle]:
        return self._list("clGetPlatformIDs")

    def devices(self, platform: Handle) -> list[Handle]:
        return self._list("clGetDeviceIDs", platform, _ALL_DEVICES)

    def _list(self, name: str, *arguments: Any) -> list[Handle]:
        count = c_uint()
        code = self._functions[name](*arguments, 0, None, ctypes.byref(count))
        if code in (_NO_DEVICE, -1001) or not count.value:
            return []
        check(name, code)
        handles = (c_void_p * count.value)()
        self._call(name, *arguments, count, handles, None)
        return [handle or 0 for handle in handles]

    def platform_text(self, platform: Handle, what: int) -> str:
        """A property as text; empty if the platform does not know it."""
        try:
            return self._read("clGetPlatformInfo", platform, what).split(b"\0")[0].decode(errors="replace").strip()
        except OpenClError:
            return ""

    def device_text(self, device: Handle, what: int) -> str:
        """A property as text; empty if the device does not know it."""
        try:
            return self._read("clGetDeviceInfo", device, what).split(b"\0")[0].decode(errors="replace").strip()
        except OpenClError:
            return ""

    def device_number(self, device: Handle, what: int) -> int:
        """A property as a number; 0 if the device does not know it."""
        return int.from_bytes(self.device_bytes(device, what), "little")

    def device_bytes(self, device: Handle, what: int) -> bytes:
        """A property as it is; empty if the device does not know it."""
        try:
            return self._read("clGetDeviceInfo", device, what)
        except OpenClError:
            return b""

    def _read(self, name: str, *arguments: Any) -> bytes:
        size = c_size_t()
        self._call(name, *arguments, 0, None, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self._call(name, *arguments, size, content, None)
        return content.raw

    def describe(self, kind: str, handle: Handle, what: int) -> int:
        """A property of a `Context`, `CommandQueue`, `MemObject` or `Event` of at most 64 bits. Raises OpenClError."""
        value = c_uint64()
        self._call(f"clGet{kind}Info", handle, what, 8, ctypes.byref(value), None)
        return value.value

    def has_ended(self, event: Handle) -> bool:
        """Whether a command has ended, with or without an error."""
        status = self.describe("Event", event, EVENT_STATUS) & 0xFFFFFFFF
        return status == EVENT_COMPLETE or status >= 1 << 31

    def extension(self, platform: Handle, name: str, result: Any, *parameters: Any) -> Callable[..., Any] | None:
        """A function of a platform's extension; None if it has none of this name."""
        address = self._functions["clGetExtensionFunctionAddressForPlatform"](platform, name.encode())
        return ctypes.CFUNCTYPE(result, *parameters)(address) if address else None

    # -- contexts, queues, memory ----------------------------------------------------------------

    def context_create(self, device: Handle) -> Handle:
        return self._create("clCreateContext", None, 1, ctypes.byref(c_void_p(device)), None, None)

    def queue_create(self, context: Handle, device: Handle, *, in_order: bool = False) -> Handle:
        """A queue whose commands are ordered by events only, if the device has such queues, unless `in_order`."""
        properties = 0 if in_order else self.device_number(device, DEVICE_QUEUE_PROPERTIES) & _OUT_OF_ORDER
        listed = (c_uint64 * 3)(_QUEUE_PROPERTIES, properties, 0)
        return self._create("clCreateCommandQueueWithProperties", context, device, listed)

    def release(self, kind: str, handle: Handle) -> None:
        """Give back a `Context`, `CommandQueue`, `Program`, `Kernel`, `MemObject` or `Event`."""
        if kind == "CommandQueue":
            # A command is said to have ended before its task has. In Intel's platform for processors the task would
            # then be the queue's last owner, and wait for itself: one thread less, on two cores the only one.
            self.finish(handle)
        self._call(f"clRelease{kind}", handle)

    def retain(self, kind: str, handle: Handle) -> None:
        """Keep a `Context`, `MemObject` or `Event` until `release`."""
        self._call(f"clRetain{kind}", handle)

    def buffer_create(self, context: Handle, size: int) -> Handle:
        self.counts.allocations += 1
        return self._create("clCreateBuffer", context, _READ_WRITE, size, None)

    def sub_buffer_create(self, buffer: Handle, offset: int, size: int) -> Handle:
        """A part of a `cl_mem`, without memory besides it. Raises OpenClError for an offset that the device does not
        take."""
        region = (c_size_t * 2)(offset, size)
        return self._create("clCreateSubBuffer", buffer, 0, _REGION, region)

    def allocate(self, context: Handle, size: int) -> int:
        """The address of shared virtual memory, aligned to 64; 0 if there is not enough."""
        self.counts.allocations += 1
        return self._functions["clSVMAlloc"](context, _READ_WRITE, size, 64) or 0

    def free(self, context: Handle, address: int) -> None:
        self._functions["clSVMFree"](context, address)

    # -- commands ---------------------------------------------------------------------------------

    def end(self, queue: Handle, event: Handle) -> None:
        """Return when a command of `queue` has ended, and release its event. Raises OpenClError if it failed.

        Threads that wait within Intel's platform for commands of one queue sometimes wait forever: this looks instead.
        """
        try:
            self.flush(queue)
            turns = 0
            while not self.has_ended(event):
                turns += 1
                time.sleep(0 if turns < _TURNS else _PAUSE)
            self.wait([event])
        finally:
            self.release("Event", event)

    def copy(self, queue: Handle, target: int, source: int, size: int, waits: Sequence[Handle] = ()) -> Handle:
        """Copy within shared virtual memory; returns an event, as do the next two."""
        event = c_void_p()
        self.counts.copies += 1
        self._call("clEnqueueSVMMemcpy", queue, 0, target, source, size, *list_of(waits), ctypes.byref(event))
        return event.value or 0

    def fill(self, queue: Handle, target: int, byte: int, size: int, waits: Sequence[Handle] = ()) -> Handle:
        event = c_void_p()
        self.counts.copies += 1
        pattern = ctypes.byref(ctypes.c_ubyte(byte))
        self._call(
            "clEnqueueSVMMemFill", queue, target, pattern, 1, size, *list_of(waits), ctypes.byref(event)
        )
        return event.value or 0

    def transfer(
        self, queue: Handle, buffer: Handle, offset: int, address: int, size: int, waits: Sequence[Handle], *,
        write: bool,
    ) -> Handle:
        """Copy between a `cl_mem` and memory of the process; returns an event, as do the next two."""
        event = c_void_p()
        self.counts.copies += 1
        name = "clEnqueueWriteBuffer" if write else "clEnqueueReadBuffer"
        self._call(name, queue, buffer, 0, offset, size, address, *list_of(waits), ctypes.byref(event))
        return event.value or 0

    def copy_buffer(
        self, queue: Handle, source: Handle, source_offset: int, target: Handle, target_offset: int, size: int,
        waits: Sequence[Handle],
    ) -> Handle:
        """Copy between two `cl_mem`."""
        event = c_void_p()
        self.counts.copies += 1
        offsets = source_offset, target_offset
        self._call(
            "clEnqueueCopyBuffer", queue, source, target, *offsets, size, *list_of(waits), ctypes.byref(event)
        )
        return event.value or 0

    def fill_buffer(
        self, queue: Handle, buffer: Handle, offset: int, byte: int, size: int, waits: Sequence[Handle]
    ) -> Handle:
        """Fill a part of a `cl_mem`."""
        event = c_void_p()
        self.counts.copies += 1
        pattern = ctypes.byref(ctypes.c_ubyte(byte))
        self._call(
            "clEnqueueFillBuffer", queue, buffer, pattern, 1, offset, size, *list_of(waits), ctypes.byref(event)
        )
        return event.value or 0

    def marker(self, queue: Handle, waits: Sequence[Handle]) -> Handle:
        """The end of all of `waits`; of all commands before it, if there are none."""
        event = c_void_p()
        self._call("clEnqueueMarkerWithWaitList", queue, *list_of(waits), ctypes.byref(event))
        return event.value or 0

    def launch(
        self, queue: Handle, kernel: Handle, groups: int, waits: Sequence[Handle] = (), group: int = 1
    ) -> Handle:
        """Run `groups` work-groups of `group` work-items each."""
        event, count, own = c_void_p(), c_size_t(groups * group), c_size_t(group)
        self._call(
            "clEnqueueNDRangeKernel", queue, kernel, 1, None, ctypes.byref(count), ctypes.byref(own),
            *list_of(waits), ctypes.byref(event),
        )
        return event.value or 0

    def user_event(self, context: Handle) -> Handle:
        """An event that ends when `end_user_event` is called."""
        return self._create("clCreateUserEvent", context)

    def end_user_event(self, event: Handle) -> None:
        self._call("clSetUserEventStatus", event, 0)

    def flush(self, queue: Handle) -> None:
        self._call("clFlush", queue)

    def finish(self, queue: Handle) -> None:
        """Block until all commands of a queue have ended."""
        self._call("clFinish", queue)

    def wait(self, events: Sequence[Handle]) -> None:
        """Block until all commands of `events` have ended. Raises OpenClError if one failed."""
        if events:
            self._call("clWaitForEvents", *list_of(events))

    # -- programs ---------------------------------------------------------------------------------

    def program_create(self, context: Handle, code: bytes) -> Handle:
        """A program of SPIR-V or OpenCL C."""
        if is_spirv(code):
            return self._create("clCreateProgramWithIL", context, code, len(code))
        text, size = c_char_p(code), c_size_t(len(code))
        return self._create("clCreateProgramWithSource", context, 1, ctypes.byref(text), ctypes.byref(size))

    def program_load(self, context: Handle, device: Handle, binary: bytes) -> Handle:
        """A program of a binary that `program_binary` returned. Raises OpenClError if the device does not take it."""
        own, size = ctypes.byref(c_void_p(device)), ctypes.byref(c_size_t(len(binary)))
        content = ctypes.byref(ctypes.cast(ctypes.create_string_buffer(binary, len(binary)), c_void_p))
        return self._create("clCreateProgramWithBinary", context, 1, own, size, content, None)

    def program_binary(self, program: Handle) -> bytes:
        """A built program of one device as that device's code; empty if its platform has none."""
        size = int.from_bytes(self._read("clGetProgramInfo", program, _BINARY_SIZES)[:8], "little")
        content = ctypes.create_string_buffer(max(size, 1))
        place = c_void_p(ctypes.addressof(content))
        self._call("clGetProgramInfo", program, _BINARIES, 8, ctypes.byref(place), None)
        return content.raw[:size]

    def build(self, program: Handle, device: Handle, options: str) -> None:
        """Compile a program. Raises OpenClError with the first error of the compiler's log."""
        try:
            own = ctypes.byref(c_void_p(device))
            self._call("clBuildProgram", program, 1, own, options.encode(), None, None)
        except OpenClError as error:
            log = self._read("clGetProgramBuildInfo", program, device, _BUILD_LOG).split(b"\0")[0]
            raise OpenClError(f"{error}: {first_error(log.decode(errors='replace'))}", error.code) from error

    def kernel_names(self, program: Handle) -> list[str]:
        names = self._read("clGetProgramInfo", program, _KERNEL_NAMES).split(b"\0")[0].decode()
        return [name for name in names.split(";") if name]

    def kernel_create(self, program: Handle, name: str) -> Handle:
        return self._create("clCreateKernel", program, name.encode())

    def set_pointer(self, kernel: Handle, index: int, address: int) -> None:
        """Set an argument to an address of shared virtual memory."""
        self._call("clSetKernelArgSVMPointer", kernel, index, address)

    def set_buffer(self, kernel: Handle, index: int, buffer: Handle) -> None:
        """Set an argument to a `cl_mem`."""
        self._call("clSetKernelArg", kernel, index, 8, ctypes.byref(c_void_p(buffer)))

    def set_number(self, kernel: Handle, index: int, number: int, bits: int = 64) -> None:
        """Set an argument of 64 or 32 bits."""
        value = c_int64(number) if bits == 64 else c_int(number)
        self._call("clSetKernelArg", kernel, index, bits // 8, ctypes.byref(value))

    def set_local(self, kernel: Handle, index: int, size: int) -> None:
        """Set an argument to `size` bytes of local memory."""
        self._call("clSetKernelArg", kernel, index, size, None)


@functools.cache
def load_api() -> OpenClApi:
    """OpenCL of this process. Raises DeviceError if it is not installed."""
    return OpenClApi(load_library())


def is_spirv(code: bytes) -> bool:
    return code[:4] == b"\x03\x02\x23\x07"


def list_of(events: Sequence[Handle]) -> tuple[int, Any]:
    """A wait list as a function's arguments."""
    return (len(events), (c_void_p * len(events))(*events)) if events else (0, None)


def check(name: str, code: int) -> None:
    """Raises OpenClError for a code other than success."""
    if code:
        raise OpenClError(f"{name} failed: {_ERRORS.get(code, 'error')} ({code})", code)
