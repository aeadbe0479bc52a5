"""A function over several devices, for one combination of extents: its plan, executed.

A value lies on a device, or on several once it was moved; every copy has the point after which it may be read.
Steps are submitted (`submission.py`) as soon as what they read is under way: a device that works by itself goes on
while the next step is submitted, and what waits for another device waits for its point. A call ends when all it
submitted has ended; a poisoned point ends it with that point's error. Memory that nobody reads any more is used again
(`lifetimes.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motet.artifact.schema import Plan, Schedule, Signature, Step
from motet.errors import ArtifactError, DeviceError, MotetError
from motet.runtime.checks import Statuses
from motet.runtime.device import Buffer, CommandBuffer, Device
from motet.runtime.device_array import DeviceArray
from motet.runtime.device_program import LoadedDevice
from motet.runtime.drivers.host.memory import Pool
from motet.runtime.instantiate import Concrete, Shape, check_constraints, make_concrete, shape_of
from motet.runtime.lifetimes import Retired, Use, lifetimes
from motet.runtime.queues import Slots, choose_queues, run_beside, spare_queues
from motet.runtime.selection import HOST
from motet.runtime.submission import submission_order
from motet.runtime.tensors import show_shape
from motet.runtime.timeline import HostTimeline, Point
from motet.runtime.trace import Submissions, Traced

Array = np.ndarray[Any, Any]
Tensor = Array | DeviceArray


@dataclass
class _Copy:
    """A value on one device; `points` are what has to be reached before it is read, `queue` made it last. The buffer is
    the call's own, for another value after this one, where `use` says who has used it; else it may be memory of
    `source`, a copy on another device."""

    buffer: Buffer
    points: list[Point]
    queue: int = 0
    use: Use | None = None
    source: _Copy | None = None


@dataclass
class _Value:
    """A value of one call: its copies by device, and the host's array where there is one."""

    shape: Shape
    copies: dict[int, _Copy] = field(default_factory=dict[int, _Copy])
    array: Array | None = None
    points: list[Point] = field(default_factory=list[Point])  # of the array
    outlives: bool = False  # the turn of a loop that it is made in, and the next one


@dataclass(frozen=True)
class _Run:
    """A step that was recorded: which of its operands it reads at all, and what it needs besides."""

    step: Step
    concrete: Concrete
    commands: CommandBuffer
    read: frozenset[int]
    queue: int
    destinations: Mapping[int, int]  # of results that are made in an operand's memory: the operand
    leaving: frozenset[int]  # results that other devices read
    beside: bool  # not in the caller's thread, which has something else to do meanwhile


@dataclass(frozen=True)
class _Transfer:
    """A step that moves a value, and the queue to do it on where none is spare."""

    step: Step
    queue: int


@dataclass(frozen=True)
class Alone:
    """A function as work of one device: its externals are the arguments, the results, an arena and parameters."""

    loaded: LoadedDevice
    concrete: Concrete
    commands: CommandBuffer


class PlacedInstance:
    """Runs a plan on `devices`, one for each of the artifact's, equal where two of them are one device; `schedules`
    has the regions of each. Safe to run from several threads."""

    resident = True

    def __init__(
        self, signature: Signature, plan: Plan, regions: Mapping[str, Signature], devices: Sequence[LoadedDevice],
        symbols: Mapping[str, int], schedules: Sequence[Mapping[str, Schedule]],
    ) -> None:
        self.signature = signature
        self.plan = plan
        self.devices = devices
        self.prepared: Callable[..., Any] | None = None
        self.direct: list[Any] = []  # at most one: what a device makes of `alone`
        self.staging = Pool()  # the host's memory that values pass through on their way
        where = signature.name
        check_constraints(signature, symbols, where)
        self.inputs = [shape_of(spec, symbols, f"{where}: {spec.name}") for spec in signature.inputs]
        self.results = [shape_of(spec, symbols, f"{where}: {spec.name}") for spec in signature.results]
        order = submission_order(
            plan.steps, lambda device: devices[device].device.info.family == HOST,
            lambda device: id(devices[device].device),
        )
        queues = choose_queues(
            plan.steps, order, lambda device: id(devices[device].device), lambda device: devices[device].device.queues
        )
        self.spare = spare_queues(plan.steps, queues, [loaded.device for loaded in devices])
        self.slots = Slots()  # of the calls under way
        self._leaving = _leaving(plan, [loaded.device for loaded in devices])
        self.lifetimes = lifetimes(plan, order, lambda device: id(devices[device].device))
        self._beside = run_beside(
            plan.steps, order, lambda device: devices[device].device.info.family == HOST,
            lambda device: id(devices[device].device),
        )
        shapes = dict(zip(plan.inputs, self.inputs, strict=True))
        entries: list[_Run | _Transfer] = []
        for number, (step, queue) in enumerate(zip(plan.steps, queues, strict=True)):
            if step.op == "transfer":
                shapes[step.results[0]] = shapes[step.operands[0]]
                entries.append(_Transfer(step, queue))
                continue
            schedule = schedules[step.device][step.region]
            run = self._record(step, regions[step.region], shapes, schedule, queue, number in self._beside)
            shapes.update(zip(step.results, run.concrete.results, strict=True))
            entries.append(run)
        self._steps = [entries[number] for number in order]
        self._order = order
        self._shapes = shapes

    def _record(
        self, step: Step, region: Signature, shapes: Mapping[int, Shape], schedule: Schedule, queue: int, beside: bool
    ) -> _Run:
        given = [shapes[value] for value in step.operands]
        symbols = {s.name: given[s.input].extents[s.axis] for s in region.symbols}
        loaded = self.devices[step.device]
        concrete = make_concrete(
            region, schedule, symbols, loaded.parameter_bytes, self.signature.name, loaded.agreement,
            apart=True,
        )
        for value, shape, expected in zip(step.operands, given, concrete.inputs, strict=True):
            if shape.extents != expected.extents:
                raise ArtifactError(
                    f"{self.signature.name}: value {value} of the plan is {show_shape(shape.extents)}; region "
                    f"{step.region!r} expects {show_shape(expected.extents)}"
                )
        commands = loaded.device.record(
            loaded.executable, concrete.work, concrete.externals, concrete.scratch
        )
        read = {reference.external for work in concrete.work for reference in work.references}
        destinations = {i: s.destination for i, s in enumerate(region.results) if s.destination is not None}
        # In a loop that was taken apart it is asked for later, on the queue for what is moved.
        apart = step.turn is not None and id(loaded.device) in self.spare
        leaving = frozenset(i for i, number in enumerate(step.results) if number in self._leaving and not apart)
        return _Run(step, concrete, commands, frozenset(read), queue, destinations, leaving, beside)

    def alone(self) -> Alone | None:
        """The whole function as one piece of work, where it is one step on the function's own arguments and results."""
        runs = [entry for entry in self._steps if isinstance(entry, _Run)]
        origin = {step.results[0]: step.operands[0] for step in self.plan.steps if step.op == "transfer"}

        def resolved(value: int) -> int:
            while value in origin:
                value = origin[value]
            return value

        if len(runs) != 1:
            return None
        step = runs[0].step
        is_whole = (
            [resolved(value) for value in step.operands] == self.plan.inputs
            and [resolved(value) for value in self.plan.results] == step.results
        )
        return Alone(self.devices[step.device], runs[0].concrete, runs[0].commands) if is_whole else None

    def run(self, arrays: Sequence[Tensor]) -> None:
        _Call(self, arrays).run(None)

    def run_timed(self, arrays: Sequence[Tensor]) -> list[tuple[str, float]]:
        """Seconds of each step of the plan, transfers included, one after the other."""
        timed: list[tuple[str, float]] = []
        _Call(self, arrays).run(timed)
        return [entry for _, entry in sorted(zip(self._order, timed, strict=True))]

    def run_traced(self, arrays: Sequence[Tensor]) -> list[Traced]:
        """Every device's own record of the call, and what was noted when submitting to it."""
        devices = list({id(loaded): loaded.device for loaded in self.devices}.values())
        noted = Submissions({loaded.uri: loaded.parameter_total for loaded in self.devices})
        for device in devices:
            device.profile(True)
        try:
            _Call(self, arrays, noted).run(None)
        finally:
            recorded = {device.info.uri: device.profile(False) for device in devices}
        return noted.attach(recorded)

    @property
    def kept_bytes(self) -> int:
        return 0

    def prepare(self, fallback: Any) -> None:
        return None


_PATIENCE = 0.3  # seconds that devices have to end their work after the user's interrupt
_abandoned: list[_Call] = []  # of which devices may still work on the memory


class _Call:
    """One execution of a plan; what it submits goes into `noted` where that is given."""

    def __init__(
        self, instance: PlacedInstance, arrays: Sequence[Tensor], noted: Submissions | None = None
    ) -> None:
        self.instance = instance
        self.noted = noted
        self.devices = instance.devices
        count = len(instance.inputs)
        self.results = list(arrays[count:])
        self.values: dict[int, _Value] = {}
        for number, shape, array in zip(instance.plan.inputs, instance.inputs, arrays[:count], strict=True):
            self.values[number] = self._given(shape, array)
        self.pending: list[Point] = []
        self.held: list[Buffer] = []  # until everything has ended
        self.kept: list[Array] = []
        self.statuses: list[tuple[Statuses, Array]] = []
        self.retired = Retired(instance.lifetimes)
        self.place = 0  # of the step that is being submitted
        self.gates = HostTimeline()
        self.slot = 0

    def _given(self, shape: Shape, tensor: Tensor) -> _Value:
        """An argument: on the device that it lies on, where that is one of the call's."""
        if not isinstance(tensor, DeviceArray):
            return _Value(shape, array=tensor)
        home = self._number_of(tensor)
        return _Value(shape, array=tensor.numpy()) if home is None else _Value(shape, {home: _Copy(tensor.buffer, [])})

    def _number_of(self, tensor: DeviceArray) -> int | None:
        return next((n for n, loaded in enumerate(self.devices) if loaded.device is tensor.device), None)

    def run(self, timed: list[tuple[str, float]] | None) -> None:
        self.slot = self.instance.slots.take()
        try:
            try:
                self._submit_all(timed)
            except Exception:
                self._settle()
                raise
            failure = self._settle()
        except BaseException as error:
            if not isinstance(error, Exception):  # the user's interrupt
                self._abandon()
            raise
        finally:
            self.instance.slots.give_back(self.slot)
        if failure is not None:
            raise failure

    def _submit_all(self, timed: list[tuple[str, float]] | None) -> None:
        steps = self.instance._steps  # pyright: ignore[reportPrivateUsage]
        for self.place, entry in enumerate(steps):
            begin = time.perf_counter()
            if isinstance(entry, _Run):
                self._submit(entry)
            else:
                self._transfer(entry)
            self._retire(entry.step)
            if timed is not None:
                self._settle_now()
                name = entry.step.region if isinstance(entry, _Run) else "transfer"
                timed.append((name, time.perf_counter() - begin))
        self._return()

    def _abandon(self) -> None:
        """Tells devices to end their work. One that does not at once may still write to what this call holds, which
        stays until it has."""
        _abandoned[:] = [call for call in _abandoned if not all(point.reached for point in call.pending)]
        _abandoned.append(self)
        for loaded in self.devices:
            if not loaded.device.info.host_memory:
                with suppress(DeviceError):
                    loaded.device.abort()
        end = time.monotonic() + _PATIENCE
        for point in self.pending:
            with suppress(MotetError):
                point.wait(max(0.0, end - time.monotonic()))
        if all(point.reached for point in self.pending):
            _abandoned.remove(self)

    def _settle(self) -> Exception | None:
        """Waits for everything: memory that a device still works on must not go."""
        failure: Exception | None = None
        for point in self.pending:
            try:
                point.wait()
            except Exception as error:  # every point is waited for, whatever the first one raised
                failure = failure or error
        self.held.clear()
        checked = (statuses.failure_of(found.tobytes()) for statuses, found in self.statuses)
        return failure or next((each for each in checked if each is not None), None)

    # -- steps -----------------------------------------------------------------------------------

    def _submit(self, run: _Run) -> None:
        step, concrete = run.step, run.concrete
        loaded = self.devices[step.device]
        device = loaded.device
        waits: list[Point] = []
        buffers: list[Buffer] = []
        used: list[_Copy] = []
        spare: list[_Copy] = []  # needed by this step alone
        for index, number in enumerate(step.operands):
            if index in run.read:
                copy = self._on(self.values[number], step.device, run.queue)
            else:  # its shape is read, not its elements
                copy = self._own(device, self.values[number].shape.bytes)
                spare.append(copy)
            used.append(copy)
        made: list[_Value] = []
        for index, (number, shape) in enumerate(zip(step.results, concrete.results, strict=True)):
            place = run.destinations.get(index)
            if place is None:
                value = self._new(number, shape, step.device)
            else:
                value = self._own_copy(self.values[step.operands[place]], step.device)
                used[place] = value.copies[step.device]
            value.outlives = number in self.instance.lifetimes.outliving
            self.values[number] = value
            used.append(value.copies[step.device])
            made.append(value)
        queue = run.queue if step.queues else self._shifted(device, run.queue)
        arena = self._own(device, concrete.arena)
        spare.append(arena)
        used.append(arena)
        for copy in used:
            buffers.append(copy.buffer)
            waits += copy.points
        buffers += [loaded.parameter(index) for index in concrete.parameters]
        status = None
        if concrete.statuses is not None:
            status = self._own(device, concrete.statuses.bytes)
            self._clear(concrete.statuses, status, device, queue)
            spare.append(status)
            used.append(status)
            buffers.append(status.buffer)
            waits += status.points
        # A device that works in the caller's thread does so in its queue's where it has to wait.
        gate = self.gates.next() if run.beside else None
        try:
            point = device.submit(run.commands, buffers, waits if gate is None else [*waits, gate], queue)
        finally:
            if gate is not None:
                self.gates.signal(gate.value)
        point = self._note(device, queue, waits, point, len(concrete.work))
        self._pend(point, buffers)
        for copy in used:
            self._used(copy, point)
        if concrete.statuses is not None and status is not None:
            self._look(concrete.statuses, status, device, queue, point)
        for copy in spare:
            self._give_back(device, copy)
        for value in made:
            value.copies[step.device].points = [point]
            value.copies[step.device].queue = queue
            value.points = [point] if value.array is not None else []
        for index in run.leaving:  # now: behind the step on its queue, and before what is submitted later
            self._host_bytes(made[index])

    def _clear(self, statuses: Statuses, status: _Copy, device: Device, queue: int) -> None:
        """Has statuses made zero, before what works on them."""
        zeros = np.zeros(statuses.bytes, np.uint8)
        point = device.write(status.buffer, zeros, 0, status.points, queue)
        self._pend(self._note(device, queue, status.points, point), [status.buffer])
        self._used(status, point)
        status.points = [point]

    def _look(self, statuses: Statuses, status: _Copy, device: Device, queue: int, after: Point) -> None:
        """Has statuses read when the work is done."""
        found = np.empty(statuses.bytes, np.uint8)
        point = device.read(status.buffer, found, 0, [after], queue)
        self._pend(self._note(device, queue, [after], point), [status.buffer])
        self._used(status, point)
        self.statuses.append((statuses, found))

    def _transfer(self, transfer: _Transfer) -> None:
        step = transfer.step
        value = self.values[step.results[0]] = self.values[step.operands[0]]
        self._on(value, step.device, transfer.queue)

    def _new(self, number: int, shape: Shape, device: int) -> _Value:
        """Memory for a result, the caller's own where the device can work in it."""
        loaded = self.devices[device]
        results = self.instance.plan.results
        if number in results and self.instance.signature.results[results.index(number)].destination is None:
            own = self.results[results.index(number)]
            if isinstance(own, DeviceArray):
                if loaded.device is own.device:
                    return _Value(shape, {device: _Copy(own.buffer, [])})
            elif loaded.device.info.host_memory:
                buffer = loaded.device.adopt(own)
                if buffer is not None:
                    return _Value(shape, {device: _Copy(buffer, [])}, own)
        return _Value(shape, {device: self._own(loaded.device, shape.bytes)})

    def _own_copy(self, value: _Value, device: int) -> _Value:
        """What a step writes in place: the caller's own changes when all has ended well, not before."""
        target = self.devices[device].device
        source = self._on(value, device, 0)
        own = self._own(target, value.shape.bytes)
        waits = [*source.points, *own.points]
        point = self._note(target, 0, waits, target.copy(source.buffer, own.buffer, waits))
        self._pend(point, [source.buffer, own.buffer])
        self._used(source, point)
        self._used(own, point)
        own.points = [point]
        return _Value(value.shape, {device: own})

    # -- moving ----------------------------------------------------------------------------------

    def _on(self, value: _Value, device: int, queue: int) -> _Copy:
        """The value on a device, moved there if it is not."""
        copy = value.copies.get(device)
        if copy is None:
            copy = value.copies[device] = self._move(value, device, queue)
        return copy

    def _move(self, value: _Value, device: int, queue: int) -> _Copy:
        target = self.devices[device].device
        for other, copy in value.copies.items():
            if self.devices[other].device is target:
                return copy
        for other, copy in value.copies.items():
            if _copies_from(target, self.devices[other].device):
                return self._copied(value, copy, target, queue)
        source, points, origin = self._host_bytes(value)
        if target.info.host_memory:
            buffer = target.adopt(source)
            if buffer is not None:
                self.held.append(buffer)
                return _Copy(buffer, points, source=origin)
        if self.instance.slots.crowd(target):  # in its queue the work of other calls would wait for them, too
            for point in points:
                point.wait()
        own = self._own(target, value.shape.bytes)
        waits = [*points, *own.points]
        # On a queue where nothing computes, which need not wait for what is still to be made; else where it is read.
        own.queue = self._apart(target, self._shifted(target, queue))
        point = self._note(target, own.queue, waits, target.write(own.buffer, source, 0, waits, own.queue))
        self._pend(point, [own.buffer])
        self._used(own, point)
        if origin is not None:
            self._used(origin, point)
        own.points = [point]
        return own

    def _copied(self, value: _Value, copy: _Copy, target: Device, queue: int) -> _Copy:
        """A copy by a device that reaches the other's memory by itself."""
        own = self._own(target, value.shape.bytes)
        waits = [*copy.points, *own.points]
        own.queue = self._apart(target, self._shifted(target, queue))
        point = self._note(target, own.queue, waits, target.copy(copy.buffer, own.buffer, waits, own.queue))
        self._pend(point, [copy.buffer, own.buffer])
        self._used(own, point)
        self._used(copy, point)
        own.points = [point]
        return own

    def _host_bytes(self, value: _Value) -> tuple[Array, list[Point], _Copy | None]:
        """The value where the host can read it: its array, the device's memory in place, or a new array. The copy is
        the one whose memory it is, if it is one's."""
        if value.array is not None:
            return value.array, value.points, None
        number, copy = next(iter(value.copies.items()))
        device = self.devices[number].device
        view = device.view(copy.buffer) if not value.outlives else None
        if view is not None:
            return view[: value.shape.bytes], copy.points, copy
        array = self.instance.staging.allocate(value.shape.bytes).array(np.dtype(np.uint8), (value.shape.bytes,))
        # On the queue that made it: on another it would wait for what has nothing to do with it. But in a turn of a
        # loop on the other, while the next turn computes.
        turn = self.instance.lifetimes.turns[self.place]
        queue = copy.queue if turn is None else self._apart(device, copy.queue)
        read = device.read(copy.buffer, array, 0, copy.points, queue)
        point = self._note(device, queue, copy.points, read)
        self._pend(point, [copy.buffer])
        self._used(copy, point)
        value.array, value.points = array, [point]
        return array, [point], None

    def _return(self) -> None:
        """Every result in the caller's array, once all else has ended well: destinations may be inputs too."""
        late: list[tuple[_Value, Tensor]] = []
        for number, place in zip(self.instance.plan.results, self.results, strict=True):
            value = self.values[number]
            there = [copy.buffer for copy in value.copies.values()]
            if value.array is not place and not (isinstance(place, DeviceArray) and place.buffer in there):
                late.append((value, place))
        if not late:
            return
        self._settle_now()
        for value, place in late:
            if isinstance(place, DeviceArray):
                self._return_to_device(value, place)
            else:
                self._return_to_host(value, place)

    def _return_to_device(self, value: _Value, place: DeviceArray) -> None:
        home = self._number_of(place)
        copy = value.copies.get(home) if home is not None else None
        if copy is not None:
            point = place.device.copy(copy.buffer, place.buffer, copy.points)
            self._pend(self._note(place.device, 0, copy.points, point), [copy.buffer, place.buffer])
            return
        source, points, _ = self._host_bytes(value)
        point = place.device.write(place.buffer, source, 0, points)
        self._pend(self._note(place.device, 0, points, point), [place.buffer])
        self.kept.append(source)

    def _return_to_host(self, value: _Value, place: Array) -> None:
        flat = place.reshape(-1).view(np.uint8)
        if value.array is not None:
            flat[...] = value.array.reshape(-1).view(np.uint8)
            return
        number, copy = next(iter(value.copies.items()))
        device = self.devices[number].device
        point = device.read(copy.buffer, flat, 0, copy.points, copy.queue)
        self._pend(self._note(device, copy.queue, copy.points, point), [copy.buffer])

    # -- memory ----------------------------------------------------------------------------------

    def _own(self, device: Device, size: int) -> _Copy:
        """Memory for what the step that is being submitted writes; its points are waited for before that."""
        found = self.retired.take(device, size, self.place)
        if found is not None:
            return _Copy(*found, use=Use())
        if self.noted is not None:
            self.noted.allocated(device.info.uri, size)
        return _Copy(device.allocate(size), [], use=Use())

    def _used(self, copy: _Copy, point: Point) -> None:
        """Notes that work which the step that is being submitted asks for uses a copy until `point`."""
        turn = self.instance.lifetimes.turns[self.place]
        while True:
            if copy.use is not None:
                copy.use.add(self.place, turn, point)
            if copy.source is None:
                return
            copy = copy.source

    def _retire(self, step: Step) -> None:
        """Gives back the memory of what nobody needs any more, now that `step` was submitted."""
        plan = self.instance.lifetimes
        for number in (*step.operands, *step.results):
            value, name = self.values[number], plan.names[number]
            for home, copy in tuple(value.copies.items()):
                device = self.devices[home].device
                if copy.use is not None and plan.is_over(name, id(device), self.place, value.array is not None):
                    del value.copies[home]
                    if not any(other is copy for other in value.copies.values()):
                        self._give_back(device, copy)

    def _give_back(self, device: Device, copy: _Copy) -> None:
        if copy.use is not None:
            self.retired.add(device, copy.buffer, copy.use)
            copy.use = None

    def _shifted(self, device: Device, queue: int) -> int:
        """The queue for this call of what another one under way has on `queue`."""
        return (queue + self.slot) % device.queues

    def _apart(self, device: Device, queue: int) -> int:
        """A queue where nothing computes; among several calls, each of which has queues of its own, `queue`."""
        return queue if self.instance.slots.several else self.instance.spare.get(id(device), queue)

    def _note(self, device: Device, queue: int, waits: Sequence[Point], point: Point, events: int = 1) -> Point:
        return point if self.noted is None else self.noted.submitted(device.info.uri, queue, events, waits, point)

    def _pend(self, point: Point, buffers: Sequence[Buffer]) -> None:
        self.pending.append(point)
        self.held += buffers

    def _settle_now(self) -> None:
        for point in self.pending:
            point.wait()


def _copies_from(target: Device, source: Device) -> bool:
    """Whether a device copies from memory of another by itself."""
    copies_from = getattr(target, "copies_from", None)
    return copies_from is not None and copies_from(source)


def _leaving(plan: Plan, devices: Sequence[Device]) -> set[int]:
    """The values that steps make and others read on another device, which cannot get them from there by itself."""
    makers: dict[int, int] = {}  # of each value, the step, for those that were transferred too
    homes: dict[int, Device] = {}
    leaving: set[int] = set()
    for step in plan.steps:
        there = devices[step.device]
        for value in step.operands:
            if value in makers and homes[value] is not there and not _copies_from(there, homes[value]):
                leaving.add(makers[value])
        for value in step.results:
            if step.op == "run":
                makers[value], homes[value] = value, there
            elif step.operands[0] in makers:
                makers[value], homes[value] = makers[step.operands[0]], homes[step.operands[0]]
    return leaving
