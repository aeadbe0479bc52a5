"""Area `timelines`: points, the order that they define, and the propagation of failures."""

from __future__ import annotations

import threading
import time

import numpy as np

from motet.errors import DeviceError, KernelFault
from motet.runtime.conformance.check import Array, Failure, Skip, expect, expect_equal
from motet.runtime.conformance.trial import (
    PATIENCE,
    DeviceTrial,
    Hazards,
    expect_pending,
    finish,
    finish_poisoned,
    in_threads,
)
from motet.runtime.timeline import Point


def point_of_work(trial: DeviceTrial) -> None:
    """The point of successful work is reached, stays reached, and has no error."""
    buffer = trial.device.allocate(1000)
    points = [trial.device.fill(buffer, 1), trial.device.read(buffer, np.empty(10, np.uint8))]
    for point in points:
        finish(point, "work")
        for timeout in (None, 0.0, 1.0):
            expect(point.wait(timeout) is True, f"wait({timeout}) on a point that is reached did not give True")
        expect(point.error is None, f"the point of work that ended well has an error: {point.error!r}")


def wait_times_out(trial: DeviceTrial) -> None:
    """`wait` returns False after its timeout, which takes about that long, and True once the point is reached."""
    gate = trial.gate()
    point = trial.device.fill(trial.device.allocate(10), 1, [gate.point])
    begin = time.monotonic()
    expect(point.wait(0.1) is False, "wait(0.1) on work that waits did not give False")
    seconds = time.monotonic() - begin
    expect(0.09 <= seconds < 2, f"wait(0.1) took {seconds:.3f} s")
    expect(point.wait(0) is False, "wait(0) on work that waits did not give False")
    expect(not point.reached, "reached is True of work that waits")
    gate.open()
    finish(point, "the work, once what it waited for was reached")


def submitting_does_not_wait(trial: DeviceTrial) -> None:
    """Submitting returns immediately even if a point is not reached yet, on every queue."""
    device, data = trial.device, np.ones(64, np.uint8)
    for queue in trial.queues:
        gate, begin = trial.gate(), time.monotonic()
        buffer = device.allocate(64)
        points = [device.write(buffer, data, 0, [gate.point], queue)]
        points.append(device.copy(buffer, device.allocate(64), points[-1:], queue))
        points.append(device.read(buffer, np.empty(64, np.uint8), 0, points[-1:], queue))
        points.append(device.fill(buffer, 0, points[-1:], queue))
        expect(time.monotonic() - begin < 2, "submitting work that waits took more than 2 s")
        for point in points:
            expect(not point.reached, "work that waits for a point that is not reached has ended")
        gate.open()
        for point in points:
            finish(point, f"work on queue {queue}")


def order_of_a_queue(trial: DeviceTrial) -> None:
    """Work of one queue starts in the order of submission."""
    device = trial.device
    for queue in trial.queues:
        gate, target = trial.gate(), np.zeros(64, np.uint8)
        buffer = trial.upload(np.zeros(64, np.uint8))
        first = device.fill(buffer, 1, [gate.point], queue)
        second = device.fill(buffer, 2, [first], queue)
        third = device.fill(buffer, 3, [second], queue)
        last = device.read(buffer, target, 0, [third], queue)
        unrelated = device.fill(device.allocate(8), 1, (), queue)
        expect_pending(unrelated, "work without a wait, behind work that waits, on the same queue")
        gate.open()
        finish(last, "read")
        finish(unrelated, "fill")
        expect_equal(target, np.full(64, 3, np.uint8), f"queue {queue}: what was read last")


def queues_are_apart(trial: DeviceTrial) -> None:
    """Work of another queue continues while one queue waits."""
    if trial.device.queues < 2:
        raise Skip("it has one queue")
    gate = trial.gate()
    buffer = trial.device.allocate(64)
    held = trial.device.fill(buffer, 1, [gate.point], 0)
    for queue in trial.queues[1:]:
        finish(trial.device.fill(trial.device.allocate(64), 2, (), queue), f"work on queue {queue}")
    expect(not held.reached, "work that waits on queue 0 has ended")
    gate.open()
    finish(held, "work on queue 0")


def order_across_queues(trial: DeviceTrial) -> None:
    """Work that waits for a point of another queue sees the effects of that queue's work: back and forth, 40 times."""
    device, size = trial.device, 5000
    buffers = [trial.upload(np.zeros(size, np.uint8)) for _ in range(2)]
    target = np.zeros(size, np.uint8)
    point: Point | None = None
    for round_number in range(40):
        queue = round_number % device.queues
        source, other = buffers[round_number % 2], buffers[1 - round_number % 2]
        filled = device.fill(source, round_number, [point] if point else (), queue)
        point = device.copy(source, other, [filled], (queue + 1) % device.queues)
    assert point is not None
    finish(device.read(buffers[0], target, 0, [point], device.queues - 1), "read")
    expect_equal(target, np.full(size, 39, np.uint8), "the buffer in the end")


def random_submissions(trial: DeviceTrial) -> None:
    """Random writes, copies, fills and reads on all queues, each waiting only for the points that it conflicts with,
    give the same result as sequential execution."""
    device, count, size = trial.device, 6, 3000
    mirror = [trial.bytes_of(size) for _ in range(count)]
    buffers = [trial.upload(data) for data in mirror]
    order, points, read = Hazards(), list[Point](), list[tuple[Array, Array]]()
    for step in range(300):
        source, target = (int(place) for place in trial.random.choice(count, 2, replace=False))
        kind, queue = int(trial.random.integers(0, 4)), int(trial.random.integers(0, device.queues))
        reads, writes = [source] if kind > 1 else [], [target] if kind < 3 else []
        waits = [points[earlier] for earlier in order.add(step, reads, writes)]
        if kind == 0:
            mirror[target] = trial.bytes_of(size)
            points.append(device.write(buffers[target], mirror[target], 0, waits, queue))
        elif kind == 1:
            mirror[target] = np.full(size, step % 256, np.uint8)
            points.append(device.fill(buffers[target], step % 256, waits, queue))
        elif kind == 2:
            mirror[target] = mirror[source]
            points.append(device.copy(buffers[source], buffers[target], waits, queue))
        else:
            array = np.empty(size, np.uint8)
            points.append(device.read(buffers[source], array, 0, waits, queue))
            read.append((array, mirror[source]))
    for point in points:
        finish(point, "a submission")
    for number, (array, expected) in enumerate(read):
        expect_equal(array, expected, f"read {number} of {len(read)}")
    for buffer, expected in zip(buffers, mirror, strict=True):
        expect_equal(trial.download(buffer, expected), expected, "a buffer in the end")


def waits_of_many_points(trial: DeviceTrial) -> None:
    """Work may wait for many points, reached or not, of several timelines, also for the same point twice."""
    gates = [trial.gate() for _ in range(64)]
    done = [trial.device.fill(trial.device.allocate(8), 1) for _ in range(8)]
    for point in done:
        finish(point, "fill")
    waits = [*(gate.point for gate in gates), *done, gates[0].point]
    point = trial.device.fill(trial.device.allocate(8), 2, waits)
    for gate in gates[:-1]:
        gate.open()
    expect_pending(point, "work with one of its points still to come")
    gates[-1].open()
    finish(point, "work that waited for 73 points")


def deep_queues(trial: DeviceTrial) -> None:
    """Submitting does not block on queue length: hundreds of submissions may follow one that waits."""
    device, gate, count = trial.device, trial.gate(), 600
    buffer, target = device.allocate(64), np.zeros(64, np.uint8)
    begin = time.monotonic()
    points = [device.fill(buffer, 0, [gate.point])]
    for number in range(1, count):
        points.append(device.fill(buffer, number % 256, [points[-1]], number % device.queues))
    last = device.read(buffer, target, 0, [points[-1]], 0)
    expect(time.monotonic() - begin < 5, f"submitting {count} pieces of work that wait took more than 5 s")
    expect(not any(point.reached for point in points), "work behind work that waits has ended")
    gate.open()
    finish(last, f"the last of {count}")
    expect_equal(target, np.full(64, (count - 1) % 256, np.uint8), "the buffer in the end")


def points_of_other_devices(trial: DeviceTrial) -> None:
    """Devices wait for each other's points: data moves back and forth through the host."""
    device, other = trial.device, trial.neighbour()
    data = trial.bytes_of(10_001)
    mine, theirs = device.allocate(data.size), other.allocate(data.size)
    passed, result = np.zeros_like(data), np.zeros_like(data)
    gate = trial.gate()
    point = device.write(mine, data, 0, [gate.point])
    point = device.read(mine, passed, 0, [point])
    point = other.write(theirs, passed, 0, [point])
    point = other.fill(other.allocate(8), 1, [point])
    point = device.write(mine, np.zeros_like(data), 0, [point])
    last = other.read(theirs, result, 0, [point])
    expect_pending(last, "the last of a chain over two devices")
    gate.open()
    finish(last, "a chain over two devices")
    expect_equal(result, data, "what came back")


def failure_reaches_dependants(trial: DeviceTrial) -> None:
    """A poisoned point poisons all work that waits for it, directly or indirectly, with the same error; none of it
    runs."""
    device, gate = trial.device, trial.gate()
    data = trial.bytes_of(64)
    buffer, target = trial.upload(data), np.zeros(64, np.uint8)
    first = device.fill(buffer, 1, [gate.point])
    second = device.fill(buffer, 2, [first], device.queues - 1)
    third = device.read(buffer, target, 0, [second])
    gate.fail(KernelFault("elsewhere", "broken", "division by zero"))
    for point, what in ((first, "its dependant"), (second, "its dependant's"), (third, "the third")):
        error = finish_poisoned(point, f"{what} point", KernelFault)
        expect("division by zero" in str(error), f"{what} error is {error}; expected that of the point")
    expect_equal(trial.download(buffer, data), data, "the buffer that nothing may have written")
    expect(not target.any(), "the array that nothing may have been read into was written")


def failure_reaches_no_others(trial: DeviceTrial) -> None:
    """Work that does not wait for a poisoned point runs, before and after it in the same queue."""
    device, gate, queue = trial.device, trial.gate(), trial.device.queues - 1
    buffer = device.allocate(64)
    before = device.fill(buffer, 1, (), queue)
    failing = device.fill(buffer, 2, [gate.point], queue)
    behind = device.fill(device.allocate(8), 3, (), queue)
    gate.fail(DeviceError("device elsewhere: broken"))
    finish(before, "work before it")
    finish_poisoned(failing, "the work that waits for it")
    finish(behind, "work behind it")
    expect(behind.error is None, "work behind it has an error")
    trial.check_works(device, "what was read after that")


def failure_of_the_past(trial: DeviceTrial) -> None:
    """Work that waits for a point that is already poisoned may be submitted; its own point is poisoned then."""
    gate = trial.gate()
    gate.fail(DeviceError("device elsewhere: broken before"))
    data = trial.bytes_of(64)
    buffer = trial.upload(data)
    for queue in trial.queues:
        try:
            point = trial.device.fill(buffer, 1, [gate.point], queue)
        except DeviceError as error:
            raise Failure(f"fill raised {error}; expected a poisoned point") from error
        for _ in range(2):  # it stays poisoned
            error = finish_poisoned(point, "its point")
            expect("broken before" in str(error), f"its error is {error}")
    expect_equal(trial.download(buffer, data), data, "the buffer after that")


def many_wait(trial: DeviceTrial) -> None:
    """Any number of threads may wait for one point; all continue when it is reached, or raise its error."""
    for failing in (False, True):
        gate = trial.gate()
        point = trial.device.fill(trial.device.allocate(8), 1, [gate.point])
        opener = threading.Timer(0.05, gate.open if not failing else lambda gate=gate: gate.fail(DeviceError("no")))
        opener.start()

        def wait(number: int, point: Point = point, failing: bool = failing) -> None:
            if failing:
                finish_poisoned(point, f"thread {number}")
            else:
                expect(point.wait(PATIENCE) is True, f"thread {number}: wait did not give True")

        in_threads(8, wait)
        opener.join()


CHECKS = (
    point_of_work, wait_times_out, submitting_does_not_wait, order_of_a_queue, queues_are_apart, order_across_queues,
    random_submissions, waits_of_many_points, deep_queues, points_of_other_devices,
    failure_reaches_dependants, failure_reaches_no_others, failure_of_the_past, many_wait,
)
