"""Times the candidates of a kernel on a device: which of the forms that an artifact holds is the fastest here.

Every candidate is launched again and again in one piece of recorded work, on several sets of buffers in turn, so that
what it reads comes from memory and not from the caches that the launch before has filled; all candidates in turns.
What they compute is compared with the first one's: one that differs is not taken.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.artifact.candidates import Candidate, Tunable
from motet.artifact.dtypes import DTYPES
from motet.artifact.reader import Artifact
from motet.artifact.schema import Buffer as Place
from motet.artifact.schema import Command, Schedule, Signature, Variant
from motet.errors import DeviceError, KernelFault, OutOfMemoryError
from motet.runtime.device import Buffer, CommandBuffer, Device, Reference, Work
from motet.runtime.expressions import evaluate

_BEYOND_CACHES = 160 << 20  # bytes of all sets of buffers together
_MOST_SETS = 8
_MOST_LAUNCHES = 200
_SAMPLE = 0.004  # seconds of one piece of work
_ROUNDS = 5
_HOPELESS = 2.0  # times the fastest: one sample is enough
_BLOCK = 4194301  # elements of random numbers, which are repeated: a prime, so that lines of a matrix differ
_ANY = "bf16"  # whose numbers are numbers for other floats too, where nobody knows what a workspace holds
_TOLERANCE = {1: 0.2, 2: 0.05, 4: 5e-3, 8: 1e-6}  # of the largest number, by bytes of an element

_log = logging.getLogger("motet")


@dataclass(frozen=True)
class Launch:
    """A launch of the kernel in one of its schedules, as it is timed; the grid is the candidate's, over `sizes`."""

    sizes: tuple[int, ...]
    bytes: tuple[int, ...]  # of each buffer
    dtypes: tuple[str, ...]
    reads: int


def find_launch(
    artifact: Artifact, variant: Variant, kernel: str, symbols: Mapping[str, Mapping[str, int]]
) -> Launch | None:
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
) -> Launch:
    places = [schedule.buffers[index] for index in command.buffers]
    return Launch(
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


def time_candidates(
    device: Device, artifact: Artifact, kernel: Tunable, launch: Launch, objects: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float | None]:
    """Seconds that a launch of each candidate takes; None for one that cannot be loaded or computes something else.
    The first `objects` members of a candidate are its code. Raises DeviceError: a device that is lost, or memory."""
    sets = _Sets(device, launch)
    runs: list[_Run | None] = []
    symbols = dict(zip(kernel.symbols, launch.sizes, strict=True))
    for candidate in kernel.candidates:
        tasks = evaluate(candidate.tasks, symbols)
        runs.append(_prepare(device, artifact, candidate, launch, tasks, sets, objects, clock))
    reference: list[np.ndarray[Any, Any]] | None = None
    for number, run in enumerate(runs):
        if run is None:
            continue
        results = run.results()
        if reference is None:
            reference = results
        elif not _agree(results, reference):
            _log.warning("%s: %s computes something else than %s; it is not taken", kernel.kernel,
                         kernel.candidates[number].label, kernel.candidates[0].label)
            runs[number] = None
    return _time(runs, clock)


def _time(runs: Sequence[_Run | None], clock: Callable[[], float]) -> list[float | None]:
    there = [run for run in runs if run is not None]
    best = {id(run): run.sample(clock) for run in there}
    for _ in range(_ROUNDS):
        fastest = min(best.values(), default=0.0)
        for run in there:
            if best[id(run)] <= _HOPELESS * fastest:
                best[id(run)] = min(best[id(run)], run.sample(clock))
    return [None if run is None else best[id(run)] for run in runs]


def _prepare(
    device: Device, artifact: Artifact, candidate: Candidate, launch: Launch, tasks: int, sets: _Sets, objects: int,
    clock: Callable[[], float],
) -> _Run | None:
    names = candidate.members[:objects]
    try:
        executable = device.load([bytes(artifact.member(name)) for name in names], names)
    except OutOfMemoryError:
        raise
    except DeviceError as error:
        _log.warning("%s: cannot be loaded, and is not tried: %s", candidate.kernel, error)
        return None

    def record(launches: int) -> CommandBuffer:
        work = [
            Work("launch", sets.references(number), candidate.kernel, tasks, launch.sizes, (number - 1,) * (number > 0))
            for number in range(launches)
        ]
        return device.record(executable, work, len(sets.buffers), 0)

    run = _Run(device, record, sets, candidate.label)
    run.settle(clock)
    return run


class _Sets:
    """Buffers for a launch, several times over, filled with numbers."""

    def __init__(self, device: Device, launch: Launch) -> None:
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

    def _fill(self, first: int) -> None:
        points = [
            self.device.write(self.buffers[first + number], content)
            for number, content in enumerate(self.contents) if content.nbytes
        ]
        for point in points:
            point.wait()

    def references(self, number: int) -> tuple[Reference, ...]:
        """The buffers of the `number`-th launch."""
        first = number % self.count * len(self.launch.bytes)
        return tuple(Reference(first + k, 0, size) for k, size in enumerate(self.launch.bytes))

    def restore(self) -> None:
        """The first set as it was before any launch."""
        self._fill(0)

    def results(self) -> list[np.ndarray[Any, Any]]:
        """What the first set's written buffers hold, as f64."""
        found: list[np.ndarray[Any, Any]] = []
        for number in range(self.launch.reads, len(self.contents)):
            raw = np.empty(self.contents[number].nbytes, np.uint8)
            if raw.nbytes:
                self.device.read(self.buffers[number], raw).wait()
            kind = DTYPES.get(self.launch.dtypes[number], np.dtype(np.uint8))
            found.append(raw[: raw.nbytes // kind.itemsize * kind.itemsize].view(kind))
        return found


def _numbers(dtype: str, size: int) -> np.ndarray[Any, Any]:
    """`size` bytes: standard normal numbers, or zeros and ones, which may be indices."""
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
class _Run:
    """A candidate, ready to be timed."""

    device: Device
    record: Callable[[int], CommandBuffer]
    sets: _Sets
    label: str
    launches: int = 1
    work: CommandBuffer | None = None

    def settle(self, clock: Callable[[], float]) -> None:
        """Chooses how many launches make a sample."""
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
        """What one launch on the first set computes; afterwards the piece of work that is timed is recorded."""
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


def _agree(results: Sequence[np.ndarray[Any, Any]], wanted: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Whether two candidates computed the same, but for the rounding of sums in another order."""
    for a, b in zip(results, wanted, strict=True):
        if a.dtype.kind in "biu":
            if not np.array_equal(a, b):
                return False
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(y)
        scale = np.abs(y[finite]).max(initial=0.0)
        if not np.array_equal(np.isfinite(x), finite):
            return False
        if np.abs(x[finite] - y[finite]).max(initial=0.0) > _TOLERANCE.get(a.dtype.itemsize, 0.05) * max(scale, 1e-6):
            return False
    return True
