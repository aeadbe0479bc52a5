"""The compiler as the rest of Motet sees it: requests in, artifacts and text out, work done in another process.

Importing this is light: neither MLIR nor LLVM is loaded in the caller's process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.util
import logging
import mmap
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import msgspec
import numpy as np

import motet.errors as errors
from motet.artifact.reader import Artifact
from motet.cache import Cache
from motet.compiler import external_data
from motet.compiler.external_data import State
from motet.compiler.ir.hal_attributes import ALIASES, DEPRECATED
from motet.compiler.placement.rates import read_rates
from motet.compiler.process.fork_server import Hired, Keeper
from motet.compiler.process.job import (
    ARRAYS,
    NO_REPORTS,
    ORACLES,
    REQUEST,
    RESULT,
    SOURCE,
    STAGES,
    TUNINGS,
    Job,
    Message,
    PassReports,
    VerifyReport,
)
from motet.compiler.process.prefork import Standby
from motet.compiler.protobuf import Content
from motet.compiler.targets.cpu import DEFAULT_TARGETS
from motet.compiler.targets.device_flags import DeviceFlag, parse_device_flags
from motet.compiler.targets.families import HOST, driver_options, target_names
from motet.errors import ArtifactError, CompileError, Location, MotetError, OptionError, WorkerCrash
from motet.version import VERSION

Progress = Callable[[str, float], None]

PLACEMENTS = ("default", "auto")
TUNING = ("off", "measure")
_LARGE = 1 << 20  # bytes of a source from which on it goes through a file
_log = logging.getLogger("motet")

__all__ = ["STAGES", "CompileRequest", "VerifyReport", "compile", "emit", "optimise", "verify"]

# Every option that `--option` takes, with what it means.
OPTIONS = {
    "jobs": "how many processes compile kernels at once; a number, default: the processors",
    "memory-limit": "how large the memory for intermediate tensors of a function may be; bytes, or with K, M or G"
    " behind them, default: 1.25 times the least that they need, or 1 MiB",
    "fuse-siblings": "true; or false: a kernel for each of the convolutions of one tensor that meet in one operation,"
    " which may then run at once",
    "unchecked-indices": "false; or true: leave out the bounds checks of indices that a call decides; a wrong index"
    " then reads or writes foreign memory, or ends the process",
    "tune-schedule": "off, or measure: run every function here in several schedules (commands one after the other or at"
    " once, in other orders, with more memory) and keep the fastest of each",
    "tune-inputs": "extents to measure functions with that have dynamic ones; shapes of all inputs,"
    " such as 64x128xf32,128xf32, of several functions NAME:SHAPES;NAME:SHAPES",
    "tune": "off; candidates: keep the best few forms of each GPU kernel in the artifact, for motet tune to choose"
    " from; or measure: choose now, on this machine's GPU",
    "library": "whether cuBLASLt, where it is installed, calculates products in the place of GPU kernels, which stand"
    " behind it: tuned, where it was measured to be faster (the default); cublaslt: wherever it can; none: nowhere",
    "tuning": "which forms of GPU kernels are fastest; a file that motet tune -o FILE writes. With tune=measure it is"
    " completed, or made",
    "schedules": "how kernels are cut: tiles, blocks, tasks, forms; a file that motet inspect --schedules --json"
    " prints, or the part of it that is to be other than the compiler chooses",
    "keep-source": "false; or true: keep the source in the artifact, so that motet run and bench can --verify it;"
    " weights of an ONNX model that are used unchanged are stored once, all other constants twice",
    "sequences": "the elements of inputs of an ONNX model that are sequences, and which optional inputs no call gives;"
    " x=3x4xf32,?x4xf32;y=none",
    "rates": "what devices can do, for automatic placement; a file that motet devices --measure -o FILE writes",
}


@dataclass(frozen=True)
class CompileRequest:
    """What to compile. `source` is text, bytes or, where it is read from the file `path`, None.
    `devices` are (name or "", device expression); `options` are those of `OPTIONS`; `placement` is `default`, where
    the default device takes what nothing places, or `auto`, where a model of costs places it; `places` are
    patterns of names that operations have in the source, and the devices where those run. `reports` says what is
    printed of passes, on standard error; the program is then compiled even if the cache has its artifact."""

    source: str | bytes | None
    path: str = ""
    format: str = "auto"
    devices: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    cache: bool = True
    placement: str = "default"
    places: tuple[tuple[str, str], ...] = ()
    reports: PassReports = NO_REPORTS


def compile(
    request: CompileRequest, progress: Progress | None = None, worker: Standby | None = None
) -> Artifact:
    """Compile, in `worker` where one stands by; raises `CompileError` for the program, `OptionError` for the
    request, `WorkerCrash`."""
    job = _job(request, "compile")
    _wheels()
    if not request.cache or job.tune == "measure" or job.reports:
        with _Folder() as folder:
            _run(job, folder, progress, worker)
            _keep_tunings(folder, dict(request.options).get("tuning"))
            return _opened(folder / RESULT)
    cache, key = Cache(), _key(job)
    if (kept := cache.get_file(key)) is not None:
        with contextlib.suppress(ArtifactError):
            artifact = _opened(kept)
            artifact.check()
            return artifact
        cache.remove(key)
    with _Folder() as folder:
        result = cache.aside()
        try:
            try:
                _run(msgspec.structs.replace(job, result=str(result or "")), folder, progress, worker)
            except ArtifactError as error:
                if result is None or not str(error).startswith(str(result)):
                    raise
                # The cache's disk is full, which is no reason not to compile: once more, into the job's folder.
                result.unlink(missing_ok=True)
                result = None
                _run(job, folder, progress)
            artifact = _opened(result or folder / RESULT)
            if result is not None:
                cache.put_file(key, result)
            return artifact
        finally:
            if result is not None:
                result.unlink(missing_ok=True)  # still there only if it is not kept


def _opened(file: Path) -> Artifact:
    """The artifact in a file that may be gone as soon as it is open."""
    return Artifact.open(file, name="artifact")


def _keep_tunings(folder: Path, path: str | None) -> None:
    """Writes what a worker has measured to the file that was named for it, if one was."""
    if path is not None and (folder / TUNINGS).exists():
        from motet.artifact.files import write_atomically

        write_atomically(Path(path), [memoryview((folder / TUNINGS).read_bytes())])


def emit(request: CompileRequest, stage: str) -> str:
    """The program at one of `STAGES`, as text."""
    if stage not in STAGES:
        raise OptionError(f"stage {stage}: unknown; available: {', '.join(STAGES)}")
    with _Folder() as folder:
        _run(msgspec.structs.replace(_job(request, "emit"), stage=stage), folder, None)
        return (folder / RESULT).read_text()


def optimise(text: str, file: str, pipeline: str) -> str:
    """`text` after a textual pass pipeline."""
    job = Job("optimise", file or "<string>", text.encode(), True, pipeline=pipeline)
    with _Folder() as folder:
        _run(job, folder, None)
        return (folder / RESULT).read_text()


def verify(
    request: CompileRequest, function: str, inputs: list[np.ndarray], results: list[np.ndarray],
    oracle: str = "upstream",
) -> VerifyReport:
    """Compare `results` of `function` on `inputs` with those of `oracle`, one of `ORACLES`."""
    if oracle not in ORACLES:
        raise OptionError(f"--oracle {oracle}: no such oracle; expected one of {', '.join(ORACLES)}")
    job = msgspec.structs.replace(_job(request, "verify"), function=function, oracle=oracle)
    with _Folder() as folder:
        arrays = {f"input{i}": _plain(a) for i, a in enumerate(inputs)}
        arrays |= {f"result{i}": _plain(a) for i, a in enumerate(results)}
        np.savez(folder / ARRAYS, **arrays)  # type: ignore[arg-type]
        _run(job, folder, None)
        return msgspec.json.decode((folder / RESULT).read_bytes(), type=VerifyReport)


def _plain(array: np.ndarray) -> np.ndarray:
    """Types that numpy's own files cannot name travel as raw bytes of the same width."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


# -- the request as a job ------------------------------------------------------------------------


def _job(request: CompileRequest, kind: Literal["compile", "emit", "verify"]) -> Job:
    options = dict(request.options)
    for name in options:
        if name not in OPTIONS:
            raise OptionError(f"option {name}: unknown; available: {', '.join(OPTIONS)}")
    _check_reports(request.reports)
    if request.placement not in PLACEMENTS:
        raise OptionError(f"placement {request.placement}: unknown; available: {', '.join(PLACEMENTS)}")
    texts = tuple(f"{name}={expression}" if name else expression for name, expression in request.devices)
    flags = parse_device_flags(texts)
    source = request.source
    data: bytes | None = source.encode() if isinstance(source, str) else source
    file, state, model = "", (0, 0), ""
    data_files: dict[str, State] = {}
    if data is None:
        file, state = _large_file(request.path)
        data = None if file else _file(request.path)
        model = str(Path(request.path).absolute())
        with _content(request.path, file, data) as content:
            data_files = external_data.data_files(model, content)
    return Job(
        kind, request.path or "<string>", data, isinstance(source, str), request.format,
        tuple(_targets(flags) if flags else DEFAULT_TARGETS), jobs=_jobs(options.get("jobs")),
        devices=() if _is_host(flags) else texts, placement=request.placement,
        places=request.places, rates=_rates(options.get("rates")), memory_limit=_bytes(options.get("memory-limit")),
        tune=_tune(options.get("tune")), tunings=_tunings(options.get("tuning"), options.get("tune")),
        library=_library(options.get("library")), schedules=_schedules(options.get("schedules")),
        separate_siblings=not _flag("fuse-siblings", options.get("fuse-siblings"), default=True),
        unchecked_indices=_flag("unchecked-indices", options.get("unchecked-indices"), default=False),
        file=file, state=state, model=model, data_files=data_files, keeps=request.cache,
        tune_schedule=_tuning(options.get("tune-schedule")), tune_inputs=_shapes(options.get("tune-inputs")),
        sequences=_sequences(options.get("sequences")),
        keep_source=_flag("keep-source", options.get("keep-source"), default=False), reports=request.reports,
    )


def _check_reports(reports: PassReports) -> None:
    """Raises OptionError for a pass that there is not."""
    if reports.after:
        from motet.compiler.passes.pipelines import PIPELINES
        from motet.compiler.passes.registry import PASSES

        for name in reports.after:
            if name not in PASSES and name not in PIPELINES:
                known = ", ".join(sorted({*PASSES, *PIPELINES}))
                raise OptionError(f"--print-after {name}: no such pass; expected one of {known}")


def _targets(flags: Sequence[DeviceFlag]) -> list[str]:
    """What code is made for, in order of preference, by what the flags say; families without code are left out."""
    found: dict[str, None] = {}
    for flag in flags:
        for alternative in flag.alternatives:
            if alternative.target:
                family = ALIASES.get(alternative.target) or DEPRECATED.get(alternative.target, alternative.target)
                found |= dict.fromkeys(target_names(family, dict(alternative.options), str(alternative)))
    return list(found)


def _is_host(flags: Sequence[DeviceFlag]) -> bool:
    """Whether flags say no more than for which processors of the host code is made."""
    if len(flags) != 1 or flags[0].name or len(flags[0].alternatives) != 1:
        return not flags
    only = flags[0].alternatives[0]
    return ALIASES.get(only.target) == HOST and only.ordinal is None and not driver_options(HOST, dict(only.options))


def _large_file(path: str) -> tuple[str, tuple[int, int]]:
    """A file that the worker may read by itself, and its state; nothing for small ones, and for what is no file."""
    try:
        status = Path(path).stat()
    except OSError:
        return "", (0, 0)  # reading it will say why
    if not stat.S_ISREG(status.st_mode) or status.st_size < _LARGE:
        return "", (0, 0)
    return str(Path(path).absolute()), (status.st_size, status.st_mtime_ns)


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CompileError(f"cannot be read: {(error.strerror or str(error)).lower()}", Location(path)) from None


def _rates(path: str | None) -> str:
    """The content of a file of rates, checked here, where its user is."""
    if path is None:
        return ""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else "is no text"
        raise OptionError(f"option rates={path}: cannot be read: {why.lower()}; "
                          "expected a file that motet devices --measure -o FILE writes") from None
    read_rates(text, f"option rates={path}")
    return text


def _bytes(given: str | None) -> int | None:
    """A size: a number, which K, M or G may follow."""
    if given is None:
        return None
    number = given.rstrip("KMG")
    if not number.isdigit() or len(given) - len(number) > 1 or len(number) > 18:
        raise OptionError(f"option memory-limit={given}: not a size; expected bytes, or a number with K, M or G")
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[given[len(number) :]]


def _flag(name: str, given: str | None, default: bool) -> bool:
    if given not in (None, "true", "false"):
        raise OptionError(f"option {name}={given}: expected true or false")
    return default if given is None else given == "true"


def _tuning(given: str | None) -> bool:
    if given not in (None, *TUNING):
        raise OptionError(f"option tune-schedule={given}: expected {' or '.join(TUNING)}")
    return given == "measure"


def _tune(given: str | None) -> Literal["", "candidates", "measure"]:
    if given in (None, "off"):
        return ""
    if given == "candidates" or given == "measure":
        return given
    raise OptionError(f"option tune={given}: expected off, candidates or measure")


def _library(given: str | None) -> Literal["tuned", "cublaslt", "none"]:
    if given is None:
        return "tuned"
    if given == "tuned" or given == "cublaslt" or given == "none":
        return given
    raise OptionError(f"option library={given}: expected tuned, cublaslt or none")


def _tunings(path: str | None, tune: str | None) -> bytes:
    """The content of a file of tunings, checked here, where its user is; with tune=measure it need not be there."""
    from motet.artifact.tunings import Tunings, read_tunings

    if path is None or (tune == "measure" and not Path(path).exists()):
        return Tunings().encode()
    return read_tunings(path, f"option tuning={path}").encode()


def _schedules(path: str | None) -> bytes:
    """The content of a file of schedules, checked here, where its user is."""
    if path is None:
        return b""
    from motet.artifact.kernel_schedules import read_schedules
    from motet.compiler.tuning.given import read_given

    where = f"option schedules={path}"
    data = read_schedules(path, where)
    read_given(data, where)
    return data


def _shapes(given: str | None) -> str:
    if given:
        from motet.compiler.tuning.inputs import parse_inputs

        parse_inputs(given)
    return given or ""


def _sequences(given: str | None) -> str:
    if given:
        from motet.compiler.frontends.onnx.interface import parse_sequences

        parse_sequences(given)
    return given or ""


def _jobs(given: str | None) -> int:
    if given is None:
        return len(os.sched_getaffinity(0))
    if not given.isdigit() or int(given) < 1:
        raise OptionError(f"option jobs={given}: not a positive number")
    return int(given)


def _key(job: Job) -> str:
    """Equal keys make equal artifacts: everything that the result depends on, and nothing else."""
    digest = hashlib.sha256()
    parts = [VERSION, _sources(), *_wheels(), job.path.rsplit("/", 1)[-1], job.format, str(job.text), *job.targets]
    parts += [job.placement, *job.devices, repr(job.places), job.rates, repr(job.memory_limit)]
    parts += [job.tune, job.tunings.decode(), job.library, str(job.separate_siblings), str(job.unchecked_indices)]
    parts += [job.schedules.decode(), str(job.keep_source), job.sequences]
    if job.tune_schedule:
        parts += _measured_on(job)
    if "native" in job.targets:
        from motet.runtime.cpu_features import host_features

        parts += sorted(host_features())
    files = {name: external_data.resolve(job.model, name) for name in job.data_files}
    parts += [repr((name, job.data_files[name][0])) for name in files]  # names and sizes
    digest.update(repr(parts).encode())
    with _content(job.path, job.file, job.source) as content:
        digest.update(content)
    for name, path in files.items():
        if job.data_files[name][0]:
            with _content(name, str(path), None) as content:
                digest.update(content)
    return f"artifact {digest.hexdigest()}"


@contextlib.contextmanager
def _content(path: str, file: str, data: bytes | None) -> Generator[Content]:
    """`data`, or the content of `file`, mapped, which errors call `path`."""
    if not file:
        yield data or b""
        return
    try:
        with Path(file).open("rb") as opened:
            content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        raise CompileError("cannot be read", Location(path)) from None
    with content:
        yield content


def _measured_on(job: Job) -> list[str]:
    """What measurements depend on: the machine, and what may be used of it."""
    from motet.runtime.drivers.host.driver import processor_name
    from motet.runtime.drivers.host.threads import thread_count

    return ["measured", processor_name(), str(thread_count()), job.tune_inputs]


@functools.cache
def _sources() -> str:
    """What tells one state of Motet's own code from another: its files' names, sizes and times."""
    files = sorted(Path(__file__).parent.parent.rglob("*.py"))
    states = [(str(file), (status := file.stat()).st_size, status.st_mtime_ns) for file in files]
    return hashlib.sha256(repr(states).encode()).hexdigest()


def _wheels() -> tuple[str, ...]:
    for_gpus = (_wheel("triton", "triton"),) if importlib.util.find_spec("triton") is not None else ()
    return _wheel("torch-mlir", "torch_mlir"), _wheel("llvmlite", "llvmlite"), *for_gpus


def _wheel(name: str, package: str) -> str:
    """The wheel that `package` is of, with its version: the name of the folder that says what was installed.

    Asking `importlib.metadata` would take longer than the rest of a compile from the cache.
    """
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        for folder in Path(place).parent.glob(f"{package}-*.dist-info"):
            return folder.name
        return str((place, Path(place).stat().st_mtime_ns))
    raise CompileError(f"compiling needs {name}; install it with: pip install 'motet[compile]'")


# -- the worker ----------------------------------------------------------------------------------


class _Folder:
    """A folder for one job, removed in the end unless the worker crashed on it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="motet-job-"))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, WorkerCrash):
            shutil.rmtree(self.path, ignore_errors=True)


def _run(job: Job, folder: Path, progress: Progress | None, worker: Standby | None = None) -> None:
    """Has a worker do the job, whose result is then where the job says, or in the folder."""
    if job.source is not None and len(job.source) >= _LARGE:
        (folder / SOURCE).write_bytes(job.source)
        file, state = _large_file(str(folder / SOURCE))
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
    """Make the job's folder all that is needed to do the job again."""
    job = msgspec.structs.replace(job, result="")
    if job.file and Path(job.file).parent != folder:
        with contextlib.suppress(OSError):
            shutil.copy2(job.file, folder / SOURCE)
            job = msgspec.structs.replace(job, file=str(folder / SOURCE))
    (folder / REQUEST).write_bytes(msgspec.msgpack.encode(job))


_keeping = threading.Lock()
_keepers: list[Keeper] = []


def _start(job: Job, folder: Path, command: list[str], log: Path) -> subprocess.Popen[bytes] | Hired:
    """A worker in a process that is no copy of this one: whatever this process is, the compiler is not to mind."""
    if sys.platform == "linux":
        with _keeping:
            for _ in range(2):
                if not _keepers or not _keepers[0].is_there:
                    for ended in _keepers:
                        ended.end()
                        atexit.unregister(ended.stop)
                    _keepers[:] = [Keeper(_environment())]
                    atexit.register(_keepers[0].stop)
                with contextlib.suppress(OSError):  # it has ended just now
                    return _keepers[0].hire(folder, log, job.targets, _may_be_onnx(job))
    with log.open("wb") as stderr:
        return subprocess.Popen(
            [*command, str(os.getpid())], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
            env=_environment(),
        )


def _may_be_onnx(job: Job) -> bool:
    """Whether the source looks like an ONNX model, which begins with the field of its version, or nobody has looked."""
    return job.format == "onnx" or (not job.text and (job.source is None or job.source.startswith(b"\x08")))


def _environment() -> dict[str, str]:
    """The worker finds the same packages as this process, however they were found here. It needs no threads of
    numpy's, which take their time to start."""
    return {"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def _listen(answers: IO[bytes], progress: Progress | None) -> MotetError | None:
    error: MotetError | None = None
    for line in answers:
        try:
            message = msgspec.json.decode(line, type=Message)
        except msgspec.DecodeError:
            continue  # what a library printed
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
