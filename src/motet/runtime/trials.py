"""Times the candidates of a kernel on a device, to find the fastest of the forms in an artifact.

Every candidate is launched repeatedly in one piece of recorded work, on several sets of buffers alternately, so that it
reads from memory rather than from caches filled by the previous launch; candidates are interleaved. Results are
compared with the first candidate's: one that differs is rejected. If the device has a library that computes the same,
the algorithms that the library ranks first are timed like candidates.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from msgspec import structs

from motet.artifact.candidates import Tunable
from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import evaluate
from motet.artifact.library import Algorithm, LibraryCall, show_version, with_library
from motet.artifact.reader import Artifact
from motet.artifact.schema import Command, Expr, Schedule, Signature, Variant
from motet.artifact.schema import ScheduleBuffer as Place
from motet.errors import DeviceError, KernelFault, OutOfMemoryError
from motet.runtime.device import Buffer, CommandBuffer, Device, Reference, Work

_MOST_ALGORITHMS = 8
_BEYOND_CACHES = 160 << 20  # bytes of all sets of buffers together
_MOST_SETS = 8
_MOST_LAUNCHES = 200
_SAMPLE = 0.004  # seconds of one piece of work
_ROUNDS = 5
_HOPELESS = 2.0  # relative to the fastest: a single sample is enough
_BLOCK = 4194301  # elements of random numbers, repeated; a prime, so that lines of a matrix differ
_ANY = "bf16"  # its bit patterns are valid for other floats, too, for workspaces of unknown content
_TOLERANCE = {1: 0.2, 2: 0.05, 4: 5e-3, 8: 1e-6}  # relative to the largest number, by bytes of an element

_log = logging.getLogger("motet")


@dataclass(frozen=True)
class TrialLaunch:
    """A launch of the kernel in one of its schedules, to be timed; the grid is the candidate's, over `sizes`."""

    sizes: tuple[int, ...]
    bytes: tuple[int, ...]  # of each buffer
    dtypes: tuple[str, ...]
    reads: int


def find_launch(
    artifact: Artifact, variant: Variant, kernel: str, symbols: Mapping[str, Mapping[str, int]]
) -> TrialLaunch | None:
    """The first launch of `kernel` in a function whose symbols' values are given."""
    manifest = artifact.manifest
    signatures = {each.name: each for each in (*manifest.functions, *manifest.regions.values())}
    for name, schedule in variant.schedules.items():
        for command in schedule.commands:
            if command.kernel == kernel and name in symbols:
                return _launch(artifact, signatures[name], schedule, command, symbols[name])
    return None


def _launch(
    artifact: Artifact, signature: Signature, schedule: Schedule, command: Command, symbols: Mapping[str, int]
) -> TrialLaunch:
    places = [schedule.buffers[index] for index in command.buffers]
    return TrialLaunch(
        tuple(evaluate(size, symbols) for size in command.sizes),
        tuple(evaluate(place.bytes, symbols) for place in places),
        tuple(_dtype(artifact, signature, place) for place in places), command.reads,
    )


def _dtype(artifact: Artifact, signature: Signature, place: Place) -> str:
    if place.kind == "input":
        return signature.inputs[place.index].dtype
    if place.kind == "result":
        return signature.results[place.index].dtype
    if place.kind == "parameter":
        return artifact.manifest.parameters[place.index].dtype
    return place.dtype or _ANY


@dataclass(frozen=True)
class LibraryTrial:
    """An algorithm of a library, and its seconds."""

    algorithm: Algorithm
    number: int  # in the library's order
    seconds: float

    @property
    def name(self) -> str:
        return f"cublasLt {show_version(self.algorithm.library)} #{self.number + 1}"


@dataclass(frozen=True)
class Trials:
    """The seconds of each candidate, None for one that cannot be loaded or has other results; and the library's
    algorithms, fastest first."""

    candidates: list[float | None]
    algorithms: list[LibraryTrial]


def time_candidates(
    device: Device, artifact: Artifact, kernel: Tunable, launch: TrialLaunch, objects: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Trials:
    """Time a launch of each candidate. The first `objects` members of a candidate are its code. Raises DeviceError if
    the device is lost or has too little memory."""
    sets = _Sets(device, launch)
    runs: list[_TrialRun | None] = []
    symbols = dict(zip(kernel.symbols, launch.sizes, strict=True))
    algorithms = _algorithms(device, kernel)
    for way in _ways(artifact, kernel, objects, algorithms):
        runs.append(_prepare(device, way, launch, evaluate(way.tasks, symbols), sets, clock))
    reference: list[_Wanted] | None = None
    for number, run in enumerate(runs):
        if run is None:
            continue
        results = run.results()
        if reference is None:
            reference = [_Wanted.of(result) for result in results]
        elif not all(wanted.agrees(result) for wanted, result in zip(reference, results, strict=True)):
            _log.warning("%s: %s computes something else than %s; it is not taken", kernel.kernel, run.label,
                         kernel.candidates[0].label)
            runs[number] = None
    seconds = _time(runs, clock)
    count = len(kernel.candidates)
    tried = [
        LibraryTrial(algorithm, number, each)
        for number, (algorithm, each) in enumerate(zip(algorithms, seconds[count:], strict=True)) if each is not None
    ]
    return Trials(seconds[:count], sorted(tried, key=lambda each: each.seconds))


class _Chooser(Protocol):
    """A device with a library, such as CUDA's."""

    def algorithms(self, call: LibraryCall, most: int) -> list[Algorithm]: ...


def _algorithms(device: Device, kernel: Tunable) -> list[Algorithm]:
    if kernel.library is None or not hasattr(device, "algorithms"):
        return []
    return cast(_Chooser, device).algorithms(kernel.library, _MOST_ALGORITHMS)


@dataclass(frozen=True)
class _Way:
    """A contender: loaded code, and the name of its kernel."""

    label: str
    kernel: str
    tasks: Expr
    names: list[str]
    objects: list[bytes]
    by_library: bool = False


def _ways(
    artifact: Artifact, kernel: Tunable, objects: int, algorithms: Sequence[Algorithm]
) -> Iterator[_Way]:
    """Every candidate, as generated, then every algorithm of the library, in place of the first candidate."""
    for candidate in kernel.candidates:
        names = candidate.members[:objects]
        code = [_described(artifact, name, None) for name in names]
        yield _Way(candidate.label, candidate.kernel, candidate.tasks, names, code)
    first = kernel.candidates[0]
    names = first.members[:objects]
    for number, algorithm in enumerate(algorithms):
        call = None if kernel.library is None else structs.replace(kernel.library, algorithm=algorithm)
        code = [_described(artifact, name, call) for name in names]
        yield _Way(f"algorithm {number + 1} of the library", first.kernel, first.tasks, names, code, True)


def _described(artifact: Artifact, name: str, call: LibraryCall | None) -> bytes:
    data = bytes(artifact.member(name))
    return with_library(data, call) if name.endswith(".json") else data


def _time(runs: Sequence[_TrialRun | None], clock: Callable[[], float]) -> list[float | None]:
    there = [run for run in runs if run is not None]
    best = {id(run): run.sample(clock) for run in there}
    for _ in range(_ROUNDS):
        fastest = min(best.values(), default=0.0)
        for run in there:
            if best[id(run)] <= _HOPELESS * fastest:
                best[id(run)] = min(best[id(run)], run.sample(clock))
    return [None if run is None else best[id(run)] for run in runs]


def _prepare(
    device: Device, way: _Way, launch: TrialLaunch, tasks: int, sets: _Sets, clock: Callable[[], float]
) -> _TrialRun | None:
    try:
        executable = device.load(way.objects, way.names)
    except OutOfMemoryError:
        raise
    except DeviceError as error:
        _log.warning("%s: %s: cannot be loaded, and is not tried: %s", way.kernel, way.label, error)
        return None
    if way.by_library and getattr(executable, "notes", ()):
        return None  # the library refuses it, so that the kernel would run

    def record(launches: int) -> CommandBuffer:
        work = [
            Work("launch", sets.references(number), way.kernel, tasks, launch.sizes, (number - 1,) * (number > 0))
            for number in range(launches)
        ]
        return device.record(executable, work, len(sets.buffers), 0)

    run = _TrialRun(device, record, sets, way.label)
    run.settle(clock)
    return run


class _Sets:
    """Several sets of buffers for a launch, filled with numbers."""

    def __init__(self, device: Device, launch: TrialLaunch) -> None:
        total = max(1, sum(launch.bytes))
        self.count = max(1, min(_MOST_SETS, -(-_BEYOND_CACHES // total)))
        self.launch = launch
        self.device = device
        self.contents = [_numbers(dtype, size) for dtype, size in zip(launch.dtypes, launch.bytes, strict=True)]
        self.buffers: list[Buffer] = []
        for _ in range(self.count):
            self.buffers += [device.allocate(size) for size in launch.bytes]
        for first in range(0, len(self.buffers), len(launch.bytes)):
            self._fill(first)

    def _fill(self, first: int, begin: int = 0) -> None:
        points = [
            self.device.write(self.buffers[first + number], content)
            for number, content in enumerate(self.contents) if content.nbytes and number >= begin
        ]
        for point in points:
            point.wait()

    def references(self, number: int) -> tuple[Reference, ...]:
        """The buffers of the `number`-th launch."""
        first = number % self.count * len(self.launch.bytes)
        return tuple(Reference(first + k, 0, size) for k, size in enumerate(self.launch.bytes))

    def restore(self) -> None:
        """Restore the first set to its state before any launch; buffers that are only read need no restoring."""
        self._fill(0, self.launch.reads)

    def results(self) -> list[np.ndarray[Any, Any]]:
        """The contents of the first set's written buffers, as f64."""
        found: list[np.ndarray[Any, Any]] = []
        for number in range(self.launch.reads, len(self.contents)):
            raw = np.empty(self.contents[number].nbytes, np.uint8)
            if raw.nbytes:
                self.device.read(self.buffers[number], raw).wait()
            kind = DTYPES.get(self.launch.dtypes[number], np.dtype(np.uint8))
            found.append(raw[: raw.nbytes // kind.itemsize * kind.itemsize].view(kind))
        return found


def _numbers(dtype: str, size: int) -> np.ndarray[Any, Any]:
    """`size` bytes of standard normal numbers, or of zeros and ones, which may be indices."""
    kind = DTYPES.get(dtype, np.dtype(np.uint8))
    random = np.random.default_rng(size % 1009)
    count = max(1, min(_BLOCK, -(-size // kind.itemsize)))
    if kind.kind in "biu":
        block = random.integers(0, 2, count).astype(kind)
    else:
        block = random.standard_normal(count, np.float32).astype(kind)
    raw = block.view(np.uint8)
    return np.resize(raw, size) if size else np.empty(0, np.uint8)


@dataclass
class _TrialRun:
    """A candidate, ready to be timed."""

    device: Device
    record: Callable[[int], CommandBuffer]
    sets: _Sets
    label: str
    launches: int = 1
    work: CommandBuffer | None = None

    def settle(self, clock: Callable[[], float]) -> None:
        """Choose the number of launches of a sample."""
        self.work = self.record(1)
        self._submit()
        begin = clock()
        self._submit()
        seconds = max(1e-7, clock() - begin)
        self.launches = max(self.sets.count, min(_MOST_LAUNCHES, round(_SAMPLE / seconds)))

    def _submit(self) -> None:
        assert self.work is not None
        try:
            self.device.submit(self.work, self.sets.buffers).wait()
        except KernelFault as error:
            raise DeviceError(f"{error}; it was candidate {self.label}, which must not be used") from error

    def results(self) -> list[np.ndarray[Any, Any]]:
        """The results of one launch on the first set; then records the piece of work that is timed."""
        self.sets.restore()
        self._submit()
        found = self.sets.results()
        self.work = self.record(self.launches)
        self._submit()
        return found

    def sample(self, clock: Callable[[], float]) -> float:
        begin = clock()
        self._submit()
        return (clock() - begin) / self.launches


@dataclass(frozen=True)
class _Wanted:
    """The required results of a candidate, up to rounding of reordered sums: numbers in f32, or in f64 if that is not
    exact; with the mask of finite ones and the largest of them."""

    numbers: np.ndarray[Any, Any]
    finite: np.ndarray[Any, Any] | None
    largest: float
    tolerance: float

    @staticmethod
    def of(result: np.ndarray[Any, Any]) -> _Wanted:
        if result.dtype.kind in "biu":
            return _Wanted(result, None, 0.0, 0.0)
        numbers = _exact(result)
        finite = np.isfinite(numbers)
        largest = max(float(np.abs(numbers[finite]).max(initial=0.0)), 1e-6)
        return _Wanted(numbers, finite, largest, _TOLERANCE.get(result.dtype.itemsize, 0.05))

    def agrees(self, result: np.ndarray[Any, Any]) -> bool:
        if self.finite is None:
            return np.array_equal(result, self.numbers)
        found = _exact(result)
        if not np.array_equal(np.isfinite(found), self.finite):
            return False
        if self.finite.all():
            difference = np.subtract(found, self.numbers, out=found)
        else:
            difference = found[self.finite] - self.numbers[self.finite]
        return float(np.abs(difference, out=difference).max(initial=0.0)) <= self.tolerance * self.largest


def _exact(result: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy in f32, or in f64 if f32 is not exact."""
    return result.astype(np.float64 if result.dtype.itemsize > 4 else np.float32)
