"""Area `timelines`, case by case: every operation waits, is seen by what waits for it, and fails with it."""

from __future__ import annotations

import itertools
import threading

import numpy as np

from motet.errors import DeviceError, DeviceLost, KernelFault, MotetError, OutOfMemoryError
from motet.runtime.conformance.check import expect, expect_equal
from motet.runtime.conformance.listing import each
from motet.runtime.conformance.operations import (
    CHANGING,
    KINDS,
    READING,
    SIZE,
    changing,
    moved,
    moving,
    operation,
)
from motet.runtime.conformance.trial import PATIENCE, DeviceTrial, expect_pending, finish, finish_poisoned
from motet.runtime.timeline import Point

_LAPS = 4
_ERRORS: dict[str, MotetError] = {
    "DeviceError": DeviceError("device elsewhere: broken"),
    "KernelFault": KernelFault("elsewhere", "broken", "division by zero", core=3, usable=True),
    "DeviceLost": DeviceLost("elsewhere", "unplugged"),
    "OutOfMemoryError": OutOfMemoryError(12_345, "elsewhere"),
}


def wait_of(trial: DeviceTrial, kind: str) -> None:
    """A {} that waits for a point does not run before it is reached, on any queue, and runs then."""
    started: list[Point] = []
    gate, works = trial.gate(), [operation(trial, kind) for _ in trial.queues]
    for queue, work in enumerate(works):
        started.append(work.start([gate.point], queue))
    expect_pending(started[-1], f"{kind} that waits")
    expect(not any(point.reached for point in started), f"{kind} that waits has ended on another queue")
    gate.open()
    for point, work in zip(started, works, strict=True):
        finish(point, kind)
        work.expect_done("once its wait was reached")


def queue_order_of(trial: DeviceTrial, kind: str) -> None:
    """A {} behind work that waits, on the same queue, does not start before that work does."""
    queue = trial.device.queues - 1
    gate, work = trial.gate(), operation(trial, kind)
    held = trial.device.fill(trial.device.allocate(8), 1, [gate.point], queue)
    point = work.start((), queue)
    expect_pending(point, f"{kind} behind work that waits")
    gate.open()
    finish(held, "the work that waited")
    finish(point, kind)
    work.expect_done("after the work before it")


def failed_wait_of(trial: DeviceTrial, kind: str) -> None:
    """A {} that waits for a point that fails does not run; its own point has the same error."""
    gate, work = trial.gate(), operation(trial, kind)
    point = work.start([gate.point], trial.device.queues - 1)
    gate.fail(KernelFault("elsewhere", "broken", "division by zero"))
    error = finish_poisoned(point, f"{kind} that waits for work that failed", KernelFault)
    expect("division by zero" in str(error), f"its error is {error}")
    work.expect_untouched("though what it waited for failed")
    finish(work.start((), trial.device.queues - 1), f"the same {kind} without that wait")
    work.expect_done("after that")


def failed_before(trial: DeviceTrial, kind: str) -> None:
    """A {} may be submitted after what it waits for has failed: its point has the error, and it does not run."""
    gate, work = trial.gate(), operation(trial, kind)
    gate.fail(DeviceError("device elsewhere: broken before"))
    for queue in trial.queues:
        error = finish_poisoned(work.start([gate.point], queue), f"{kind} on queue {queue}")
        expect("broken before" in str(error), f"queue {queue}: its error is {error}")
    work.expect_untouched("though what it waited for had failed")


def seen_by(trial: DeviceTrial, pair: str) -> None:
    """Order by points alone, on different queues and without the host: {}. The second sees what the first wrote, and
    what overwrites its source later waits for it."""
    first, second = pair.split("-then-")
    device, last = trial.device, trial.device.queues - 1
    between, target = trial.upload(trial.bytes_of(SIZE)), trial.upload(trial.bytes_of(SIZE))
    result = np.zeros(SIZE, np.uint8)
    read = second == "read"
    passes_on = None if read else moving(trial, second, between, target)
    for lap in range(_LAPS):
        start, written = changing(trial, first, between, trial.bytes_of(SIZE))
        gate = trial.gate()
        point = start([gate.point], lap % device.queues)
        point = device.read(between, result, 0, [point], last) if passes_on is None else passes_on([point], last)
        overwritten = device.fill(between, lap, [point], 0)
        gate.open()
        finish(point, "the second of three")  # which a host's array needs, also where the last has ended
        finish(overwritten, "the last of three")
        if not read:
            result = trial.download(target, result)
        expect_equal(result, written if read else moved(second, written), f"lap {lap}: what the second one gave")


def gates_open(trial: DeviceTrial, order: str) -> None:
    """Work that waits for three points runs once all are reached, in the order {} too, and not before."""
    gates, work = [trial.gate() for _ in range(3)], operation(trial, "write")
    point = work.start([gate.point for gate in gates], 0)
    *early, last = (int(digit) for digit in order)
    for number in early:
        gates[number].open()
    expect(not point.reached and point.wait(0.002) is False, "it ran before the last of its points was reached")
    gates[last].open()
    finish(point, "the work")
    work.expect_done("once all points were reached")


def waited_before_submitted(trial: DeviceTrial) -> None:
    """Work may wait for a point whose work is submitted only later, by another thread and to another queue."""
    device, gate = trial.device, trial.gate()
    work, other = operation(trial, "write"), operation(trial, "fill")
    waiting = work.start([gate.point], 0)

    def submit() -> None:
        other.start((), device.queues - 1).wait(PATIENCE)
        gate.open()

    if device.queues == 1:  # its only queue is held by the work that waits
        threading.Timer(0.01, gate.open).start()
    else:
        threading.Thread(target=submit, daemon=True).start()
    finish(waiting, "the work that was submitted first")
    work.expect_done("after that")


def error_class(trial: DeviceTrial, name: str) -> None:
    """A point that fails with a {} fails what waits for it with that class, text and fields; each wait raises a new
    object."""
    gate, expected = trial.gate(), _ERRORS[name]
    first = trial.device.fill(trial.device.allocate(8), 1, [gate.point], 0)
    point = trial.device.fill(trial.device.allocate(8), 1, [first], trial.device.queues - 1)
    gate.fail(expected)
    error = finish_poisoned(point, "what waits for it indirectly", type(expected))
    expect(type(error) is type(expected) and str(error) == str(expected), f"its error is {error!r}; not {expected!r}")
    fields = {key: value for key, value in vars(expected).items() if key != "__notes__"}
    found = {key: getattr(error, key, None) for key in fields}
    expect(found == fields, f"the error's fields are {found}; expected {fields}")
    raised: list[BaseException] = []
    for _ in range(2):
        try:
            point.wait(PATIENCE)
        except type(expected) as caught:
            raised.append(caught)
    expect(len(raised) == 2 and raised[0] is not raised[1], "two waits did not raise two objects")


def fails_with_one_of(trial: DeviceTrial) -> None:
    """Work that waits for two points that fail, and one that does not, fails with the error of one of them."""
    gates, work = [trial.gate() for _ in range(3)], operation(trial, "fill")
    point = work.start([gate.point for gate in gates], 0)
    gates[1].fail(DeviceError("device elsewhere: the second"))
    gates[2].open()
    gates[0].fail(DeviceError("device elsewhere: the first"))
    error = finish_poisoned(point, "work that waits for three points")
    expect("the first" in str(error) or "the second" in str(error), f"its error is {error}")
    work.expect_untouched("though two of its waits failed")


def fan_out(trial: DeviceTrial, width: int) -> None:
    """{} submissions wait for one point, and one waits for them all."""
    device, gate, work = trial.device, trial.gate(), operation(trial, "write")
    counted = [trial.upload(np.zeros(8, np.uint8)) for _ in range(width)]
    points = [
        device.fill(buffer, number % 256, [gate.point], number % device.queues)
        for number, buffer in enumerate(counted)
    ]
    last = work.start(points, device.queues - 1)
    expect(not last.reached, "the last has ended before the first began")
    gate.open()
    finish(last, f"what waits for {width} points")
    expect(all(point.reached for point in points), "it ended before what it waited for")
    for number, buffer in enumerate(counted):
        expected = np.full(8, number % 256, np.uint8)
        expect_equal(trial.download(buffer, expected), expected, f"submission {number}")


def wait_for(trial: DeviceTrial, text: str) -> None:
    """`wait({})` of a point that is reached gives True at once, from every thread."""
    point = trial.device.fill(trial.device.allocate(8), 1)
    finish(point, "fill")
    found, seconds = list[object](), float(text)
    thread = threading.Thread(target=lambda: found.append(point.wait(seconds)), daemon=True)
    thread.start()
    thread.join(5)
    expect(found == [True] and point.wait(seconds) is True, f"it gave {found}; expected True in two threads")


CHECKS = (
    each(wait_of, KINDS), each(queue_order_of, KINDS), each(failed_wait_of, KINDS), each(failed_before, KINDS),
    each(seen_by, [f"{first}-then-{second}" for first in CHANGING for second in READING]),
    each(gates_open, ["".join(map(str, order)) for order in itertools.permutations(range(3))]),
    waited_before_submitted, each(error_class, _ERRORS), fails_with_one_of, each(fan_out, (2, 9, 65)),
    each(wait_for, ("0", "1e-9", "3600", "1e6")),
)
