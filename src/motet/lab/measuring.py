"""Measures an artifact in a separate process: a schedule whose code crashes or hangs ends that process only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from motet.errors import CallError, MotetError

_WARM_SECONDS = 0.02
_FLUSHED = 96 << 20  # bytes that are read and written before a cold call
_MOST_CALLS = 1 << 20
_SERVE = "from motet.lab.measuring import serve; serve({handle})"

Arrays = list[np.ndarray[Any, np.dtype[Any]]]


@dataclass(frozen=True)
class MeasurePlan:
    """How a kernel is measured. A sample is the mean of `number` calls, by default as many as last `min_repeat_ms`;
    there are `repeat` samples after `warmup` calls. `cold` clears the caches before each call. Inputs are random
    numbers of `seed`. `expected`, if given, are the results to compare with."""

    repeat: int = 5
    number: int | None = None
    min_repeat_ms: float = 10.0
    warmup: int = 1
    counters: tuple[str, ...] = ()
    cold: bool = False
    threads: int | None = None
    seed: int = 0
    most_seconds: float = 30.0
    expected: Arrays | None = None


@dataclass(frozen=True)
class MeasuredFunction:
    """What is measured: a function on a device; the kernel whose time counts, "" for the whole call."""

    device: str
    function: str
    kernel: str = ""


@dataclass
class Samples:
    """Seconds per call, counts per call or why there are none, the inputs and results of one call, and how the results
    differ from the expected ones, if they do."""

    seconds: list[float]
    number: int
    threads: int
    counters: dict[str, float | str] = field(default_factory=dict[str, "float | str"])
    inputs: Arrays = field(default_factory=Arrays)
    results: Arrays = field(default_factory=Arrays)
    difference: str = ""


class Measurer:
    """A process that measures, replaced after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def measure(self, data: bytes, what: MeasuredFunction, plan: MeasurePlan) -> Samples:
        """Raises MotetError if the code fails, crashes or takes too long."""
        pipe = self._started()
        most = plan.most_seconds * 2 + 30
        try:
            pipe.send((data, what, plan))
            if not pipe.poll(most):
                self.close()
                raise CallError(f"{what.function}: a call did not end within {most:.0f} s")
            found: Samples | Exception = pipe.recv()
        except (EOFError, OSError):
            self.close()
            raise CallError(f"{what.function}: the process crashed while it ran the kernel") from None
        except BaseException:  # an interrupt leaves an answer that the next call would take for its own
            self.close()
            raise
        if isinstance(found, Exception):
            raise found
        return found

    def _started(self) -> Connection:
        if self._pipe is None:
            # Not by multiprocessing, whose processes run the caller's script again unless it has a guard.
            self._pipe, other = Pipe()
            with other:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _SERVE.format(handle=other.fileno())], stdin=subprocess.DEVNULL,
                    pass_fds=[other.fileno()], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                )
        return self._pipe

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(handle: int) -> None:
    """Answers requests at the pipe `handle` with samples, or with the error, until the other end is closed."""
    pipe = Connection(handle)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            data, what, plan = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            found: Samples | Exception = _measure(data, what, plan)
        except MotetError as error:
            found = error
        except Exception as error:  # what no kernel should do ends one measurement, and is told
            found = CallError(f"{what.function}: {type(error).__name__}: {error}")
        try:
            pipe.send(found)
        except Exception:  # an error that cannot be pickled
            pipe.send(CallError(str(found)))


def _measure(data: bytes, what: MeasuredFunction, plan: MeasurePlan) -> Samples:
    from motet.lab.counters import energy
    from motet.lab.counters.perf_events import NAMES, PerfEvents
    from motet.runtime.session import load

    events = PerfEvents([name for name in plan.counters if name in NAMES])
    try:
        with load(data, devices=None if what.device == "host" else what.device, threads=plan.threads) as session:
            function = session[what.function]
            inputs = _inputs(function.signature, plan.seed)
            results = _results(function(*[array.copy() for array in inputs]))
            run = _Run(function, [array.copy() for array in inputs], what.kernel, plan)
            number = run.warmed()
            samples = run.samples(number)
            found = Samples(samples, number, session.threads, {}, inputs, results)
            if plan.counters:
                found.counters |= run.counted(events, number)
                if energy.NAME in plan.counters:
                    found.counters[energy.NAME] = _energy(number, run)
                found.counters |= events.reasons
            if plan.expected is not None:
                found.difference = _difference(results, plan.expected)
                found.inputs, found.results = [], []
            return found
    finally:
        events.close()


def _energy(number: int, run: _Run) -> float | str:
    """The joules of one call, over as many samples as there was time for, or why they cannot be read."""
    from motet.lab.counters import energy

    start = energy.read_energy()
    if isinstance(start, str):
        return start
    samples = run.samples(number)
    end = energy.read_energy()
    return end if isinstance(end, str) else energy.joules(start, end) / (number * len(samples))


def _inputs(signature: Any, seed: int) -> Arrays:
    from motet.specs import random_tensor

    arrays: Arrays = []
    for index, spec in enumerate(signature.inputs):
        if any(not isinstance(extent, int) for extent in spec.shape):
            raise CallError(f"{signature.name}: input {index} has dynamic extents; expected a program with fixed ones")
        arrays.append(random_tensor(spec.shape, spec.dtype, seed * 1000 + index))
    return arrays


def _results(value: Any) -> Arrays:
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    return [np.asarray(each) for each in values]


def _difference(results: Arrays, expected: Arrays) -> str:
    from motet.artifact.dtypes import spelling
    from motet.compiler.verify.verification import compare

    for index, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        agrees, line = compare(result, wanted, spelling(wanted.dtype))
        if not agrees:
            return f"result {index}: {line}"
    return ""


@dataclass
class _Run:
    """Repeated calls of a function."""

    function: Any
    arrays: Arrays
    kernel: str
    plan: MeasurePlan

    def __post_init__(self) -> None:
        self._call: Callable[[], Any] = self.function.bind(*self.arrays)
        self._flush = np.ones(_FLUSHED // 8) if self.plan.cold else None

    def once(self) -> float:
        """The seconds of one call, or of the kernel in it."""
        if self._flush is not None:
            self._flush += 1.0
        if self.kernel:
            events = [traced.event for traced in self.function.trace(*self.arrays)[1]]
            return sum(each.end - each.begin for each in events if _is_of(each.name, self.kernel))
        begin = time.perf_counter()
        self._call()
        return time.perf_counter() - begin

    def warmed(self) -> int:
        """Warm up, and find the calls of a sample."""
        seconds = min(self.once() for _ in range(max(1, self.plan.warmup)))
        if self.plan.number is not None:
            return self.plan.number
        if self.plan.cold or self.kernel:
            return 1
        wanted = min(self.plan.min_repeat_ms * 1e-3, self.plan.most_seconds / self.plan.repeat)
        number = 1
        while seconds * number < min(wanted, _WARM_SECONDS) and number < _MOST_CALLS:
            number *= 2
            seconds = self.sample(number)
        return max(1, min(_MOST_CALLS, round(wanted / max(seconds, 1e-9))))

    def sample(self, number: int) -> float:
        """The mean seconds of `number` calls."""
        if self.kernel or self._flush is not None:
            return sum(self.once() for _ in range(number)) / number
        call = self._call
        begin = time.perf_counter()
        for _ in range(number):
            call()
        return (time.perf_counter() - begin) / number

    def samples(self, number: int) -> list[float]:
        """At most `repeat` samples, in at most `most_seconds` if there is one."""
        found: list[float] = []
        end = time.perf_counter() + self.plan.most_seconds
        while len(found) < self.plan.repeat and (not found or time.perf_counter() < end):
            found.append(self.sample(number))
        return found

    def counted(self, events: Any, number: int) -> dict[str, float | str]:
        """Counts of one call. A device that counts its instructions, such as an emulator, tells them itself."""
        counted: dict[str, float | str] = {}
        traced = [each.event for each in self.function.trace(*self.arrays)[1]]
        own = sum(each.instructions for each in traced if not self.kernel or _is_of(each.name, self.kernel))
        events.start()
        for _ in range(number):
            self._call()
        counted |= {name: count / number for name, count in events.stop().items()}
        if own and "instructions" in self.plan.counters:
            counted["instructions"] = float(own)
            events.reasons.pop("instructions", None)
        return counted


def _is_of(symbol: str, kernel: str) -> bool:
    return symbol == kernel or (symbol.startswith(f"{kernel}_") and "kernel" not in symbol[len(kernel) :])


def seconds_of(samples: Sequence[float]) -> float:
    """The figure by which schedules are compared: the fastest sample."""
    return min(samples)


@contextlib.contextmanager
def measuring(given: Measurer | None = None):
    """`given`, or a measurer that is closed at the end."""
    if given is not None:
        yield given
        return
    with Measurer() as own:
        yield own
