"""Submits the steps of a frame without waiting for their operands."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from motet.runtime.checks import Statuses
from motet.runtime.device import Buffer, Device
from motet.runtime.plans.frame import PlanFrame
from motet.runtime.plans.recorded import LoopStep, ReceiveStep, RunStep, SendStep, TransferStep
from motet.runtime.plans.values import PlacedCopy, PlacedValue
from motet.runtime.timeline import Point

Timed = list[tuple[str, float]]
RunLoop = Callable[[PlanFrame, LoopStep], None]


def submit_steps(frame: PlanFrame, run_loop: RunLoop, timed: Timed | None = None) -> None:
    """Submit all steps of a frame's plan; `timed` gets the seconds of each, run in sequence."""
    for place, entry in enumerate(frame.recorded.steps):
        frame.place = place
        begin = time.perf_counter()
        if isinstance(entry, RunStep):
            _submit(frame, entry)
        elif isinstance(entry, TransferStep):
            value = frame.values[entry.step.results[0]] = frame.values[entry.step.operands[0]]
            frame.on(value, entry.step.device, entry.queue)
        elif isinstance(entry, SendStep):
            _send(frame, entry)
        elif isinstance(entry, ReceiveStep):
            _receive(frame, entry)
        else:
            run_loop(frame, entry)
        frame.retire(entry.step)
        if timed is not None:
            frame.underway.settle_now()
            timed.append((entry.step.region or entry.step.op, time.perf_counter() - begin))


def _submit(frame: PlanFrame, run: RunStep) -> None:
    step, concrete, underway = run.step, run.concrete, frame.underway
    loaded = frame.devices[step.device]
    device = loaded.device
    waits: list[Point] = []
    buffers: list[Buffer] = []
    spare: list[PlacedCopy] = []  # used by this step only
    used, made = _operands(frame, run, spare)
    queue = run.queue if step.queues else underway.shifted(device, run.queue)
    arena = frame.own(device, concrete.arena)
    spare.append(arena)
    used.append(arena)
    for copy in used:
        buffers.append(copy.buffer)
        waits += copy.points
    buffers += [loaded.parameter(index) for index in concrete.parameters]
    status = None
    if concrete.statuses is not None:
        status = frame.own(device, concrete.statuses.bytes)
        _clear(frame, concrete.statuses, status, device, queue)
        spare.append(status)
        used.append(status)
        buffers.append(status.buffer)
        waits += status.points
    # A device that works in the caller's thread uses its queue's thread if it has to wait.
    gate = underway.gates.next() if run.beside else None
    try:
        point = device.submit(run.commands, buffers, waits if gate is None else [*waits, gate], queue)
    finally:
        if gate is not None:
            underway.gates.signal(gate.value)
    point = underway.note(device, queue, waits, point, len(concrete.work))
    underway.pend(point, buffers)
    for copy in used:
        frame.used(copy, point)
    if concrete.statuses is not None and status is not None:
        _look(frame, concrete.statuses, status, device, queue, point)
    for copy in spare:
        frame.give_back(device, copy)
    for value in made:
        value.copies[step.device].points = [point]
        value.copies[step.device].queue = queue
        value.points = [point] if value.array is not None else []
    for index in run.leaving:  # now: after the step on its queue, before later submissions
        frame.host_bytes(made[index])


def _send(frame: PlanFrame, entry: SendStep) -> None:
    """Send a value to another rank, from the memory of its device if the host reads that in place."""
    peers, step = frame.recorded.code.peers, entry.step
    assert peers is not None
    value = frame.values[step.operands[0]]
    array, points, origin = frame.host_bytes(value)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    point = peers.send(step.peer, step.tag, data, points)
    frame.underway.pend(point, [])
    frame.underway.pending.held.append(data)
    if origin is not None:
        frame.used(origin, point)


def _receive(frame: PlanFrame, entry: ReceiveStep) -> None:
    """Receive a value from another rank in host memory: the caller's if it is a result."""
    peers, step, underway = frame.recorded.code.peers, entry.step, frame.underway
    assert peers is not None
    number = step.results[0]
    shape, own = frame.recorded.shapes[number], frame.direct.get(number)
    if not isinstance(own, np.ndarray):
        own = underway.staging.allocate(shape.bytes).array(np.dtype(np.uint8), (shape.bytes,))
    point = peers.receive(step.peer, step.tag, own.reshape(-1).view(np.uint8))
    underway.pend(point, [])
    underway.pending.held.append(own)
    frame.values[number] = PlacedValue(shape, array=own, points=[point])


def _operands(frame: PlanFrame, run: RunStep, spare: list[PlacedCopy]) -> tuple[list[PlacedCopy], list[PlacedValue]]:
    """The copies of a step's operands and results, in the order of its externals, and the results as values."""
    step, device = run.step, frame.devices[run.step.device].device
    used: list[PlacedCopy] = []
    made: list[PlacedValue] = []
    for index, number in enumerate(step.operands):
        if index in run.read:
            copy = frame.on(frame.values[number], step.device, run.queue)
        else:  # only its shape is read
            copy = frame.own(device, frame.values[number].shape.bytes)
            spare.append(copy)
        used.append(copy)
    for index, (number, shape) in enumerate(zip(step.results, run.concrete.results, strict=True)):
        place = run.destinations.get(index)
        if place is None:
            value = frame.new(number, shape, step.device)
        else:
            value = frame.own_copy(frame.values[step.operands[place]], step.device)
            used[place] = value.copies[step.device]
        value.outlives = number in frame.lifetimes.outliving
        frame.values[number] = value
        used.append(value.copies[step.device])
        made.append(value)
    return used, made


def _clear(frame: PlanFrame, statuses: Statuses, status: PlacedCopy, device: Device, queue: int) -> None:
    """Zero the statuses before the work that may set them."""
    zeros = np.zeros(statuses.bytes, np.uint8)
    point = device.write(status.buffer, zeros, 0, status.points, queue)
    frame.underway.pend(frame.underway.note(device, queue, status.points, point), [status.buffer])
    frame.used(status, point)
    status.points = [point]


def _look(frame: PlanFrame, statuses: Statuses, status: PlacedCopy, device: Device, queue: int, after: Point) -> None:
    """Read the statuses after the work has ended."""
    found = np.empty(statuses.bytes, np.uint8)
    point = device.read(status.buffer, found, 0, [after], queue)
    frame.underway.pend(frame.underway.note(device, queue, [after], point), [status.buffer])
    frame.used(status, point)
    frame.underway.pending.statuses.append((statuses, found))
