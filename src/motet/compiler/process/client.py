"""Runs jobs in workers: starts a worker or takes a standby one, forwards its progress, and raises its errors."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

import motet.errors as errors
from motet.compiler.job import REQUEST, SOURCE, Job, Message
from motet.compiler.process.fork_server import Hired, Keeper
from motet.compiler.process.prefork import Standby
from motet.compiler.source_files import LARGE, large_file
from motet.decoding import decode_json
from motet.errors import CompileError, Location, MotetError, WorkerCrash

Progress = Callable[[str, float], None]

_log = logging.getLogger("motet")


class JobFolder:
    """A folder for one job, removed at the end unless the worker crashed on it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="motet-job-"))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, WorkerCrash):
            shutil.rmtree(self.path, ignore_errors=True)


def run_job(job: Job, folder: Path, progress: Progress | None, worker: Standby | None = None) -> None:
    """Run the job in a worker; its result is then where the job says, or in the folder."""
    if job.source is not None and len(job.source) >= LARGE:
        (folder / SOURCE).write_bytes(job.source)
        file, state = large_file(str(folder / SOURCE))
        job = msgspec.structs.replace(job, source=None, file=file, state=state)
    (folder / REQUEST).write_bytes(msgspec.msgpack.encode(job))
    command = [sys.executable, "-m", "motet.compiler.process.worker", str(folder)]
    log = folder / "stderr"
    with worker if worker is not None and worker.is_there else _start(job, folder, command, log) as process:
        try:
            if isinstance(process, Standby):
                process.begin(folder)
            assert process.stdout is not None
            error = _listen(process.stdout, progress)
            status = process.wait()
        except BaseException:
            process.kill()
            raise
        words = process.errors() if isinstance(process, Standby) else log.read_text(errors="replace")
    if error is not None:
        raise error
    if status != 0:
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        last = words.strip().splitlines()
        detail = f": {last[-1].strip()}" if last else ""
        _keep_source(job, folder)
        raise WorkerCrash(f"{job.path}: the compiler died with {how}{detail}", shlex.join(command))


def _keep_source(job: Job, folder: Path) -> None:
    """Add to the job's folder all files needed to reproduce the job."""
    job = msgspec.structs.replace(job, result="")
    if job.file and Path(job.file).parent != folder:
        with contextlib.suppress(OSError):
            shutil.copy2(job.file, folder / SOURCE)
            job = msgspec.structs.replace(job, file=str(folder / SOURCE))
    (folder / REQUEST).write_bytes(msgspec.msgpack.encode(job))


_keeping = threading.Lock()
_keepers: list[Keeper] = []


def _start(job: Job, folder: Path, command: list[str], log: Path) -> subprocess.Popen[bytes] | Hired:
    """A worker in a process that is not a fork of this one, so that this process's state does not affect the
    compiler."""
    if sys.platform == "linux":
        with _keeping:
            for _ in range(2):
                if not _keepers or not _keepers[0].is_there:
                    for ended in _keepers:
                        ended.end()
                        atexit.unregister(ended.stop)
                    _keepers[:] = [Keeper(_environment())]
                    atexit.register(_keepers[0].stop)
                with contextlib.suppress(OSError):  # it has just ended
                    return _keepers[0].hire(folder, log, job.targets, may_be_onnx(job), _may_share(job))
    with log.open("wb") as stderr:
        return subprocess.Popen(
            [*command, str(os.getpid())], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
            env=_environment(),
        )


def may_be_onnx(job: Job) -> bool:
    """Whether the source looks like an ONNX model, which begins with its version field, or is unknown."""
    return job.format == "onnx" or (not job.text and (job.source is None or job.source.startswith(b"\x08")))


def _may_share(job: Job) -> bool:
    """Whether a worker may do this job between others: it opens no device, and needs no tools for others than the
    host."""
    return job.kind != "verify" and not job.tune and not job.tune_schedule and not any(":" in t for t in job.targets)


def _environment() -> dict[str, str]:
    """The worker's environment: it has the same package paths as this process, and disables numpy's threads, which take
    time to start."""
    return {"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def _listen(answers: IO[bytes], progress: Progress | None) -> MotetError | None:
    error: MotetError | None = None
    for line in answers:
        try:
            message = decode_json(line, Message)
        except msgspec.DecodeError:
            continue  # output of a library
        if message.error:
            error = _error(message)
        elif message.warning:
            _log.warning("%s", message.warning)
        elif message.report:
            sys.stderr.write(message.report)
            sys.stderr.flush()
        elif progress is not None:
            progress(message.progress, message.fraction)
    return error


def _error(message: Message) -> MotetError:
    kind = getattr(errors, message.error, MotetError)
    if kind is CompileError:
        place = Location(message.file, message.line, message.column) if message.file else None
        return CompileError(message.text, place)
    if kind is WorkerCrash:
        return WorkerCrash(message.text, message.reproducer)
    return kind(message.text)
