"""A compiler worker started before its job: a fork of this process that loads the compiler in parallel.

    this process                      the worker
    Standby().start()      fork  →    imports MLIR, LLVM and the compiler
    reads arguments, queries the cache …
    begin(folder)          pipe  →    runs the job that the folder describes
    stdout                 ←  pipe    progress, the error

It saves the start of another interpreter and, on a machine with a free CPU, the time of its imports. Only a process
of Motet's own may be forked in this way, before it has started threads: the command line.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from motet.compiler.lifetime import die_with_parent, end_with


class Standby:
    """One worker for one job, started early or when needed. Leaving the `with` block ends it."""

    def __init__(self) -> None:
        self.pid = 0
        self.stdout: IO[bytes] = io.BytesIO()
        self._jobs = self._log = -1
        self._status: int | None = None

    @property
    def is_there(self) -> bool:
        """Whether there is a worker; starts it if this process may still be forked."""
        if not self.pid and threading.active_count() == 1:
            self.start()
        return bool(self.pid)

    def start(self) -> None:
        self._log = os.memfd_create("stderr")
        jobs, self._jobs = os.pipe()
        answers, theirs = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._jobs)
            os.close(answers)
            end_with(lambda: _live(jobs, theirs, self._log, parent))
        os.close(jobs)
        os.close(theirs)
        self.stdout = os.fdopen(answers, "rb")

    def begin(self, folder: Path) -> None:
        """Start the job in `folder`. A worker that died will not answer."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._jobs, os.fsencode(folder))
        self._hang_up()

    def wait(self) -> int:
        """Wait for its end; returns the exit status, negative for a signal."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def errors(self) -> str:
        """The worker's standard error."""
        return os.pread(self._log, os.fstat(self._log).st_size, 0).decode(errors="replace")

    def kill(self) -> None:
        if self.pid and self._status is None:
            os.kill(self.pid, signal.SIGKILL)

    def __enter__(self) -> Standby:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hang_up()
        self.stdout.close()
        self.kill()
        if self._log >= 0:
            self.wait()
            os.close(self._log)
            self._log = -1

    def _hang_up(self) -> None:
        if self._jobs >= 0:
            os.close(self._jobs)
            self._jobs = -1


def _live(jobs: int, answers: int, log: int, parent: int) -> int:
    """The main function of the worker."""
    die_with_parent(parent)
    null = os.open(os.devnull, os.O_RDWR)
    for number, target in ((null, 0), (answers, 1), (log, 2)):
        os.dup2(number, target)
    return _work(jobs)


def _work(jobs: int) -> int:
    _expect_families(sys.argv[1:])
    load_compiler()
    folder = os.fsdecode(os.read(jobs, 1 << 16))
    if not folder:
        return 0  # without a job
    from motet.compiler.process.worker import work

    return work(Path(folder))


def _expect_families(arguments: Sequence[str]) -> None:
    """Start to load the tools for devices that a command line seems to name."""
    named = [family for family in ("cuda", "hip", "intel") if any(family in argument for argument in arguments)]
    if named:
        from motet.compiler.process.worker import expect
        from motet.compiler.targets.families import target_names

        expect(target_names(named[0], {}, named[0])[:1])


def load_compiler() -> None:
    """Import the modules that most compilations need."""
    for name in ("artifact.writer", "compiler.process.worker", "compiler.frontends.mlir", "compiler.placement.place",
                 "compiler.pipeline", "compiler.codegen.cpu.backend"):
        importlib.import_module(f"motet.{name}")
