"""The cache key of a job: a hash of exactly the data that its result depends on."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from pathlib import Path

from motet.compiler import external_data
from motet.compiler.job import Job
from motet.compiler.source_files import content_of
from motet.errors import CompileError
from motet.plug_ins import search_path
from motet.version import VERSION


def cache_key(job: Job) -> str:
    """The cache key of `job`."""
    digest = hashlib.sha256()
    parts = [VERSION, _sources(), *require_wheels(), job.path.rsplit("/", 1)[-1], job.format, str(job.text)]
    parts += [*job.targets, job.placement, *(f"{flag} {bool(flag.uri)}" for flag in job.devices), repr(job.places)]
    parts += [job.rates, repr(job.memory_limit), job.mesh, repr(job.shards)]
    parts += [job.tune, job.tunings.decode(), job.library, str(job.separate_siblings), str(job.unchecked_indices)]
    parts += [str(job.strict_tokens)]
    parts += [job.schedules.decode(), str(job.keep_source), job.sequences, job.precision]
    if job.tune_schedule:
        parts += _measured_on(job)
    if "native" in job.targets:
        from motet.cpu_features import host_features

        parts += sorted(host_features())
    files = {name: external_data.resolve(job.model, name) for name in job.data_files}
    parts += [repr((name, job.data_files[name][0])) for name in files]  # names and sizes
    digest.update(repr(parts).encode())
    with content_of(job.path, job.file, job.source) as content:
        digest.update(content)
    for name, path in files.items():
        if job.data_files[name][0]:
            with content_of(name, str(path), None) as content:
                digest.update(content)
    return f"artifact {digest.hexdigest()}"


def _measured_on(job: Job) -> list[str]:
    """The data that measurements depend on: the machine, and the resources available on it."""
    from motet.runtime.drivers.host.driver import processor_name
    from motet.runtime.drivers.host.threads import thread_count

    return ["measured", processor_name(), str(thread_count()), job.tune_inputs]


@functools.cache
def _sources() -> str:
    """A fingerprint of Motet's own code: its files' names, sizes and times."""
    files = sorted(Path(__file__).parent.parent.rglob("*.py"))
    states = [(str(file), (status := file.stat()).st_size, status.st_mtime_ns) for file in files]
    return hashlib.sha256(repr(states).encode()).hexdigest()


def require_wheels() -> tuple[str, ...]:
    """The wheels that compile, with their versions. Raises CompileError if one is not installed."""
    folders = search_path()
    for_gpus = (_wheel("triton", "triton", folders),) if _found("triton", folders)[0] else ()
    return _wheel("torch-mlir", "torch_mlir", folders), _wheel("llvmlite", "llvmlite", folders), *for_gpus


def _wheel(name: str, package: str, folders: tuple[tuple[str, int], ...]) -> str:
    """The wheel of `package` with its version: the name of its metadata folder."""
    place, metadata = _found(package, folders)
    if not place:
        raise CompileError(f"compiling needs {name}; install it with: pip install 'motet[compile]'")
    return metadata or str((place, Path(place).stat().st_mtime_ns))


@functools.lru_cache(maxsize=8)
def _found(package: str, folders: tuple[tuple[str, int], ...]) -> tuple[str, str]:
    """Where `package` is, and the name of its metadata folder; empty if there is none. `folders` is `search_path()`.

    Querying `importlib.metadata` would take longer than the rest of a compilation from the cache.
    """
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = next(Path(place).parent.glob(f"{package}-*.dist-info"), None)
        return place, folder.name if folder is not None else ""
    return "", ""
