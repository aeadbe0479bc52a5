"""The client side of processes that have Triton loaded (`serving.py`), one for each family of devices.

`start` returns immediately and lets a process load Triton in the background; `begin` starts it if needed. It ends with
this process, or with the last forked copy of this process that uses it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

import msgspec

import motet
from motet.compiler.codegen.triton.compile.installation import interpreter
from motet.compiler.codegen.triton.compile.worker import Made, Request
from motet.compiler.targets.gpu import GpuTarget
from motet.decoding import decode_msgpack
from motet.errors import WorkerCrash

_MODULE = "motet.compiler.codegen.triton.compile.serving"


@dataclass
class _Server:
    clients: socket.socket  # receives the sockets of clients with a request
    log: IO[bytes]  # its standard error
    process: subprocess.Popen[bytes]


_servers: dict[str, _Server] = {}  # by family


def start(target: GpuTarget) -> None:
    """Start a process that loads Triton for the family of `target`, unless there is one."""
    if target.family not in _servers:
        _servers[target.family] = _start(target)


def _start(target: GpuTarget) -> _Server:
    ours, theirs = socket.socketpair()
    log = tempfile.TemporaryFile()  # noqa: SIM115 - without a name: nothing stays if this dies
    with theirs:
        described = msgspec.json.encode(target).decode()
        process = subprocess.Popen(
            [interpreter(target), "-m", _MODULE, str(os.getpid()), str(theirs.fileno()), described],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_path(target))},
        )
    return _Server(ours, log, process)


def _path(target: GpuTarget) -> list[str]:
    """Where the process finds modules: all that this one has, except for another Python, which has its own packages."""
    if target.xpu is not None:
        return [str(Path(motet.__file__).parents[1])]
    return list(filter(None, sys.path))


def stop(family: str) -> None:
    """End the process of a family and its work, if this process has started it."""
    server = _servers.pop(family, None)
    if server is not None:
        server.clients.close()
        server.process.kill()
        server.process.wait()


@dataclass(frozen=True)
class Pending:
    """A request in progress."""

    request: Request
    connection: Connection

    def result(self) -> list[list[Made]]:
        """The result of `serving.compile_request` for every program; waits for it. Raises WorkerCrash if the serving
        process has died."""
        try:
            with self.connection:
                return decode_msgpack(self.connection.recv_bytes(), list[list[Made]])
        except (EOFError, OSError):
            server = _servers.pop(self.request.target.family, None)
            raise worker_crash("", self.request, _last_words(server)) from None


def begin(request: Request) -> Pending:
    """Send a request and return without waiting for the answer."""
    ours, theirs = socket.socketpair()
    connection = Connection(ours.detach())
    with theirs:
        start(request.target)
        try:
            _introduce(theirs, request.target)
        except OSError:  # it has ended in the meantime
            del _servers[request.target.family]
            start(request.target)
            _introduce(theirs, request.target)
    pending = Pending(request, connection)
    with contextlib.suppress(OSError):  # `result` reports it
        connection.send_bytes(msgspec.msgpack.encode(request))
    return pending


def _introduce(client: socket.socket, target: GpuTarget) -> None:
    socket.send_fds(_servers[target.family].clients, [b"+"], [client.fileno()])


def worker_crash(kernel: str, request: Request, why: str) -> WorkerCrash:
    """The error for a process that died; the request is kept in a new temporary folder to reproduce it."""
    file = Path(tempfile.mkdtemp(prefix="motet-crash-")) / "request.msgpack"
    file.write_bytes(msgspec.msgpack.encode(request))
    what = f"kernel {kernel}" if kernel else "kernels"
    command = [Path(interpreter(request.target)).name, "-m", _MODULE, str(file)]
    return WorkerCrash(f"{what}: no code for {request.target.name}: {why}", shlex.join(command))


def keep_failed(made: Made) -> str:
    """How to repeat a failure of Intel's offline compiler, whose input is kept; empty for other failures."""
    if not made.reproduce:
        return ""
    folder = Path(tempfile.mkdtemp(prefix="motet-crash-"))
    (folder / "k.spv").write_bytes(made.spirv)
    return f"; to reproduce: cd {shlex.quote(str(folder))} && {made.reproduce}"


def _last_words(server: _Server | None) -> str:
    if server is None:
        return "Triton's process died"
    server.log.seek(0)
    words = server.log.read().decode(errors="replace").strip().splitlines()[-1:]
    return ": ".join(["Triton's process died", *words])
