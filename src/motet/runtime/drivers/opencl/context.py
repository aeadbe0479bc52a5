"""A context of one device, and the objects in it. Each is given back when it is collected, except in the child of a
fork, where they are the parent's."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from motet.errors import OutOfMemoryError
from motet.runtime.drivers.opencl.api import DEVICE_LARGEST, Handle, OpenClApi


class Context:
    """The context of a device; `name` is for errors."""

    def __init__(self, api: OpenClApi, device: Handle, name: str) -> None:
        self.api = api
        self.device = device
        self.name = name
        self.process = os.getpid()
        self.handle = api.context_create(device)
        self._programs: weakref.WeakValueDictionary[tuple[bytes, str], Owned] = weakref.WeakValueDictionary()
        self._building = threading.Lock()
        self._largest = api.device_number(device, DEVICE_LARGEST)
        _at_end_of(self, self.process, api.release, "Context", self.handle)

    def allocate(self, size: int) -> Memory:
        """Raises OutOfMemoryError."""
        address = 0 if size > self._largest else self.api.allocate(self.handle, max(size, 1))
        if not address:
            raise OutOfMemoryError(size, self.name)
        return Memory(self, address, size)

    def program(self, code: bytes, options: str) -> Owned:
        """The program of SPIR-V or OpenCL C `code`, built once as long as it is in use. Raises OpenClError."""
        with self._building:
            program = self._programs.get((code, options))
            if program is None:
                program = self.own("Program", self.api.program_create(self.handle, code))
                self.api.build(program.handle, self.device, options)
                self._programs[code, options] = program
            return program

    def own(self, kind: str, handle: Handle) -> Owned:
        """Take the ownership of a `CommandQueue`, `Program` or `Kernel`."""
        return Owned(self, kind, handle)


class Memory:
    """Shared virtual memory, which has the same address in kernels and in this process: a device's buffer."""

    def __init__(self, context: Context, address: int, size: int) -> None:
        self.context = context
        self.address = address
        self.bytes = size
        # `context` is an argument so that it outlives the memory.
        _at_end_of(self, context.process, _free, context, address)


class Owned:
    """A handle of a context."""

    def __init__(self, context: Context, kind: str, handle: Handle) -> None:
        self.handle = handle
        _at_end_of(self, context.process, _release, context, kind, handle)


def _free(context: Context, address: int) -> None:
    context.api.free(context.handle, address)


def _release(context: Context, kind: str, handle: Handle) -> None:
    context.api.release(kind, handle)


def _at_end_of(owner: object, process: int, give_back: Callable[..., None], *arguments: Any) -> None:
    weakref.finalize(owner, _in_process, process, give_back, *arguments).atexit = False


def _in_process(process: int, give_back: Callable[..., None], *arguments: Any) -> None:
    if os.getpid() == process:
        give_back(*arguments)
