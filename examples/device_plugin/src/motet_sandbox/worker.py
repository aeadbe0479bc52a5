"""A core's process: `python -m motet_sandbox.worker MEMORY SOCKET SIZE NUMBER`.

It maps the device's memory, and answers requests in order:

    ("load", code, objects, names)                  None, or an error message
    ("drop", code)                                  None
    ("run", code, commands, scratch)                begin and end of each command, seconds

A command is (kernel, addresses, sizes, tasks), or (None, (source, target), (bytes,), 0) for a copy. A kernel may crash
this process: the driver notices its end, and starts another one.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from motet.errors import MotetError
from motet.runtime.drivers.host.loader import NativeCode, load_objects
from motet_sandbox.memory import ALIGNMENT, ORIGIN

_KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
Command = tuple[str | None, Sequence[int], Sequence[int], int]


class Worker:
    """The device's memory, mapped in this process, and the loaded code."""

    def __init__(self, memory: mmap.mmap, number: int) -> None:
        self.memory = memory  # kept mapped
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(memory)) - ORIGIN
        self.progress = ctypes.c_int64.from_buffer(memory, 8 * number)
        self.codes: dict[int, NativeCode] = {}

    def load(self, number: int, objects: Sequence[bytes], names: Sequence[str]) -> str | None:
        try:
            self.codes[number] = load_objects(objects, {}, names)
        except MotetError as error:
            return str(error)
        return None

    def drop(self, number: int) -> None:
        self.codes.pop(number, None)

    def run(self, number: int, commands: Sequence[Command], scratch: int) -> list[tuple[float, float]]:
        room = (ctypes.c_char * (scratch + ALIGNMENT))()
        aligned = -(-ctypes.addressof(room) // ALIGNMENT) * ALIGNMENT
        times: list[tuple[float, float]] = []
        for index, command in enumerate(commands):
            self.progress.value = index
            begin = time.perf_counter()
            self._run(self.codes.get(number), command, aligned)
            times.append((begin, time.perf_counter()))
        return times

    def _run(self, code: NativeCode | None, command: Command, scratch: int) -> None:
        kernel, addresses, sizes, tasks = command
        pointers = [self.base + address for address in addresses]
        if kernel is None or code is None:
            ctypes.memmove(pointers[1], pointers[0], sizes[0])
        elif tasks:
            buffers = (ctypes.c_void_p * len(pointers))(*pointers)
            extents = (ctypes.c_int64 * len(sizes))(*sizes)
            _KERNEL(code.address(kernel))(buffers, extents, 0, tasks, scratch)


def main(arguments: Sequence[str]) -> None:
    file, socket, size, number = map(int, arguments)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    worker = Worker(mmap.mmap(file, size), number)
    actions: dict[str, Any] = {"load": worker.load, "drop": worker.drop, "run": worker.run}
    # The driver's end is closed with the device, or when the driver's process dies.
    with Connection(socket) as connection, contextlib.suppress(EOFError, OSError):
        while True:
            action, *parameters = connection.recv()
            connection.send(actions[action](*parameters))


def _end_with(parent: int) -> None:
    """Die with the process that launched the kernels, also during an endless one."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)
