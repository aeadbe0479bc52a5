"""Area `faults`: kernels that fault, and `abort`."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

from motet.errors import DeviceError, DeviceLost, KernelFault
from motet.runtime.conformance.check import Failure, Skip, expect, expect_equal, expect_error
from motet.runtime.conformance.held import child_processes
from motet.runtime.conformance.listing import each
from motet.runtime.conformance.operations import KINDS, operation
from motet.runtime.conformance.trial import PAUSE, DeviceTrial, finish, finish_poisoned

AT_MOST = 20.0  # seconds that an abort may take
_ROUNDS = 5


def fault_illegal_instruction(trial: DeviceTrial) -> None:
    """An illegal instruction is a KernelFault that names device and kernel; it poisons its point."""
    _fault(trial, "trap")


def fault_out_of_bounds(trial: DeviceTrial) -> None:
    """A store outside the device's memory is a KernelFault that names device and kernel."""
    _fault(trial, "wild")


def fault_then_usable(trial: DeviceTrial) -> None:
    """After a fault that leaves the device usable, memory is unchanged and every queue runs new work. After one that
    does not, every call raises a DeviceError."""
    executable, data = trial.load(), trial.bytes_of(1000)
    kept = trial.upload(data)
    error = _fault(trial, "trap")
    device = trial.device
    if not error.usable:
        for what, action in {
            "allocate": lambda: device.allocate(8), "fill": lambda: device.fill(kept, 1).wait(AT_MOST),
        }.items():
            try:
                action()
            except DeviceError:
                continue
            raise Failure(f"{what}: no error, though the fault reported that the device is no longer usable")
        return
    for queue in trial.queues:
        out = trial.upload(np.zeros(100, np.int32))
        finish(trial.launch(executable, "count", [out], 100, queue=queue), f"a launch on queue {queue} after that")
        expect_equal(trial.download(out, np.ones(100, np.int32)), np.ones(100, np.int32), f"queue {queue}: its result")
    expect_equal(trial.download(kept, data), data, "a buffer from before the fault")


def fault_reaches_dependants(trial: DeviceTrial) -> None:
    """A fault poisons work that waits for it with the same error, and no other work."""
    executable, gate = trial.load(), trial.gate()
    buffer, other = trial.upload(np.zeros(16, np.uint8)), trial.upload(np.zeros(16, np.uint8))
    faulty = trial.launch(executable, "trap", [buffer], waits=[gate.point])
    dependant = trial.device.fill(other, 1, [faulty], trial.device.queues - 1)
    gate.open()
    error = finish_poisoned(faulty, "the fault's own point", KernelFault)
    found = finish_poisoned(dependant, "a dependant's point", KernelFault)
    expect(str(found) == str(error), f"a dependant's error is {found}; expected {error}")
    if isinstance(error, KernelFault) and error.usable:
        data = np.zeros(16, np.uint8)
        expect_equal(trial.download(other, data), data, "the buffer that nothing may have written")


def abort_idle(trial: DeviceTrial) -> None:
    """Aborting an idle device has no effect."""
    trial.device.abort()
    trial.check_works(trial.device, "what was read after that")


def abort_queued(trial: DeviceTrial) -> None:
    """`abort` poisons queued work with a DeviceError, and none of it runs; the device stays usable."""
    device, gate = trial.device, trial.gate()
    data = trial.bytes_of(64)
    buffer = trial.upload(data)
    points = [device.fill(buffer, 1, [gate.point], queue) for queue in trial.queues for _ in range(3)]
    device.abort()
    for point in points:
        finish_poisoned(point, "work that was queued")
    gate.open()
    time.sleep(PAUSE)
    expect_equal(trial.download(buffer, data), data, "the buffer that aborted work may not have written")
    for queue in trial.queues:
        finish(device.fill(buffer, 2, (), queue), f"work on queue {queue} after that")


def abort_queued_kind(trial: DeviceTrial, kind: str) -> None:
    """A {} that is queued when the device is aborted fails with a DeviceError and does not run; later ones do."""
    gate, work = trial.gate(), operation(trial, kind)
    point = work.start([gate.point], trial.device.queues - 1)
    trial.device.abort()
    finish_poisoned(point, f"{kind} that was aborted")
    gate.open()
    work.expect_untouched("though it was aborted")
    finish(work.start((), trial.device.queues - 1), f"the same {kind} after that")
    work.expect_done("after that")


def abort_reaches_dependants(trial: DeviceTrial) -> None:
    """What waits for aborted work fails with it, also if it is submitted after the abort; what had ended stays so."""
    device, gate = trial.device, trial.gate()
    done = device.fill(device.allocate(8), 1)
    finish(done, "work before the abort")
    aborted = device.fill(device.allocate(8), 1, [gate.point])
    device.abort()
    work = operation(trial, "fill")
    finish_poisoned(work.start([aborted], device.queues - 1), "what waits for aborted work")
    work.expect_untouched("though what it waits for was aborted")
    expect(done.reached and done.error is None, "work that had ended before the abort is no longer said to have")


def abort_again(trial: DeviceTrial) -> None:
    """A device may be aborted any number of times, with work between and without."""
    for lap in range(4):
        gate = trial.gate()
        points = [trial.device.fill(trial.device.allocate(8), lap, [gate.point], queue) for queue in trial.queues]
        trial.device.abort()
        trial.device.abort()
        for point in points:
            finish_poisoned(point, f"work of time {lap + 1}")
        trial.check_works(trial.device, f"time {lap + 1}: what was read after that")


def abort_then_close(trial: DeviceTrial) -> None:
    """After an abort, `close` does not block, even if the aborted work waits for a point that is never reached."""
    device, gate = trial.device, trial.gate()
    points = [device.fill(device.allocate(8), 1, [gate.point], queue) for queue in trial.queues]
    device.abort()
    device.close()
    for point in points:
        finish_poisoned(point, "work that was aborted")


def abort_endless(trial: DeviceTrial) -> None:
    """`abort` ends an endless kernel, running or just submitted, and the device stays usable or reports that it is
    lost."""
    executable, data = trial.load(), trial.bytes_of(100)
    kept, out = trial.upload(data), trial.upload(np.zeros(1, np.int32))
    point = trial.launch(executable, "endless", [out])
    time.sleep(PAUSE)
    expect(not point.reached, "an endless kernel has ended")
    begin = time.monotonic()
    trial.device.abort()
    error = finish_poisoned(point, "an endless kernel that was aborted")
    seconds = time.monotonic() - begin
    expect(seconds < AT_MOST, f"abort took {seconds:.1f} s")
    try:
        after = trial.launch(executable, "count", [trial.upload(np.zeros(1, np.int32))])
        expect_equal(trial.download(kept, data), data, "a buffer from before")
    except DeviceError as lost:
        expect(type(lost) is type(error) or "lost" in str(lost), f"the device is not usable after an abort: {lost}")
        return
    finish(after, "a launch after that")
    for _ in range(_ROUNDS):
        point = trial.launch(executable, "endless", [out])
        trial.device.abort()
        finish_poisoned(point, "an endless kernel that was aborted at once")
    finish(trial.launch(executable, "count", [trial.upload(np.zeros(1, np.int32))]), "a launch after those")


def process_killed(trial: DeviceTrial) -> None:
    """If kernels run in other processes and these are killed, running work is poisoned with a DeviceError. The device
    stays usable, or it is lost: the error, and that of every later call, is then a DeviceLost."""
    before = child_processes()
    executable, data = trial.load(), trial.bytes_of(100)
    kept, out = trial.upload(data), trial.upload(np.zeros(1, np.int32))
    finish(trial.launch(executable, "count", [out]), "launch")
    started = child_processes() - before
    if not started:
        raise Skip("its kernels do not run in separate processes")
    device, queue = trial.device, trial.device.queues - 1
    point = trial.launch(executable, "endless", [out])
    dependant = device.fill(kept, 1, [point], queue)
    time.sleep(PAUSE)
    for process in started:
        os.kill(process, signal.SIGKILL)
    error = finish_poisoned(point, "a kernel whose process was killed")
    finish_poisoned(dependant, "what waited for it", type(error))
    if not isinstance(error, DeviceLost):
        expect_equal(trial.download(kept, data), data, "a buffer from before")
        finish(trial.launch(executable, "count", [out]), "a launch after that, since the error is no DeviceLost")
        return
    for what, action in {
        "allocate": lambda: device.allocate(8), "write": lambda: device.write(kept, data).wait(AT_MOST),
        "load": lambda: trial.load(), "launch": lambda: trial.launch(executable, "count", [out]).wait(AT_MOST),
    }.items():
        expect_error(DeviceLost, action, f"{what} on a lost device")


def _fault(trial: DeviceTrial, kernel: str) -> KernelFault:
    executable = trial.load()
    buffer = trial.upload(np.zeros(16, np.uint8))
    error = finish_poisoned(trial.launch(executable, kernel, [buffer]), f"kernel {kernel}", KernelFault)
    assert isinstance(error, KernelFault)
    expect(trial.subject.info.family in error.device, f"the fault is of device {error.device!r}")
    expect(error.kernel == kernel, f"the fault is of kernel {error.kernel!r}; expected {kernel!r}")
    expect(bool(error.reason), "the fault has no reason")
    return error


CHECKS = (
    fault_illegal_instruction, fault_out_of_bounds, fault_then_usable, fault_reaches_dependants, abort_idle,
    abort_queued, abort_then_close, abort_endless, process_killed, each(abort_queued_kind, KINDS),
    abort_reaches_dependants, abort_again,
)
