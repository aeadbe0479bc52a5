"""The interface of the compiler for the rest of Motet: requests in, artifacts and text out, with work done in another
process.

Importing it is light: neither MLIR nor LLVM is loaded in the caller's process.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from motet.artifact.device_flags import DeviceFlag
from motet.artifact.reader import Artifact
from motet.cache import Cache
from motet.compiler.cache_key import cache_key, require_wheels
from motet.compiler.job import ARRAYS, ORACLES, RESULT, STAGES, TUNINGS, Job, ListedWait, VerifyReport
from motet.compiler.process.client import JobFolder, Progress, run_job
from motet.compiler.process.prefork import Standby
from motet.compiler.request import CompileRequest, job_of
from motet.decoding import decode_json
from motet.errors import ArtifactError, OptionError

if TYPE_CHECKING:
    from motet.compiler.build.listing import ListedKernel

__all__ = ["STAGES", "CompileRequest", "VerifyReport", "compile", "emit", "list_kernels", "list_waits",
           "optimise", "targets_of", "verify"]


def compile(
    request: CompileRequest, progress: Progress | None = None, worker: Standby | None = None
) -> Artifact:
    """Compile, in `worker` if one is given. Raises `CompileError` for the program, `OptionError` for the request,
    `WorkerCrash`."""
    job = _job(request, "compile")
    if not request.cache or job.tune == "measure" or job.reports:
        with JobFolder() as folder:
            run_job(job, folder, progress, worker)
            _keep_tunings(folder, dict(request.options).get("tuning"))
            return _opened(folder / RESULT)
    cache, key = Cache(), cache_key(job)
    if (kept := cache.get_file(key)) is not None:
        with contextlib.suppress(ArtifactError):
            artifact = _opened(kept)
            artifact.check()
            return artifact
        cache.remove(key)
    with JobFolder() as folder:
        result = cache.aside()
        try:
            try:
                run_job(msgspec.structs.replace(job, result=str(result or "")), folder, progress, worker)
            except ArtifactError as error:
                if result is None or not str(error).startswith(str(result)):
                    raise
                # The cache's disk is full: compile again, into the job's folder.
                result.unlink(missing_ok=True)
                result = None
                run_job(job, folder, progress)
            artifact = _opened(result or folder / RESULT)
            if result is not None:
                cache.put_file(key, result)
            return artifact
        finally:
            if result is not None:
                result.unlink(missing_ok=True)  # it is still there only if it was not stored


def _opened(file: Path) -> Artifact:
    """The artifact in a file that may be removed once it is open."""
    return Artifact.open(file, name="artifact")


def _keep_tunings(folder: Path, path: str | None) -> None:
    """Write a worker's measurements to the file named for them, if any."""
    if path is not None and (folder / TUNINGS).exists():
        from motet.artifact.files import write_atomically

        write_atomically(Path(path), [memoryview((folder / TUNINGS).read_bytes())])


def emit(request: CompileRequest, stage: str) -> str:
    """The program at one of `STAGES`, as text."""
    if stage not in STAGES:
        raise OptionError(f"stage {stage}: unknown; available: {', '.join(STAGES)}")
    with JobFolder() as folder:
        run_job(msgspec.structs.replace(_job(request, "emit"), stage=stage), folder, None)
        return (folder / RESULT).read_text()


def _job(request: CompileRequest, kind: Literal["compile", "emit", "verify", "list"]) -> Job:
    """The job of a request. Raises CompileError if a wheel that compiles is not installed."""
    job = job_of(request, kind)
    require_wheels()
    return job


def targets_of(request: CompileRequest) -> tuple[str, ...]:
    """The full names of the targets of a request, in order of preference."""
    return _job(request, "list").targets


def list_kernels(request: CompileRequest) -> list[ListedKernel]:
    """The kernels of a program for the first of the request's targets, with the schedules that the compiler chooses."""
    with JobFolder() as folder:
        run_job(_job(request, "list"), folder, None)
        return pickle.loads((folder / RESULT).read_bytes())  # written by this user's worker into a private folder


def list_waits(request: CompileRequest) -> list[ListedWait]:
    """The waits of a program's asynchronous GPU operations that are missing, and those that are not needed."""
    with JobFolder() as folder:
        run_job(job_of(request, "waits"), folder, None)
        return decode_json((folder / RESULT).read_bytes(), list[ListedWait])


def optimise(text: str, file: str, pipeline: str, devices: Sequence[DeviceFlag] = ()) -> str:
    """`text` after a pass pipeline given as text; `devices` are for its passes that assign devices."""
    require_wheels()
    job = Job("optimise", file or "<string>", text.encode(), True, pipeline=pipeline, devices=tuple(devices))
    with JobFolder() as folder:
        run_job(job, folder, None)
        return (folder / RESULT).read_text()


def verify(
    request: CompileRequest, function: str, inputs: list[np.ndarray], results: list[np.ndarray],
    oracle: str = "upstream",
) -> VerifyReport:
    """Compare `results` of `function` on `inputs` with those of `oracle`, one of `ORACLES`."""
    if oracle not in ORACLES:
        raise OptionError(f"--oracle {oracle}: no such oracle; expected one of {', '.join(ORACLES)}")
    job = msgspec.structs.replace(_job(request, "verify"), function=function, oracle=oracle)
    with JobFolder() as folder:
        arrays = {f"input{i}": _plain(a) for i, a in enumerate(inputs)}
        arrays |= {f"result{i}": _plain(a) for i, a in enumerate(results)}
        np.savez(folder / ARRAYS, **arrays)  # type: ignore[arg-type]
        run_job(job, folder, None)
        return decode_json((folder / RESULT).read_bytes(), VerifyReport)


def _plain(array: np.ndarray) -> np.ndarray:
    """Arrays of types that numpy's files do not support as raw bytes of the same width."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
