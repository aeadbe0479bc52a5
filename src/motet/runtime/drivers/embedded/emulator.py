"""QEMU as an embedded board, whose debugger's stub or serial line is one end of a socket pair.

A thread that lives as long as the process starts it, because PR_SET_PDEATHSIG refers to threads: the process ends with
this one, however that ends.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading

from motet.errors import DeviceError
from motet.runtime.drivers.embedded.machines import EmbeddedMachine
from motet.runtime.drivers.embedded.options import EmbeddedOptions

_BECOME = (
    "import ctypes, os, sys;"
    "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0);"
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)


def missing(machine: EmbeddedMachine) -> str:
    """Why QEMU cannot be started; empty if it can."""
    if shutil.which(machine.program) is None:
        return f"{machine.program} is not installed; install {machine.package}"
    return ""


class BoardEmulator:
    """A process of QEMU that runs `image`; `connection` is this process's end of its stub or line. Raises
    DeviceError if it cannot be started."""

    def __init__(self, device: str, options: EmbeddedOptions, image: bytes) -> None:
        if reason := missing(options.machine):
            raise DeviceError(f"device {device}: {reason}")
        self._device = device
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._failure = ""
        self._started = threading.Event()
        self._words = os.memfd_create("motet-embedded-words")  # QEMU's standard error
        self._image = os.memfd_create("motet-embedded-image")
        os.write(self._image, image)
        self.connection, self._other = socket.socketpair()
        threading.Thread(target=self._live, name=f"motet {device}", daemon=True).start()
        self._started.wait()
        if self._failure:
            self.connection.close()
            self.stop()
            raise DeviceError(f"device {device}: the emulator did not start: {self._failure}")

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def stop(self) -> None:
        """End the process; may be called again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        words, self._words = self._words, -1
        if words >= 0:
            os.close(words)

    def words(self) -> str:
        """What the process printed, and how it ended if it did."""
        if self._process is None or self._words < 0:
            return ""
        try:
            status = f"the emulator ended with status {self._process.wait(0.5)}"
        except subprocess.TimeoutExpired:
            status = ""
        said = " ".join(os.pread(self._words, 1 << 16, 0).decode(errors="replace").split())
        return ": ".join(filter(None, (status, said[:500])))

    def _live(self) -> None:
        try:
            self._process = self._spawn()
        except OSError as error:
            self._failure = str(error)
        finally:
            self._other.close()
            os.close(self._image)
            self._started.set()
        if self._process is not None:
            self._process.wait()

    def _spawn(self) -> subprocess.Popen[bytes]:
        passed = (self._image, self._other.fileno())
        path = shutil.which(self._options.machine.program) or self._options.machine.program
        command = [path, *self._arguments(*passed)]
        if self._options.verbose:
            print(f"motet: {self._device}: {' '.join(command)}", file=sys.stderr, flush=True)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._words, pass_fds=passed,
            start_new_session=True,  # the keyboard's interrupt must reach this process only
        )

    def _arguments(self, image: int, line: int) -> list[str]:
        machine, options = self._options.machine, self._options
        stub = options.link == "gdb"
        link = ["-gdb", "chardev:line", "-S", "-serial", "null"] if stub else ["-serial", "chardev:line"]
        # The stub stops an idle processor. With sleep=off, QEMU does not wake 500 times a second for its timer, which
        # cannot fire then.
        pace = ["-icount", f"shift={machine.shift}{',sleep=off' if stub else ''}"] if options.count else []
        return [
            *machine.arguments, "-kernel", f"/proc/self/fd/{image}", "-display", "none", "-monitor", "none",
            "-no-user-config", "-no-reboot", "-chardev", f"socket,id=line,fd={line}", *link, *pace,
        ]
