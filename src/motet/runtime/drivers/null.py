"""Simulated devices: separate memory, code for this CPU, and a modelled clock.

They run programs for several devices, and inject failures, on any machine. Kernels really run; their times are
computed: a command starts when the previous one on its queue has ended and its waits are reached, and takes

    latency + bytes touched / memory-bandwidth + tasks * task-time        launches and copies on the device
    latency + bytes / bandwidth                                           to and from the host

    null?latency=5e-6&bandwidth=12e9      a device behind a bus
    null/1?memory=1e6                     the second device, with a million bytes
    null?lose-after=3                     lost with its fourth submission
    null?hang-at=3&answer=2               its fourth submission hangs; the device is lost after two seconds
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.artifact.schema import Variant
from motet.artifact.uri import number_options
from motet.cpu_features import machine
from motet.errors import DeviceLost, KernelFault, MotetError, OutOfMemoryError
from motet.runtime.device import API_VERSION, Buffer, DeviceInfo, Event, Work
from motet.runtime.drivers.host.in_process import EXEMPT_IN_PROCESS, InProcessDevice, NativeBuffer
from motet.runtime.drivers.host.recorded import NativeCommandBuffer, processor_obstacle
from motet.runtime.timeline import HostTimeline, Point, raisable

api = API_VERSION

FAMILY = "null"
DEVICES = 4

conformance_exempt = EXEMPT_IN_PROCESS

# A device of another driver, for checks with two devices.
conformance_neighbour = "null?view=1"

# The option with which a device is lost after a number of submissions, for checks of lost devices.
conformance_loss = "lose-after"

# Each option's default and minimum.
_OPTIONS = {
    "latency": (2e-6, 0),  # seconds before a command starts
    "bandwidth": (16e9, 1),  # bytes per second to and from the host
    "memory-bandwidth": (100e9, 1),  # bytes per second that kernels read and write
    "task-time": (0, 0),  # seconds that each task takes
    "pace": (0, 0),  # 1: points are reached only when the model says so
    "memory": (1 << 33, 0),  # bytes
    "queues": (2, 1),
    "threads": (1, 1),
    "view": (0, 0),  # 1: the host may address the memory
    "lose-after": (-1, -1),  # successful submissions before the device is lost; -1: never
    "hang-at": (-1, -1),  # the submission, from 0 on, that hangs until it is aborted; -1: none
    "answer": (0, 0),  # seconds after which a device that hangs is lost; 0: never
    "fault-at": (-1, -1),  # the submission, from 0 on, whose kernel faults; -1: none
}


# -- probe and open --------------------------------------------------------------------------------


def probe() -> Sequence[DeviceInfo]:
    return [
        DeviceInfo(
            "modelled device, no hardware", FAMILY if not number else f"{FAMILY}/{number}", cores=1, threads=1,
            level=machine(), memory=int(_OPTIONS["memory"][0]), family=FAMILY, ordinal=number,
            is_modelled=True,
        )
        for number in range(DEVICES)
    ]


def open(info: DeviceInfo) -> NullDevice:
    """Raises DeviceError for unknown options."""
    return NullDevice(info, number_options(info.uri, _OPTIONS))


@dataclass(eq=False)
class _Moment:
    """The timeline of one point: that of its queue, and the modelled time at which the point is reached."""

    timeline: HostTimeline
    end: float = 0.0

    def reached(self, value: int) -> bool:
        return self.timeline.reached(value)

    def wait(self, value: int, timeout: float | None = None) -> bool:
        return self.timeline.wait(value, timeout)

    def error(self, value: int) -> MotetError | None:
        return self.timeline.error(value)


class NullDevice(InProcessDevice):
    """See `motet.runtime.device.Device`."""

    def __init__(self, info: DeviceInfo, options: dict[str, float]) -> None:
        super().__init__(info, int(options["queues"]), int(options["threads"]))
        self.options = options
        self._capacity = int(options["memory"])
        self._used = 0
        self._given_back: deque[int] = deque()
        self._clocks = [0.0] * self.queues  # the modelled time on each queue
        self._lock = threading.Lock()
        self._submissions = 0
        self._released = threading.Event()
        self._lost: DeviceLost | None = None

    @property
    def bytes_used(self) -> int:
        """Bytes of the live buffers."""
        with self._lock:
            return self._count_used()

    def _count_used(self) -> int:
        while self._given_back:
            self._used -= self._given_back.popleft()
        return self._used

    # -- memory ----------------------------------------------------------------------------------

    def _allocate(self, size: int) -> NativeBuffer:
        with self._lock:
            if self._count_used() + size > self._capacity:
                raise OutOfMemoryError(size, self.info.uri)
            self._used += size
        buffer = super()._allocate(size)
        weakref.finalize(buffer, _give_back, weakref.ref(self), size).atexit = False
        return buffer

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        own = self._own(buffer)
        return self._bytes(own) if self.options["view"] else None

    # -- code and work ---------------------------------------------------------------------------

    def obstacle(self, variant: Variant) -> str | None:
        return f"for {variant.family} devices" if variant.family != FAMILY else processor_obstacle(variant)

    def _submit(
        self, work: NativeCommandBuffer, buffers: Sequence[NativeBuffer], waits: Sequence[Point], queue: int
    ) -> Point:
        with self._lock:
            number, self._submissions = self._submissions, self._submissions + 1
        commands = [
            (item.kernel or item.op, item.op, self._bytes_moved(item), self._duration(item)) for item in work.work
        ]

        def run() -> None:
            if number == self.options["lose-after"]:
                raise self._lose(f"after {number} submissions, as lose-after={number} asks for")
            if number == self.options["hang-at"]:
                self._hang(number)
            if number == self.options["fault-at"]:
                kernel = next((item.kernel for item in work.work if item.kernel), "")
                reason = f"submission {number}, as fault-at={number} asks for"
                raise KernelFault(self.info.uri, kernel, reason)
            work.program.run([buffer.address for buffer in buffers])

        return self._start_commands(commands, run, waits, queue)

    # -- simulated time, also of events -----------------------------------------------------------

    def _bus(self, size: int) -> float:
        return self.options["latency"] + size / self.options["bandwidth"]

    def _local(self, size: int) -> float:
        return self.options["latency"] + size / self.options["memory-bandwidth"]

    def _duration(self, item: Work) -> float:
        touched = sum(reference.bytes for reference in item.references)
        tasks = item.tasks * self.options["task-time"] if item.op == "launch" else 0.0
        return self._local(touched) + tasks

    def _bytes_moved(self, item: Work) -> int:
        return item.references[0].bytes if item.op == "copy" else 0

    def _start(
        self, kind: str, size: int, work: Callable[[], None], waits: Sequence[Point], queue: int
    ) -> Point:
        seconds = self._bus(size) if kind in ("write", "read") else self._local(2 * size if kind == "copy" else size)
        return self._start_commands([(kind, kind, size, seconds)], work, waits, queue)

    def _start_commands(
        self, commands: Sequence[tuple[str, str, int, float]], work: Callable[[], None], waits: Sequence[Point],
        queue: int,
    ) -> Point:
        """Queue `work`, which represents `commands`: name, kind, bytes and duration of each."""
        submitted = time.perf_counter()
        moment = _Moment(self._queues[queue].timeline)
        before = [point.timeline for point in waits if isinstance(point.timeline, _Moment)]
        foreign = any(not isinstance(point.timeline, _Moment) and not point.reached for point in waits)

        def timed() -> None:
            if self._lost is not None:
                raise raisable(self._lost)
            present = time.perf_counter() if foreign else submitted
            clock = max([present, self._clocks[queue], *(earlier.end for earlier in before)])
            work()
            for name, kind, size, duration in commands:
                if self._profiling:
                    self._events.append(Event(name, kind, queue, clock, clock + duration, size))
                clock += duration
            self._clocks[queue] = moment.end = clock
            if self.options["pace"]:
                time.sleep(max(0.0, clock - time.perf_counter()))

        return Point(moment, self._queues[queue].submit(timed, waits).value)

    # -- lifetime --------------------------------------------------------------------------------

    def _end_work(self) -> None:
        self._released.set()
        super()._end_work()

    def give_back(self, size: int) -> None:
        """Called when a buffer is collected, possibly inside `allocate`, so that it must not block."""
        self._given_back.append(size)

    def _hang(self, number: int) -> None:
        """Block until `abort`, or until the device is lost."""
        limit = self.options["answer"]
        if not self._released.wait(limit or None):
            raise self._lose(f"it does not answer: submission {number} has run for {limit:g} s, as hang-at={number} "
                             f"and answer={limit:g} ask for")

    def _lose(self, reason: str) -> DeviceLost:
        self._lost = DeviceLost(self.info.uri, reason)
        for queue in self._queues:
            queue.abort(self._lost)
        return self._lost

    # -- checks ----------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        super()._check_usable()
        if self._lost is not None:
            raise raisable(self._lost)


def _give_back(device: weakref.ref[NullDevice], size: int) -> None:
    owner = device()
    if owner is not None:
        owner.give_back(size)
