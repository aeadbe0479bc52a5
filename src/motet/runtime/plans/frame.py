"""The state of one execution of a plan: its values, their memory, and their transfers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from motet.artifact.schema import Step
from motet.runtime.device import Buffer, Device
from motet.runtime.instantiate import Shape
from motet.runtime.lifetimes import Use
from motet.runtime.plans.recorded import RecordedPlan, copies_from
from motet.runtime.plans.underway import Underway
from motet.runtime.plans.values import Array, PlacedCopy, PlacedValue, Tensor
from motet.runtime.timeline import Point


class Recycled(Protocol):
    """Memory of a call without further readers."""

    def add(self, device: Device, buffer: Buffer, use: Use) -> None: ...

    def take(self, device: Device, size: int, place: int) -> tuple[Buffer, list[Point]] | None:
        """A buffer for the output of the step at `place`, and the points to wait for before it is written."""
        ...


class PlanFrame:
    """One execution of a plan. `direct` maps results, by number, to the caller's tensors in which they are to be
    written, if their device can."""

    def __init__(
        self, recorded: RecordedPlan, underway: Underway, values: Mapping[int, PlacedValue], recycled: Recycled,
        direct: Mapping[int, Tensor],
    ) -> None:
        self.recorded = recorded
        self.lifetimes = recorded.lifetimes
        self.devices = underway.devices
        self.underway = underway
        self.values = dict(values)
        self.recycled = recycled
        self.direct = direct
        self.place = 0  # of the step being submitted

    def number_of(self, device: object) -> int | None:
        """The number of a device if it is one of the call's; else None."""
        return next((n for n, loaded in enumerate(self.devices) if loaded.device is device), None)

    # -- memory ----------------------------------------------------------------------------------

    def own(self, device: Device, size: int) -> PlacedCopy:
        """Memory for the output of the step being submitted, and the points to wait for before it is written."""
        found = self.recycled.take(device, size, self.place)
        if found is not None:
            return PlacedCopy(*found, use=Use())
        if self.underway.noted is not None:
            self.underway.noted.allocated(device.info.uri, size)
        return PlacedCopy(device.allocate(size), [], use=Use())

    def used(self, copy: PlacedCopy, point: Point) -> None:
        """Record that work of the step being submitted uses a copy until `point`."""
        turn = self.lifetimes.turns[self.place]
        while True:
            if copy.use is not None:
                copy.use.add(self.place, turn, point)
            if copy.source is None:
                return
            copy = copy.source

    def retire(self, step: Step) -> None:
        """Return the memory of values without further uses after `step` was submitted."""
        plan = self.lifetimes
        for number in (*step.operands, *step.results):
            value, name = self.values[number], plan.names[number]
            for home, copy in tuple(value.copies.items()):
                device = self.devices[home].device
                if copy.use is not None and plan.is_over(name, id(device), self.place, value.array is not None):
                    del value.copies[home]
                    if not any(other is copy for other in value.copies.values()):
                        self.give_back(device, copy)

    def give_back(self, device: Device, copy: PlacedCopy) -> None:
        if copy.use is not None:
            self.recycled.add(device, copy.buffer, copy.use)
            copy.use = None

    def new(self, number: int, shape: Shape, device: int) -> PlacedValue:
        """Memory for a result: the caller's if the device can work in it."""
        loaded = self.devices[device]
        own = self.direct.get(number)
        if isinstance(own, np.ndarray):
            buffer = loaded.device.adopt(own) if loaded.device.info.host_memory else None
            if buffer is not None:
                return PlacedValue(shape, {device: PlacedCopy(buffer, [])}, own)
        elif own is not None and loaded.device is own.device:
            return PlacedValue(shape, {device: PlacedCopy(own.buffer, [])})
        return PlacedValue(shape, {device: self.own(loaded.device, shape.bytes)})

    def own_copy(self, value: PlacedValue, device: int) -> PlacedValue:
        """A copy of a value that a step writes in place: the caller's tensor changes only if the whole call
        succeeds."""
        target = self.devices[device].device
        source = self.on(value, device, 0)
        own = self.own(target, value.shape.bytes)
        waits = [*source.points, *own.points]
        point = self.underway.note(target, 0, waits, target.copy(source.buffer, own.buffer, waits))
        self.underway.pend(point, [source.buffer, own.buffer])
        self.used(source, point)
        self.used(own, point)
        own.points = [point]
        return PlacedValue(value.shape, {device: own})

    # -- transfers -------------------------------------------------------------------------------

    def on(self, value: PlacedValue, device: int, queue: int) -> PlacedCopy:
        """The value on a device; transferred if it is not there."""
        copy = value.copies.get(device)
        if copy is None:
            copy = value.copies[device] = self._move(value, device, queue)
        return copy

    def _move(self, value: PlacedValue, device: int, queue: int) -> PlacedCopy:
        target = self.devices[device].device
        for other, copy in value.copies.items():
            if self.devices[other].device is target:
                return copy
        for other, copy in value.copies.items():
            if copies_from(target, self.devices[other].device):
                return self._copied(value, copy, target, queue)
        source, points, origin = self.host_bytes(value)
        if target.info.host_memory:
            buffer = target.adopt(source)
            if buffer is not None:
                self.underway.pending.held.append(buffer)
                return PlacedCopy(buffer, points, source=origin)
        if self.underway.slots.crowd(target):  # work of other calls in its queue would wait, too
            for point in points:
                point.wait()
        own = self.own(target, value.shape.bytes)
        waits = [*points, *own.points]
        # Use a queue without computations, which does not wait for values still to be computed; else the reader's
        # queue.
        own.queue = self._transfer_queue(target, self.underway.shifted(target, queue))
        written = target.write(own.buffer, source, 0, waits, own.queue)
        point = self.underway.note(target, own.queue, waits, written)
        self.underway.pend(point, [own.buffer])
        self.used(own, point)
        if origin is not None:
            self.used(origin, point)
        own.points = [point]
        return own

    def _copied(self, value: PlacedValue, copy: PlacedCopy, target: Device, queue: int) -> PlacedCopy:
        """A copy by a device that can access the other device's memory directly."""
        own = self.own(target, value.shape.bytes)
        waits = [*copy.points, *own.points]
        own.queue = self._transfer_queue(target, self.underway.shifted(target, queue))
        copied = target.copy(copy.buffer, own.buffer, waits, own.queue)
        point = self.underway.note(target, own.queue, waits, copied)
        self.underway.pend(point, [copy.buffer, own.buffer])
        self.used(own, point)
        self.used(copy, point)
        own.points = [point]
        return own

    def host_bytes(self, value: PlacedValue) -> tuple[Array, list[Point], PlacedCopy | None]:
        """The value for reading on the host: its array, device memory in place, or a new array. The returned copy is
        the one whose memory the array is, if any."""
        if value.array is not None:
            return value.array, value.points, None
        number, copy = next(iter(value.copies.items()))
        device = self.devices[number].device
        view = device.view(copy.buffer) if not value.outlives else None
        if view is not None:
            return view[: value.shape.bytes], copy.points, copy
        size = value.shape.bytes
        array = self.underway.staging.allocate(size).array(np.dtype(np.uint8), (size,))
        # Use the queue that computed it: another one might wait for unrelated work. In an iteration of a loop, use the
        # other queue, while the next iteration computes.
        turn = self.lifetimes.turns[self.place]
        queue = copy.queue if turn is None else self._transfer_queue(device, copy.queue)
        read = device.read(copy.buffer, array, 0, copy.points, queue)
        point = self.underway.note(device, queue, copy.points, read)
        self.underway.pend(point, [copy.buffer])
        self.used(copy, point)
        value.array, value.points = array, [point]
        return array, [point], None

    def _transfer_queue(self, device: Device, queue: int) -> int:
        """A queue without computations; with several calls in progress, each of which has its own queues, `queue`."""
        return queue if self.underway.slots.several else self.recorded.spare.get(id(device), queue)
