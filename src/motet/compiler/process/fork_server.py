"""A process that keeps the compiler loaded for a process that compiles repeatedly, such as a notebook.

It runs as `python -m motet.compiler.process.fork_server SOCKET`. Jobs run in forks of it, so that a crash ends only
that fork. A fork does one job after the other, which saves the next ones its first steps and the copies of the pages
that it writes; jobs at once run in as many forks.

    this process                      the server                   a guard                  its worker
    Keeper().hire(folder)   socket  →  takes an idle guard       →  passes it on          →  process.worker.work
                                       or forks one                 forks its worker
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
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn

import msgspec

from motet.compiler.lifetime import die_with_parent, end_with
from motet.decoding import decode_json

IDLE = 300.0  # seconds without requests after which a keeper ends
_MOST_FREE = 4  # workers without a job
_MOST_JOBS = 200  # of a worker, and KiB that it may have used: what libraries do not give back has a bound
_MOST_MEMORY = 1 << 20
_NEXT = b"."  # a guard or worker takes another job
_SURROUNDINGS = "surroundings.json"
_IGNORED = "PYTEST_CURRENT_TEST"  # an environment variable that pytest changes for each test and no job reads


class Surroundings(msgspec.Struct, frozen=True):
    """The environment of a job, taken from the requesting process, the modules that it needs, and whether the worker
    may do other jobs before and after it."""

    folder: str
    environment: dict[str, str]
    targets: list[str]
    onnx: bool
    shared: bool


class Keeper:
    """A keeper of this process. Not thread-safe."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._owner = os.getpid()
        self._path = list(sys.path)
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = start_server(theirs.fileno(), environment)

    @property
    def is_there(self) -> bool:
        """Whether it serves this very process, with the same package paths, and has not ended."""
        return self._owner == os.getpid() and self._path == sys.path and self._process.poll() is None

    def hire(self, folder: Path, log: Path, targets: tuple[str, ...], onnx: bool, shared: bool) -> Hired:
        """Start the job in `folder`; its errors go to `log`. Unless it is `shared`, it gets a worker of its own.
        Raises OSError if the keeper has ended."""
        surroundings = Surroundings(str(Path.cwd()), dict(os.environ), list(targets), onnx, shared)
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


def start_server(handle: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the process that serves the socket `handle`. The tests replace this, by a fork."""
    return subprocess.Popen(
        [sys.executable, "-m", __spec__.name, str(handle)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, pass_fds=[handle], env=environment,
    )


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


@dataclass
class _Guard:
    """A guard, as the server knows it: it gets jobs over a socket, and says there that it is free for the next."""

    pid: int
    jobs: socket.socket
    environment: dict[str, str]  # of its jobs, of which the compiler remembers what it has read
    is_free: bool = False

    def give(self, folder: Path, handles: Sequence[int]) -> bool:
        """Give it a job; False if it has ended."""
        self.is_free = False
        with contextlib.suppress(OSError):
            socket.send_fds(self.jobs, [os.fsencode(folder)], handles)
            return True
        return False


def main(handle: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the requesting process handles interrupts from the terminal
    from motet.compiler.process.prefork import load_compiler

    with socket.socket(fileno=handle) as requests:
        load_compiler()
        guards: list[_Guard] = []
        while True:
            ready, _, _ = select.select([requests, *(guard.jobs for guard in guards)], [], [], IDLE)
            for guard in [guard for guard in guards if guard.jobs in ready]:
                _hear(guard, guards)
            if ready and requests not in ready:
                continue
            message, handles, _, _ = socket.recv_fds(requests, 1 << 16, 3) if ready else (b"", [], 0, None)
            if not message:
                for guard in guards:  # their jobs may use the Triton process, which belongs to this one
                    guard.jobs.close()
                    os.waitpid(guard.pid, 0)
                return 0
            folder = Path(os.fsdecode(message))
            wanted = decode_json((folder / _SURROUNDINGS).read_bytes(), Surroundings)
            if not _is_given(folder, wanted, handles, guards):
                _expect(wanted)
                gc.freeze()  # collections of a job would write to, and so copy, every page of the compiler
                guards.append(_forked(wanted, requests, handles, guards))
                guards[-1].give(folder, handles)
            for each in handles:
                os.close(each)
            _load(wanted)


def _hear(guard: _Guard, guards: list[_Guard]) -> None:
    """Note what a guard says: that it is free, or with its end that it has ended. Only a few free ones are kept."""
    with contextlib.suppress(ConnectionError):
        guard.is_free = bool(guard.jobs.recv(1))
    free = [each for each in guards if each.is_free]
    for each in free[:-_MOST_FREE] if guard.is_free else [guard]:
        each.jobs.close()
        os.waitpid(each.pid, 0)
        guards.remove(each)


def _is_given(folder: Path, wanted: Surroundings, handles: Sequence[int], guards: Sequence[_Guard]) -> bool:
    """Give a job to a free guard whose jobs have the same environment, if there is one."""
    environment = _telling(wanted.environment)
    free = (guard for guard in guards if guard.is_free and wanted.shared and guard.environment == environment)
    return any(guard.give(folder, handles) for guard in free)


def _telling(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name != _IGNORED}


def _forked(
    wanted: Surroundings, requests: socket.socket, handles: Sequence[int], guards: Sequence[_Guard]
) -> _Guard:
    """A new guard, without what belongs to the server."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        for inherited in (requests, ours, *(guard.jobs for guard in guards)):
            inherited.close()
        for each in handles:
            os.close(each)
        _guard(theirs, _MOST_JOBS if wanted.shared else 1)
    theirs.close()
    return _Guard(pid, ours, _telling(wanted.environment))


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


# -- guards and their workers ----------------------------------------------------------------------


def _guard(jobs: socket.socket, most: int) -> NoReturn:
    """Let a worker, a fork of this process, do at most so many jobs, and report the exit status of each; kill it if the
    process that requested the job disconnects."""
    with contextlib.suppress(BaseException):
        parent = os.getpid()
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            jobs.close()
            ours.close()
            end_with(lambda: _work(theirs, parent))
        theirs.close()
        for number in range(1, most + 1):
            folder, handles, _, _ = socket.recv_fds(jobs, 1 << 16, 3)
            if not folder:
                break  # the server has ended, or has enough workers
            *outputs, told = handles
            socket.send_fds(ours, [folder], outputs)
            for each in outputs:
                os.close(each)
            answer = _answer(pid, ours, told)
            status = int(answer.rstrip(_NEXT)) if answer else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            goes_on = answer.endswith(_NEXT) and number < most
            if goes_on:
                with contextlib.suppress(BrokenPipeError):
                    jobs.send(_NEXT)  # before the requesting process knows, which may have another job at once
            with contextlib.suppress(BrokenPipeError):
                os.write(told, str(status).encode())
            os.close(told)
            if not goes_on:
                break
    os._exit(0)  # its worker dies with it


def _answer(pid: int, worker: socket.socket, told: int) -> bytes:
    """The exit status that the worker `pid` says at the end of a job, with `_NEXT` if it takes another; nothing if it
    dies, or is killed because the reader of `told` disconnects."""
    poll = select.poll()
    poll.register(worker, select.POLLIN)
    poll.register(told, 0)
    handle = -1
    with contextlib.suppress(OSError):  # an older kernel: forks of a worker that died may keep its socket open
        handle = os.pidfd_open(pid)
        poll.register(handle, select.POLLIN)
    try:
        found = {each for each, _ in poll.poll()}
        if worker.fileno() in found:
            return worker.recv(1 << 6)
        if told in found:
            os.kill(pid, signal.SIGKILL)
        return b""
    finally:
        if handle >= 0:
            os.close(handle)


def _work(guard: socket.socket, parent: int) -> int:
    """Run jobs as they come, and say each one's exit status."""
    die_with_parent(parent)
    from motet.compiler.process.worker import work

    nowhere = os.open(os.devnull, os.O_RDWR)
    while True:
        message, outputs, _, _ = socket.recv_fds(guard, 1 << 16, 2)
        if not message:
            return 0
        for output, target in zip(outputs, (1, 2), strict=True):
            os.dup2(output, target)
            os.close(output)
        folder = Path(os.fsdecode(message))
        wanted = decode_json((folder / _SURROUNDINGS).read_bytes(), Surroundings)
        os.environ.clear()
        os.environ.update(wanted.environment)
        os.chdir(wanted.folder)
        status = work(folder)
        for stream, target in ((sys.stdout, 1), (sys.stderr, 2)):
            stream.flush()
            os.dup2(nowhere, target)
        small = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < _MOST_MEMORY
        guard.send(str(status).encode() + _NEXT * small)
        gc.collect()


if __name__ == "__main__":
    _status = main(int(sys.argv[1]))
    os._exit(_status)
