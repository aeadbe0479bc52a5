"""The emulator's process: QEMU's machine `virt`, with its DRAM shared with this process, and a serial line as a bell.

One thread, for the lifetime of the device, starts the process, listens to the bell, and notices the end of the process.
The process is set to die with that thread (PR_SET_PDEATHSIG refers to threads, not processes), so that none is left
over.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from motet.errors import DeviceError
from motet.runtime.drivers.riscv.installing import check_digest, install
from motet.runtime.drivers.riscv.memory import RiscvMemory, anonymous_file
from motet.runtime.drivers.riscv.options import RiscvOptions
from motet.runtime.drivers.riscv.protocol import Bell

PROGRAM = "qemu-system-riscv64"
PACKAGE = "qemu-system-misc"  # in Debian and Ubuntu
MISSING = f"{PROGRAM} is not installed; install {PACKAGE}"
LEAST_VERSION = (7, 0)  # the first version with vector instructions 1.0
_HEARTBEAT = 1.0

# Set to die with the parent's thread, check that it still lives, and execute the program named after its id.
_BECOME = (
    "import ctypes, os, sys;"
    "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0);"
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)

_numbers = itertools.count()


def program() -> str | None:
    """The path of QEMU; None if it is not installed."""
    return shutil.which(PROGRAM)


def check_version(device: str) -> tuple[int, ...]:
    """QEMU's version. Raises DeviceError if it is not installed, cannot be run, or is too old."""
    path = program()
    if path is None:
        raise DeviceError(f"device {device}: {MISSING}")
    try:
        changed = Path(path).stat().st_mtime_ns
        version = _version(path, changed)
    except (OSError, subprocess.SubprocessError) as error:
        raise DeviceError(f"device {device}: {path} does not say its version: {error}") from None
    if version < LEAST_VERSION:
        least, found = (".".join(map(str, number)) for number in (LEAST_VERSION, version))
        raise DeviceError(f"device {device}: {path} is version {found}; expected {least} or later")
    return version


@functools.lru_cache
def _version(path: str, changed: int) -> tuple[int, ...]:
    del changed  # part of the cache key: a replaced program is queried again
    answer = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True)
    match = re.search(rb"version (\d+)\.(\d+)", answer.stdout)
    return tuple(map(int, match.groups())) if match else (0, 0)


class Emulator:
    """An emulator, not started yet. Raises OutOfMemoryError for its memory, and DeviceError if its folder cannot be
    written."""

    patience = 0.1  # seconds after which a waiting thread polls

    def __init__(self, name: str, options: RiscvOptions) -> None:
        self._name = name
        self._options = options
        self._owner = os.getpid()
        self._ready = threading.Event()
        self._failure = ""
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = None if options.folder is None else _make_folder(options.folder, name)
        self._descriptor = _memory_file(self.folder, options.memory, name)
        try:
            self.memory = RiscvMemory(self._descriptor, options.memory, name)
            install(self.memory, options)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._bell, self._other_end = socket.socketpair()
        self._words = os.memfd_create("motet-riscv-words")  # QEMU's standard error
        self._thread: threading.Thread | None = None

    def start(self, heard: Callable[[], None], lost: Callable[[str], None]) -> None:
        """Start the process; returns when the firmware runs. `heard` is called in a separate thread when the bell
        rings, and once a second; `lost` once, with the reason, if the process ends without `stop`. Raises
        DeviceError."""
        began = time.perf_counter()
        self._thread = threading.Thread(
            target=self._live, args=(heard, lost), name=f"motet {self._name}", daemon=True
        )
        self._thread.start()
        try:
            ready = self._ready.wait(self._options.boot)
        except BaseException:  # the user's interrupt
            self.stop()
            raise
        if self._failure:
            self._thread.join()
            raise DeviceError(f"device {self._name}: the emulator did not start: {self._failure}")
        if not ready:
            self.stop()
            raise DeviceError(
                f"device {self._name}: the firmware did not start within {self._options.boot:g} s; "
                "expected one for QEMU's machine virt that speaks Motet's protocol"
            )
        try:
            check_digest(self.memory)
        except DeviceError:
            self.stop()
            raise
        self._say(f"process {self.pid} runs, after {time.perf_counter() - began:.3f} s")

    def ring(self) -> None:
        """Wake the device. The thread notices if it has ended."""
        with contextlib.suppress(OSError):
            self._bell.send(b".")

    def stop(self) -> None:
        """End the process; may be called from any thread. Has no effect in a forked child."""
        if os.getpid() != self._owner:
            return
        self._stopping = True
        if self._process is not None:
            self._process.kill()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def stopped(self) -> bool:
        """Whether the process exists but was stopped by a signal."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        return status.rpartition(b") ")[2][:1] in b"Tt"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    # -- the thread ------------------------------------------------------------------------------

    def _live(self, heard: Callable[[], None], lost: Callable[[str], None]) -> None:
        try:
            self._process = self._spawn()
        except OSError as error:
            self._failure = str(error)
            self._bell.close()
            os.close(self._words)
            self._ready.set()
            return
        finally:
            self._other_end.close()
            os.close(self._descriptor)
        if self._stopping:
            self._process.kill()
        self._listen(heard)
        reason = self._bury(self._process)
        self._say(reason)
        if not self._ready.is_set():
            self._failure = reason
            self._ready.set()
        elif not self._stopping:
            lost(reason)

    def _listen(self, heard: Callable[[], None]) -> None:
        self._bell.settimeout(_HEARTBEAT)
        while True:
            try:
                rung = self._bell.recv(4096)
            except TimeoutError:
                rung = b""
            except OSError:
                return
            else:
                if not rung:
                    return
            if self._ready.is_set():
                heard()
            elif Bell.READY in rung:
                self._ready.set()

    def _spawn(self) -> subprocess.Popen[bytes]:
        passed = (self._descriptor, self._other_end.fileno())
        command = [program() or PROGRAM, *self._arguments(*passed)]
        if self.folder is not None:
            (self.folder / "command").write_text(" ".join(command) + "\n", encoding="utf-8")
        self._say(" ".join(command))
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._words, pass_fds=passed,
            start_new_session=True,  # the keyboard's interrupt must reach this process only
        )

    def _arguments(self, memory: int, bell: int) -> list[str]:
        options = self._options
        vectors = f",v=true,vext_spec=v1.0,vlen={options.vector_bits},elen=64" if options.vector_bits else ""
        # A single thread with a clock that counts instructions, or one thread per core with a wall clock.
        pace = ["-icount", "shift=0"] if options.count else ["-accel", "tcg,thread=multi"]
        trace = ["-d", options.trace.replace("+", ","), "-D", str(self.folder / "trace.log")] if self.folder else []
        return [
            "-M", "virt,memory-backend=dram", "-m", f"{options.memory >> 20}M",
            "-object", f"memory-backend-file,id=dram,mem-path=/proc/self/fd/{memory},size={options.memory},share=on",
            "-cpu", f"rv64{vectors}", "-smp", str(options.harts), *pace, "-bios", "none",
            "-display", "none", "-monitor", "none", "-nodefaults", "-no-user-config", "-no-reboot",
            "-chardev", f"socket,id=bell,fd={bell}", "-serial", "chardev:bell", *(trace if options.trace else []),
        ]

    def _bury(self, process: subprocess.Popen[bytes]) -> str:
        """Wait for the end of the process, which has closed the bell; returns its status and its messages."""
        try:
            status = process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        self._bell.close()
        with os.fdopen(self._words, "rb") as file:
            file.seek(0)
            said = file.read()
        if self.folder is not None:
            (self.folder / "emulator.log").write_bytes(said)
        words = " ".join(said.decode(errors="replace").split())
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return f"the emulator's process ended ({how})" + (f": {words}" if words else "")

    def _say(self, words: str) -> None:
        if self._options.verbose:
            print(f"motet: {self._name}: {words}", file=sys.stderr, flush=True)


def _make_folder(parent: Path, device: str) -> Path:
    """Create a folder in `parent` for one device's files."""
    folder = parent / f"riscv-{os.getpid()}-{next(_numbers)}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise DeviceError(f"device {device}: folder {folder}: {error.strerror}") from None
    return folder


def _memory_file(folder: Path | None, size: int, device: str) -> int:
    if folder is None:
        return anonymous_file(size, device)
    try:
        descriptor = os.open(folder / "memory", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(descriptor, size)
    except OSError as error:
        raise DeviceError(f"device {device}: folder {folder}: {error.strerror}") from None
    return descriptor
