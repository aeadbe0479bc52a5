"""The submissions of a call over devices: points not reached yet, and memory in use by devices."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from motet.errors import DeviceError, MotetError
from motet.runtime.checks import Statuses
from motet.runtime.device import Buffer, Device
from motet.runtime.device_program import LoadedDevice
from motet.runtime.drivers.host.memory import Pool
from motet.runtime.plans.values import Array
from motet.runtime.queues import Slots
from motet.runtime.timeline import HostTimeline, Point
from motet.runtime.trace import Submissions

_PATIENCE = 0.3  # seconds that devices have to end their work after the user's interrupt
_abandoned: list[Underway] = []  # calls whose memory devices may still use


@dataclass
class Awaited:
    """Points to wait for, the memory in use until then, and the statuses to check then."""

    points: list[Point] = field(default_factory=list[Point])
    held: list[object] = field(default_factory=list[object])
    statuses: list[tuple[Statuses, Array]] = field(default_factory=list[tuple[Statuses, Array]])

    def add(self, other: Awaited) -> None:
        self.points += other.points
        self.held += other.held
        self.statuses += other.statuses

    def wait(self) -> None:
        """Wait. Raises the error of a poisoned point, or CallError for a check that failed."""
        for point in self.points:
            point.wait()
        failure = self.failed_check()
        if failure is not None:
            raise failure

    def failed_check(self) -> Exception | None:
        checked = (statuses.failure_of(found.tobytes()) for statuses, found in self.statuses)
        return next((each for each in checked if each is not None), None)


class Underway:
    """The submissions of one call, recorded in `noted` if given."""

    def __init__(
        self, devices: Sequence[LoadedDevice], slots: Slots, staging: Pool, noted: Submissions | None = None
    ) -> None:
        self.devices = devices
        self.slots = slots
        self.staging = staging  # host memory for values in transit
        self.noted = noted
        self.pending = Awaited()
        self.gates = HostTimeline()
        self.slot = 0

    def pend(self, point: Point, buffers: Sequence[Buffer]) -> None:
        self.pending.points.append(point)
        self.pending.held += buffers

    def note(self, device: Device, queue: int, waits: Sequence[Point], point: Point, events: int = 1) -> Point:
        return point if self.noted is None else self.noted.submitted(device.info.uri, queue, events, waits, point)

    def shifted(self, device: Device, queue: int) -> int:
        """The queue of this call that corresponds to `queue` of a concurrent one."""
        return (queue + self.slot) % device.queues

    def cut(self) -> Awaited:
        """Hand over the pending points, for which the caller must then wait."""
        cut, self.pending = self.pending, Awaited()
        return cut

    def settle_now(self) -> None:
        for point in self.pending.points:
            point.wait()

    def settle(self) -> Exception | None:
        """Wait for all submissions: memory in use by a device must not be freed."""
        failure: Exception | None = None
        for point in self.pending.points:
            try:
                point.wait()
            except Exception as error:  # wait for every point, whatever the first one raised
                failure = failure or error
        self.pending.held.clear()
        return failure or self.pending.failed_check()

    def abandon(self) -> None:
        """Tell devices to end their work. The memory of this call is kept until they have, since they may still write
        to it."""
        _abandoned[:] = [each for each in _abandoned if not all(point.reached for point in each.pending.points)]
        _abandoned.append(self)
        for loaded in self.devices:
            if not loaded.device.info.host_memory:
                with suppress(DeviceError):
                    loaded.device.abort()
        end = time.monotonic() + _PATIENCE
        for point in self.pending.points:
            with suppress(MotetError):
                point.wait(max(0.0, end - time.monotonic()))
        if all(point.reached for point in self.pending.points):
            _abandoned.remove(self)
