"""`motet ARGUMENTS` in processes that need not import anything: forks of one that has.

    a test                              the server, one for each process of pytest
    run(arguments, folder)   socket →   fork, in the folder, with the caller's environment and files
    the process's number     ←          the fork runs the command line and exits as Python does
    its exit status          ←

Half of the time of a short command is the start of Python and its imports, and so it is with the process that keeps the
compiler for a command (`fork_server`): that is a fork, too, made before the command has any threads. Where a fork would
differ from a new process — other variables for the interpreter or the loader, no `fork` — a new one is started.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_READ_AT_THE_START = ("PYTHON", "LD_", "MALLOC_", "OPENBLAS_", "OMP_")  # prefixes of variables
_PROGRAM = Path(__file__).resolve().parents[2] / "src" / "motet" / "__main__.py"  # what Python calls `-m motet`
_LONGEST = 1 << 17  # bytes of a request
# Modules that most commands import when they run.
_EXPECTED = ("compiler.service", "runtime.binding", "runtime.session", "runtime.drivers.host.driver",
             "runtime.drivers.null", "tools.opening", "tools.plans", "tools.progress", "tools.run_ranks",
             "specs", "tools.show", "tools.slow_kernels", "tools.verifying")


def run(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """The outcome of `motet ARGUMENTS`, as of `subprocess.run`. Raises `subprocess.TimeoutExpired`."""
    command = [sys.executable, "-m", "motet", *arguments]
    request = json.dumps({"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)})
    server = _server() if sys.platform == "linux" and len(request) < _LONGEST else None
    if server is None or not server.fits(environment) or not server.lock.acquire(blocking=False):
        return subprocess.run(
            command, cwd=folder, env=dict(environment), text=True, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=timeout, check=False,
        )
    try:
        status, output, errors = server.run(request.encode(), command, timeout)
    finally:
        server.lock.release()
    return subprocess.CompletedProcess(command, status, output, errors)


@functools.cache
def _server() -> _Server:
    return _Server()


class _Server:
    """A process that has imported the command line and the compiler. It ends with its socket."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lock = threading.Lock()
        self._own = _read_at_the_start(os.environ)
        self._socket = ours
        environment = {**os.environ, "PYTHONPATH": str(_PROGRAM.parents[1])}
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())], env=environment, pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether a new process with `environment` would start like the server's."""
        return _read_at_the_start(environment) == self._own

    def run(self, request: bytes, command: list[str], timeout: float) -> tuple[int, str, str]:
        """The exit status, negative for a signal, and what was written to standard output and error."""
        null, output, errors = os.open(os.devnull, os.O_RDONLY), os.memfd_create("output"), os.memfd_create("errors")
        try:
            socket.send_fds(self._socket, [request], [null, output, errors])
            pid = int(self._socket.recv(64))
            self._socket.settimeout(timeout)
            try:
                status = int(self._socket.recv(64))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._socket.settimeout(None)
                self._socket.recv(64)
                raise subprocess.TimeoutExpired(command, timeout, _text(output), _text(errors)) from None
            finally:
                self._socket.settimeout(None)
            return status, _text(output), _text(errors)
        finally:
            for file in (null, output, errors):
                os.close(file)


def _read_at_the_start(environment: Mapping[str, str]) -> dict[str, str]:
    """What Python, its libraries or the loader read when a process starts; `PYTHONPATH` is always this tree's."""
    return {
        name: value for name, value in environment.items()
        if name.startswith(_READ_AT_THE_START) and name != "PYTHONPATH"
    }


def _text(file: int) -> str:
    return os.pread(file, os.fstat(file).st_size, 0).decode()


def _serve(connection: socket.socket) -> None:
    """Answer requests; returns in each fork, which has become what was asked for."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, _LONGEST, 3)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            connection.close()
            _become(json.loads(message), files)
            return
        for file in files:
            os.close(file)
        connection.send(b"%d" % pid)
        connection.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _become(request: dict[str, Any], files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[0] = request["folder"]
    sys.argv[:] = [str(_PROGRAM), *request["arguments"]]
    if request["arguments"][:1] != ["compile"]:  # which has a worker without a keeper
        _fork_keeper()


def _fork_keeper() -> None:
    """Fork this process; the first keeper of a command's compiler is that fork."""
    from motet.compiler.process import fork_server

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _keep(theirs)
    theirs.close()
    unused, start_new = [pid], fork_server.start_server

    def start(handle: int, environment: dict[str, str]) -> subprocess.Popen[bytes] | _Forked:
        request = json.dumps({"environment": environment, "path": sys.path}).encode()
        differs = _read_at_the_start(environment) != _read_at_the_start(os.environ)
        if not unused or len(request) >= _LONGEST or differs:
            return start_new(handle, environment)
        socket.send_fds(ours, [request], [handle])
        return _Forked(unused.pop())

    fork_server.start_server = start  # pyright: ignore[reportAttributeAccessIssue]


class _Forked:
    """What the module uses of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended = False

    def poll(self) -> int | None:
        self._ended = self._ended or os.waitpid(self.pid, os.WNOHANG)[0] != 0
        return 0 if self._ended else None

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        if not self._ended:
            os.waitpid(self.pid, 0)
            self._ended = True


def _keep(requests: socket.socket) -> NoReturn:
    """Become a keeper when the command asks for it; end with the command otherwise."""
    from motet.compiler.lifetime import end_with
    from motet.compiler.process import fork_server

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as the keeper does
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # the files of the command are read when it has ended
        os.dup2(null, number)
    message, handles, _, _ = socket.recv_fds(requests, _LONGEST, 1)
    if not message:
        os._exit(0)
    request = json.loads(message)
    requests.close()
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = request["path"]
    sys.argv[:] = [str(fork_server.__file__), str(handles[0])]
    end_with(lambda: fork_server.main(handles[0]))


def _main(connection: int) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does, before numpy is imported
    from motet.compiler.process.prefork import load_compiler
    from motet.compiler.process.warm_up import rehearse, rehearse_onnx
    from motet.errors import MotetError
    from motet.tools.app import make_app
    from motet.tools.main import main

    load_compiler()
    rehearse()
    with contextlib.suppress(ImportError):
        rehearse_onnx()
    for name in _EXPECTED:
        importlib.import_module(f"motet.{name}")
    with contextlib.suppress(MotetError, SystemExit), contextlib.redirect_stderr(io.StringIO()):
        make_app()(["inspect", "there is no such file"])  # typer imports what it needs when it reads arguments
    gc.freeze()  # collections of forks would write to, and so copy, all pages
    with contextlib.closing(socket.socket(fileno=connection)) as own:
        _serve(own)
    main()


if __name__ == "__main__":
    _main(int(sys.argv[1]))
