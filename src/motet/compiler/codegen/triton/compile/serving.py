"""The process that compiles Triton programs.

`process.py` starts it as `python -m motet.compiler.codegen.triton.compile.serving PARENT SOCKET TARGET`. With a file as
its argument, it repeats the request that a `WorkerCrash` names.

    load Triton for TARGET and compile a first program
    for every socket received through SOCKET  →  fork a process that reads a request from it and answers
        for every program  →  forked workers, each with one form at a time; a worker that dies fails that form

All forks share the loaded Triton. Programs that are expected to take longest are compiled first.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

import msgspec

from motet.compiler.codegen.triton.compile.worker import Made, ProgramUnit, Request, compile_form, prepare
from motet.compiler.lifetime import die_with_parent, end_with
from motet.compiler.targets.gpu import GpuTarget
from motet.decoding import decode_json, decode_msgpack

# How many times longer programs in Gluon take to compile than others of their length, and programs with products.
_GLUON, _PRODUCT = 5, 2
_TRIED = 4  # forms of a program for Intel's GPUs, where a small spill is not a reason to try all


def main(arguments: Sequence[str]) -> int:
    if len(arguments) == 1:
        request = decode_msgpack(Path(arguments[0]).read_bytes(), Request)
        prepare(request.target)
        print("\n".join(_described(form) for program in compile_request(request) for form in program))
        return 0
    die_with_parent(int(arguments[0]))
    clients = socket.socket(fileno=int(arguments[1]))
    prepare(decode_json(arguments[2], GpuTarget))
    gc.freeze()  # objects shared with forks are not garbage, and forks end too soon to create much
    gc.set_threshold(100_000, 50, 50)
    while True:
        message, handles, _, _ = socket.recv_fds(clients, 1, 1)
        while _reaped():
            pass
        if not message:
            return 0
        _fork_for(handles[0], clients)


def _fork_for(handle: int, clients: socket.socket) -> None:
    """Fork a process that answers the request from `handle`."""
    parent = os.getpid()
    if os.fork() == 0:
        clients.close()
        end_with(lambda: _answer(Connection(handle), parent))
    os.close(handle)


def _described(made: Made) -> str:
    return made.error or f"{made.entry}: form {made.form}, {made.registers} registers, {made.spills} bytes spilled"


def _reaped() -> bool:
    """Whether a child had ended, which is now reaped."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    return False


def _answer(client: Connection, parent: int) -> None:
    die_with_parent(parent)
    request = decode_msgpack(client.recv_bytes(), Request)
    client.send_bytes(msgspec.msgpack.encode(compile_request(request, client)))


def compile_request(request: Request, client: Connection | None = None) -> list[list[Made]]:
    """For every program, the first forms that fit and do not spill, at most `most`; if there are none, the form that
    fits and spills least. A single result with `error` means that none fits. Ends this process if `client`
    disconnects."""
    with tempfile.TemporaryDirectory(prefix="motet-triton-") as folder:
        return _RequestWork(request, Path(folder), client).run()


@dataclass
class _Program:
    """The progress of a program: the number of forms `begun`, in order, and the results of those that ended."""

    forms: list[ProgramUnit]
    most_tried: int
    begun: int = 0
    made: dict[int, Made] = field(default_factory=dict[int, Made])

    @property
    def fitting(self) -> int:
        return sum(not made.error and not made.spilling for made in self.made.values())

    def wants(self, most: int) -> bool:
        """Whether the next form is needed, whatever the results of the forms in progress."""
        under_way = self.begun - len(self.made)
        tried = self.begun - sum(bool(made.error) for made in self.made.values())
        return self.begun < len(self.forms) and tried < self.most_tried and self.fitting + under_way < most

    def answer(self) -> list[Made]:
        made = [self.made[number] for number in sorted(self.made)]
        fitting = [each for each in made if not each.error and not each.spilling]
        spilling = sorted((each for each in made if not each.error), key=lambda each: each.spills)
        return fitting or spilling[:1] or made[:1]


@dataclass
class _ProgramWorker:
    """A fork of this process that compiles what it is sent; `task` is its current program and form."""

    connection: Connection
    pid: int
    task: tuple[int, int]


@dataclass
class _RequestWork:
    request: Request
    folder: Path
    client: Connection | None
    programs: list[_Program] = field(init=False)
    tasks: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    workers: dict[Connection, _ProgramWorker] = field(default_factory=dict[Connection, _ProgramWorker])

    def __post_init__(self) -> None:
        most = _TRIED if self.request.target.xpu is not None else len(max(self.request.programs, key=len, default=[]))
        self.programs = [_Program(forms, max(most, self.request.most)) for forms in self.request.programs]

    def run(self) -> list[list[Made]]:
        try:
            for number in sorted(range(len(self.programs)), key=self._length, reverse=True):
                self._begin(number, first=False)
            idle: list[_ProgramWorker] = []
            while self.tasks or self.workers:
                while self.tasks and len(self.workers) < max(1, self.request.jobs):
                    self._give(idle)
                idle += self._take()
        finally:
            self._stop()
        return [program.answer() for program in self.programs]

    def _length(self, number: int) -> int:
        source = self.programs[number].forms[0].source
        return len(source) * (_GLUON if "gluon" in source else _PRODUCT if "tl.dot(" in source else 1)

    def _begin(self, number: int, first: bool) -> None:
        """Queue the forms of a program that are needed now, at the front or the back."""
        program = self.programs[number]
        while program.wants(self.request.most):
            (self.tasks.appendleft if first else self.tasks.append)((number, program.begun))
            program.begun += 1

    def _give(self, idle: list[_ProgramWorker]) -> None:
        task = self.tasks.popleft()
        worker = idle.pop() if idle else self._start()
        worker.task = task
        self.workers[worker.connection] = worker
        with contextlib.suppress(OSError):  # `_take` handles a worker that died
            worker.connection.send(task)

    def _take(self) -> list[_ProgramWorker]:
        """Collect results of workers; returns the workers that are idle now."""
        idle: list[_ProgramWorker] = []
        sources = [*self.workers, *([self.client] if self.client is not None else [])]
        for connection in wait(sources):
            if connection is self.client:
                self._stop()
                os._exit(1)  # the client is gone
            worker = self.workers.pop(connection)  # type: ignore[arg-type]
            number, form = worker.task
            try:
                made = decode_msgpack(worker.connection.recv_bytes(), Made)
                idle.append(worker)
            except (EOFError, OSError):
                made = Made(form, error=f"Triton's process died ({_reap(worker)})", died=True)
            self.programs[number].made[form] = made
            self._begin(number, first=True)
        return idle

    def _start(self) -> _ProgramWorker:
        left, right = socket.socketpair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            left.close()
            end_with(lambda: self._serve(Connection(right.detach()), parent))
        right.close()
        return _ProgramWorker(Connection(left.detach()), pid, (0, 0))

    def _serve(self, connection: Connection, parent: int) -> None:
        """The main loop of a worker."""
        die_with_parent(parent)
        with contextlib.suppress(EOFError):
            while True:
                number, form = connection.recv()
                unit = self.programs[number].forms[form]
                made = compile_form(unit, self.request.target, self.folder, form)
                connection.send_bytes(msgspec.msgpack.encode(made))

    def _stop(self) -> None:
        """End workers that are busy; idle ones end by themselves."""
        for worker in self.workers.values():
            os.kill(worker.pid, signal.SIGKILL)


def _reap(worker: _ProgramWorker) -> str:
    worker.connection.close()
    status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


if __name__ == "__main__":
    _status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(_status)  # an orderly exit would spend time to destroy LLVM's objects
