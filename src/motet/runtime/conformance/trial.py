"""The environment of a check: the driver, devices that are closed afterwards, gates, kernels, and waits with
timeouts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import numpy as np

from motet.artifact.schema import Variant
from motet.errors import DeviceError, MotetError
from motet.runtime.conformance.check import Array, Failure, Skip, expect_equal
from motet.runtime.conformance.kernels import CheckKernels, compile_kernels
from motet.runtime.device import (
    BUILT_IN,
    Buffer,
    CommandBuffer,
    Device,
    DeviceInfo,
    Driver,
    Executable,
    Reference,
    Work,
    find_device,
    load_driver,
    open_device,
)
from motet.runtime.selection import HOST
from motet.runtime.timeline import HostTimeline, Point

PATIENCE = 30.0  # seconds after which work that should have ended is considered lost
PAUSE = 0.05  # seconds in which work that must not start would be seen to


class Subject:
    """The device that a URI names, and the kernels that checks launch on it, compiled once."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.info: DeviceInfo = find_device(uri)
        self.driver: Driver = load_driver(self.info.family)
        self._code: CheckKernels | str | None = None

    @property
    def in_processes(self) -> frozenset[str]:
        """The checks after which the process can no longer use devices of the driver."""
        return frozenset(getattr(self.driver, "conformance_in_processes", ()))

    @property
    def exempt(self) -> dict[str, str]:
        """The checks from which the driver exempts its devices, with reasons."""
        return dict(getattr(self.driver, "conformance_exempt", {}))

    @property
    def failing(self) -> dict[str, str]:
        """The checks that the driver's devices are known to fail, with reasons."""
        return dict(getattr(self.driver, "conformance_expected_failures", {}))

    def code(self, opened: Device | None = None) -> CheckKernels | str:
        """The kernels for the first target of the family that the device supports, or why there are none. `opened` is
        the device, if it is open: it may be one that cannot be opened twice."""
        if self._code is None:
            device = open_device(self.info) if opened is None else opened
            try:
                self._code = compile_kernels(self.info.family, device)
            finally:
                if opened is None:
                    device.close()
        return self._code


class Gate:
    """A point that the check reaches explicitly; work that waits for it does not run until then."""

    def __init__(self) -> None:
        self._timeline = HostTimeline()
        self.point = self._timeline.next()

    def open(self) -> None:
        if not self.point.reached:
            self._timeline.signal(self.point.value)

    def fail(self, error: MotetError) -> None:
        self._timeline.fail(self.point.value, error)


class Hazards:
    """Finds the earlier steps that a step must follow, so that reads and writes of places keep their order."""

    def __init__(self) -> None:
        self._writer: dict[int, int] = {}
        self._readers: dict[int, set[int]] = {}

    def add(self, step: int, reads: Sequence[int], writes: Sequence[int]) -> tuple[int, ...]:
        """The steps that `step`, which reads and writes the given places, must follow."""
        after = {self._writer[place] for place in (*reads, *writes) if place in self._writer}
        for place in writes:
            after |= self._readers.pop(place, set())
            self._writer[place] = step
        for place in reads:
            self._readers.setdefault(place, set()).add(step)
        return tuple(sorted(after - {step}))


@dataclass
class DeviceTrial:
    """One check of one device. Devices that it opens are closed after the check."""

    subject: Subject
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(20))
    _devices: list[Device] = field(default_factory=list[Device])
    _gates: list[Gate] = field(default_factory=list[Gate])

    def __enter__(self) -> DeviceTrial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for gate in self._gates:
            gate.open()
        for device in self._devices:
            if error is None:
                device.close()
            else:  # an earlier failure takes precedence
                with contextlib.suppress(Exception):
                    device.close()

    # -- devices ---------------------------------------------------------------------------------

    @property
    def device(self) -> Device:
        """The device under test, opened at first use."""
        if not self._devices:
            self.open()
        return self._devices[0]

    def open(self, option: str = "") -> Device:
        """Open the device under test once more, with a further option."""
        info = self.subject.info
        if option:
            info = replace(info, uri=f"{info.uri}{'&' if '?' in info.uri else '?'}{option}")
        device = open_device(info)
        self._devices.append(device)
        return device

    def neighbour(self) -> Device:
        """A device of another driver."""
        others = [load_driver(family) for family in BUILT_IN if family != self.subject.info.family]
        named = [getattr(driver, "conformance_neighbour", "") for driver in others]
        uri = next(filter(None, named), HOST)
        device = open_device(find_device(uri))
        self._devices.append(device)
        return device

    @property
    def queues(self) -> range:
        return range(self.device.queues)

    def gate(self) -> Gate:
        gate = Gate()
        self._gates.append(gate)
        return gate

    # -- memory ----------------------------------------------------------------------------------

    def upload(self, array: Array, device: Device | None = None) -> Buffer:
        """A new buffer with the content of `array`."""
        device = device or self.device
        buffer = device.allocate(array.nbytes)
        finish(device.write(buffer, array), "write")
        return buffer

    def download(self, buffer: Buffer, like: Array, device: Device | None = None) -> Array:
        """The beginning of a buffer, as an array with the shape and dtype of `like`."""
        array = np.empty_like(like)
        finish((device or self.device).read(buffer, array), "read")
        return array

    def bytes_of(self, size: int) -> Array:
        """Random bytes."""
        return self.random.integers(0, 256, size, np.uint8)

    def check_works(self, device: Device, why: str) -> None:
        """Fail unless memory can be written and read."""
        data = self.bytes_of(257)
        expect_equal(self.download(self.upload(data, device), data, device), data, why)

    # -- code ------------------------------------------------------------------------------------

    @property
    def code(self) -> CheckKernels:
        """The compiled kernels. Skips the check if there are none."""
        code = self.subject.code(next(iter(self._devices), None))
        if isinstance(code, str):
            raise Skip(code)
        return code

    def load(self, device: Device | None = None, *units: str) -> Executable:
        """The kernels of the suite, loaded, with those of other `units`."""
        return (device or self.device).load(*self.code.files("kernels", "helper", *units))

    def variant(self, *features: str) -> Variant:
        """The code as an artifact's variant; `features` are additional requirements."""
        target = self.code
        return Variant(
            self.subject.info.family, target.target, target.triple, [*target.features, *features], [], {}
        )

    # Parameters: those of `record` and `submit` together; all but the first two have defaults.
    def launch(
        self, executable: Executable, kernel: str, buffers: Sequence[Buffer], tasks: int = 1,
        sizes: Sequence[int] = (), scratch: int = 0, waits: Sequence[Point] = (), queue: int = 0,
    ) -> Point:
        """One launch over whole buffers."""
        work = whole(kernel, [buffer.bytes for buffer in buffers], tasks, sizes)
        recorded = self.device.record(executable, [work], len(buffers), scratch)
        return self.device.submit(recorded, buffers, waits, queue)

    def affine(self, executable: Executable, count: int, steps: Sequence[int]) -> CommandBuffer:
        """`y = 2 x + step` for each of `steps` in order, first from external 0 to external 1 and then in place, over
        `count` 32-bit integers."""
        first, second = Reference(0, 0, 4 * count), Reference(1, 0, 4 * count)
        work = [
            Work("launch", (first if not index else second, second), "affine", count, (step,),
                 () if not index else (index - 1,))
            for index, step in enumerate(steps)
        ]
        return self.device.record(executable, work, 2, 0)


def affine_of(x: Array, steps: Sequence[int]) -> Array:
    """The result of `DeviceTrial.affine`, computed by numpy."""
    for step in steps:
        x = 2 * x + np.int32(step)
    return x


def whole(kernel: str, sizes_of_buffers: Sequence[int], tasks: int = 1, sizes: Sequence[int] = ()) -> Work:
    """A launch on all of externals 0, 1, …."""
    references = tuple(Reference(index, 0, size) for index, size in enumerate(sizes_of_buffers))
    return Work("launch", references, kernel, tasks, tuple(sizes))


def finish(point: Point, what: str) -> None:
    """Wait for a point. Fails if it is poisoned or not reached in time."""
    try:
        reached = point.wait(PATIENCE)
    except MotetError as error:
        raise Failure(f"{what}: {type(error).__name__}: {error}; expected success") from error
    if not reached:
        raise Failure(f"{what}: its point was not reached in {PATIENCE:g} s")
    if not point.reached:
        raise Failure(f"{what}: wait came back, but the point says that it is not reached")


def finish_poisoned(point: Point, what: str, kind: type[MotetError] = DeviceError) -> MotetError:
    """Wait for a point that must be poisoned with an error of `kind`; returns the error."""
    try:
        reached = point.wait(PATIENCE)
    except kind as error:
        own = point.error
        if own is None or type(own) is not type(error) or str(own) != str(error):
            raise Failure(f"{what}: wait raised {error!r}, but the point's error is {point.error!r}") from error
        return own
    except Exception as error:
        raise Failure(f"{what}: {type(error).__name__}: {error}; expected {kind.__name__}") from error
    if reached:
        raise Failure(f"{what}: success; expected {kind.__name__}")
    raise Failure(f"{what}: its point was not reached in {PATIENCE:g} s; expected {kind.__name__}")


def expect_pending(point: Point, what: str) -> None:
    """Fail if a point is reached, now or shortly after."""
    try:
        early = point.reached or point.wait(PAUSE)
    except MotetError as error:
        raise Failure(f"{what}: {type(error).__name__}: {error}; expected to wait") from error
    if early:
        raise Failure(f"{what}: its point is reached; expected it to wait")


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0)`, `work(1)`, … concurrently, each in a thread. Raises the exception of the first that failed."""
    errors: list[Exception] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except Exception as error:  # raised below, in the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def bits(array: Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An array's memory, as bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
