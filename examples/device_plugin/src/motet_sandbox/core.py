"""A core as the driver sees it: a process that is started when needed, answers requests, and may be killed by a
kernel."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from motet.errors import DeviceError, KernelFault, MotetError
from motet_sandbox.memory import Memory
from motet_sandbox.worker import Command

_FAULTS: dict[int, str] = {
    signal.SIGSEGV: "it addressed memory that there is not",
    signal.SIGBUS: "it addressed memory that there is not",
    signal.SIGILL: "illegal instruction",
    signal.SIGTRAP: "illegal instruction",
    signal.SIGFPE: "arithmetic that the processor refuses",
}


class CodeImage:
    """Objects that cores load before they first run them, identified by `number`."""

    def __init__(self, number: int, objects: Sequence[bytes], names: Sequence[str]) -> None:
        self.number = number
        self.objects = list(objects)
        self.names = list(names)


class Core:
    """A core. Not thread-safe, except `kill` and `drop`."""

    def __init__(self, device: str, number: int, memory: Memory) -> None:
        self._device = device
        self._number = number
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._loaded: set[int] = set()
        self._dropped: deque[int] = deque()
        self._killed = False

    def run(self, code: CodeImage, commands: Sequence[Command], scratch: int) -> list[tuple[float, float]]:
        """Run commands, and return the begin and end of each. Raises KernelFault, after which the core is restarted;
        DeviceError if the core was killed, or died for another reason."""
        self._start()
        kernels = [command[0] or "copy" for command in commands]
        while self._dropped:
            number = self._dropped.popleft()
            if number in self._loaded:
                self._loaded.remove(number)
                self._ask(kernels, "drop", number)
        if code.number not in self._loaded:
            problem = self._ask(kernels, "load", code.number, code.objects, code.names)
            if problem is not None:
                raise DeviceError(f"device {self._device}: {problem}")
            self._loaded.add(code.number)
        return self._ask(kernels, "run", code.number, commands, scratch)

    def drop(self, number: int) -> None:
        """Forget code that is no longer used."""
        self._dropped.append(number)

    def kill(self) -> None:
        """End running work immediately."""
        process = self._process
        if process is not None:
            self._killed = True
            process.kill()

    def close(self) -> None:
        """End the process, which must be idle."""
        if self._connection is not None:
            self._connection.close()  # the process then ends by itself
        if self._process is not None:
            self._process.wait()
        self._process = self._connection = None

    def _start(self) -> None:
        if self._process is not None:
            return
        self._killed = False
        self._loaded.clear()
        ours, theirs = socket.socketpair()
        with theirs:
            files = [self._memory.file, theirs.fileno()]
            arguments = [*files, self._memory.size, self._number]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "motet_sandbox.worker", *map(str, arguments)],
                stdin=subprocess.DEVNULL, pass_fds=files,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._connection = Connection(ours.detach())

    def _ask(self, kernels: Sequence[str], *request: Any) -> Any:
        assert self._connection is not None
        try:
            self._connection.send(request)
            return self._connection.recv()
        except (EOFError, OSError):
            raise self._post_mortem(kernels) from None

    def _post_mortem(self, kernels: Sequence[str]) -> MotetError:
        """Why the process has ended; the next `run` starts another one."""
        assert self._process is not None and self._connection is not None
        status = self._process.wait()
        self._connection.close()
        self._process = self._connection = None
        if self._killed:
            return DeviceError(f"device {self._device}: aborted")
        kernel = kernels[min(self._memory.progress(self._number), len(kernels) - 1)] if kernels else ""
        if -status in _FAULTS:
            return KernelFault(self._device, kernel, _FAULTS[-status], core=self._number)
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return DeviceError(f"device {self._device}: core {self._number} died with {how} in kernel {kernel}")
