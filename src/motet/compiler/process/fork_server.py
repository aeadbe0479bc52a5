"""A process that keeps the compiler loaded for one that compiles repeatedly, such as a notebook.

It runs as `python -m motet.compiler.process.fork_server SOCKET`. A fork of it does each job, so that a crash ends that
fork alone.

    this process                       the keeper                   a guard                  the job
    Keeper().hire(folder)   socket  →  forks                     →  forks                 →  process.worker.work
    stdout                  ←  pipe    ·····························································  progress, errors
    wait()                  ←  pipe    ····························  its exit status
    kill(), or its end      hang-up →  ···························  kills it

The keeper ends when the process that started it does, or when nothing was asked of it for a while. Jobs have the
environment and the folder of the process that asks. Where there is Triton, the keeper keeps it loaded too.
"""

from __future__ import annotations

import contextlib
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

IDLE = 300.0  # seconds after which a keeper ends that nobody asks for anything
_SURROUNDINGS = "surroundings.json"


class Surroundings(msgspec.Struct, frozen=True):
    """What a job has of the process that asks for it, and what it will need that takes its time to load."""

    folder: str
    environment: dict[str, str]
    targets: list[str]
    onnx: bool


class Keeper:
    """A keeper of this process. Not for several threads at once."""

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
        """Whether it serves this very process, finds packages where this one does, and has not ended."""
        return self._owner == os.getpid() and self._path == sys.path and self._process.poll() is None

    def hire(self, folder: Path, log: Path, targets: tuple[str, ...], onnx: bool) -> Hired:
        """Have the job in `folder` done, which writes its errors to `log`. Raises OSError where the keeper is gone."""
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
        """Let it end when its jobs have."""
        if self._owner == os.getpid():
            self._socket.close()

    def stop(self) -> None:
        """End it at once, where it is this process's own."""
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
        """Its exit status, negative for a signal, when it has ended."""
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


# -- the keeper ----------------------------------------------------------------------------------


def main(handle: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt from the terminal is for the process that asks
    from motet.compiler.process.prefork import load_compiler

    with socket.socket(fileno=handle) as requests:
        load_compiler()
        guards: set[int] = set()
        while True:
            # What loads while nobody asks has been needed before.
            ready, _, _ = select.select([requests], [], [], IDLE)
            message, handles, _, _ = socket.recv_fds(requests, 1 << 16, 3) if ready else (b"", [], 0, None)
            while (ended := _reaped()) != 0:
                guards.discard(ended)
            if not message:
                for guard in guards:  # their jobs may need Triton's process, which is this one's
                    os.waitpid(guard, 0)
                return 0
            folder = Path(os.fsdecode(message))
            wanted = msgspec.json.decode((folder / _SURROUNDINGS).read_bytes(), type=Surroundings)
            _expect(wanted)
            guard = os.fork()
            if guard == 0:
                requests.close()
                _guard(folder, wanted, *handles)
            guards.add(guard)
            for each in handles:
                os.close(each)
            _load(wanted)


def _reaped() -> int:
    """A child that has ended, of which nothing is left now; 0 if there is none."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(-1, os.WNOHANG)[0]
    return 0


def _expect(wanted: Surroundings) -> None:
    from motet.compiler.process.worker import expect
    from motet.errors import MotetError

    with contextlib.suppress(MotetError):  # which the job will say
        expect(wanted.targets)


def _load(wanted: Surroundings) -> None:
    """Load for later jobs what this one has to load itself."""
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
    """Do the job in a fork, say how it ended, and end it when nobody wants to know any more."""
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
    """Wait until a process ends, or kill it when the reader of `told` hangs up."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return  # an older system: the process is waited for, whoever hangs up
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(told, 0)
    if any(found == told for found, _ in poll.poll()):
        os.kill(pid, signal.SIGKILL)


def _work(folder: Path, wanted: Surroundings, stdout: int, stderr: int, parent: int) -> int:
    """The job."""
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
