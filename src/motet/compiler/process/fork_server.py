"""A process that keeps the compiler loaded for a process that compiles repeatedly, such as a notebook.

It runs as `python -m motet.compiler.process.fork_server SOCKET`. Each job runs in a fork of it, so that a crash ends
only that fork.

    this process                       the server                   a guard                  the job
    Keeper().hire(folder)   socket  →  forks                     →  forks                 →  process.worker.work
    stdout                  ←  pipe    ·····························································  progress, errors
    wait()                  ←  pipe    ····························  its exit status
    kill(), or its end      hang-up →  ···························  kills it

The keeper ends with the process that started it, or after a while without requests. Jobs have the environment and the
folder of the requesting process. If Triton is installed, the keeper keeps it loaded, too.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn

import msgspec

from motet.compiler.process.lifetime import die_with_parent, end_with

IDLE = 300.0  # seconds without requests after which a keeper ends
_SURROUNDINGS = "surroundings.json"


class Surroundings(msgspec.Struct, frozen=True):
    """The environment of a job, taken from the requesting process, and the modules that it needs."""

    folder: str
    environment: dict[str, str]
    targets: list[str]
    onnx: bool


class Keeper:
    """A keeper of this process. Not thread-safe."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._owner = os.getpid()
        self._path = list(sys.path)
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(theirs.fileno())], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment,
            )

    @property
    def is_there(self) -> bool:
        """Whether it serves this very process, with the same package paths, and has not ended."""
        return self._owner == os.getpid() and self._path == sys.path and self._process.poll() is None

    def hire(self, folder: Path, log: Path, targets: tuple[str, ...], onnx: bool) -> Hired:
        """Start the job in `folder`, which writes its errors to `log`. Raises OSError if the keeper has ended."""
        surroundings = Surroundings(str(Path.cwd()), dict(os.environ), list(targets), onnx)
        (folder / _SURROUNDINGS).write_bytes(msgspec.json.encode(surroundings))
        answers, stdout = os.pipe()
        status, told = os.pipe()
        stderr = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            socket.send_fds(self._socket, [os.fsencode(folder)], [stdout, stderr, told])
        except OSError:
            os.close(answers)
            os.close(status)
            raise
        finally:
            for handle in (stdout, stderr, told):
                os.close(handle)
        return Hired(os.fdopen(answers, "rb"), os.fdopen(status, "rb"))

    def end(self) -> None:
        """Let it end after its jobs."""
        if self._owner == os.getpid():
            self._socket.close()

    def stop(self) -> None:
        """End it immediately, if it is this process's own."""
        if self._owner == os.getpid():
            self._socket.close()
            self._process.kill()
            self._process.wait()


class Hired:
    """A worker for one job. Leaving the `with` block ends it."""

    def __init__(self, stdout: IO[bytes], status: IO[bytes]) -> None:
        self.stdout = stdout
        self._status = status

    def wait(self) -> int:
        """Wait for its end; returns the exit status, negative for a signal."""
        said = self._status.read()
        return int(said) if said else 1

    def kill(self) -> None:
        self._status.close()

    def __enter__(self) -> Hired:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stdout.close()
        self._status.close()


# -- the server ----------------------------------------------------------------------------------


def main(handle: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the requesting process handles interrupts from the terminal
    from motet.compiler.process.prefork import load_compiler

    with socket.socket(fileno=handle) as requests:
        load_compiler()
        guards: set[int] = set()
        while True:
            # Modules are loaded before the first request because they were needed before.
            ready, _, _ = select.select([requests], [], [], IDLE)
            message, handles, _, _ = socket.recv_fds(requests, 1 << 16, 3) if ready else (b"", [], 0, None)
            while (ended := _reaped()) != 0:
                guards.discard(ended)
            if not message:
                for guard in guards:  # their jobs may use the Triton process, which belongs to this one
                    os.waitpid(guard, 0)
                return 0
            folder = Path(os.fsdecode(message))
            wanted = msgspec.json.decode((folder / _SURROUNDINGS).read_bytes(), type=Surroundings)
            _expect(wanted)
            gc.freeze()  # collections of a job would write to, and so copy, every page of the compiler
            guard = os.fork()
            if guard == 0:
                requests.close()
                _guard(folder, wanted, *handles)
            guards.add(guard)
            for each in handles:
                os.close(each)
            _load(wanted)


def _reaped() -> int:
    """Reap a child that has ended; returns its id, 0 if there is none."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(-1, os.WNOHANG)[0]
    return 0


def _expect(wanted: Surroundings) -> None:
    from motet.compiler.process.worker import expect
    from motet.errors import MotetError

    with contextlib.suppress(MotetError):  # the job reports it
        expect(wanted.targets)


def _load(wanted: Surroundings) -> None:
    """Load modules that this job needs, for later jobs."""
    names = ["motet.compiler.codegen.triton.backend"] * any(":" in target for target in wanted.targets)
    if wanted.onnx and importlib.util.find_spec("onnx") is not None:
        names.append("motet.compiler.frontends.onnx.loading")
    for name in names:
        with contextlib.suppress(ImportError):  # as above
            importlib.import_module(name)
    from motet.compiler.process.warm_up import rehearse, rehearse_onnx

    with contextlib.suppress(ImportError):
        (rehearse_onnx if wanted.onnx else rehearse)()


def _guard(folder: Path, wanted: Surroundings, stdout: int, stderr: int, told: int) -> NoReturn:
    """Run the job in a fork, report its exit status, and kill it if the requesting process disconnects."""
    with contextlib.suppress(BaseException):
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(told)
            end_with(lambda: _work(folder, wanted, stdout, stderr, parent))
        os.close(stdout)
        _watch(pid, told)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(told, str(status).encode())
    os._exit(0)


def _watch(pid: int, told: int) -> None:
    """Wait until a process ends, or kill it when the reader of `told` disconnects."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return  # an older kernel: wait for the process, without noticing disconnects
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(told, 0)
    if any(found == told for found, _ in poll.poll()):
        os.kill(pid, signal.SIGKILL)


def _work(folder: Path, wanted: Surroundings, stdout: int, stderr: int, parent: int) -> int:
    """Run the job."""
    die_with_parent(parent)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.environ.clear()
    os.environ.update(wanted.environment)
    os.chdir(wanted.folder)
    from motet.compiler.process.worker import work

    return work(folder)


if __name__ == "__main__":
    _status = main(int(sys.argv[1]))
    os._exit(_status)
