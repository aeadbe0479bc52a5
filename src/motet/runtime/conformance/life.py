"""Area `life`: driver properties without an open device, opening, closing, and leaks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np

from motet.artifact.uri import family_of, split_uri
from motet.errors import DeviceError
from motet.runtime.conformance.check import Failure, Skip, expect, expect_equal, expect_error
from motet.runtime.conformance.held import Held
from motet.runtime.conformance.trial import PATIENCE, DeviceTrial, finish, whole
from motet.runtime.device import API_VERSION, CommandBuffer, Device, find_device, open_device, probe


def driver_version(trial: DeviceTrial) -> None:
    """A driver states in `api` the version of the contract that it implements, and it is the current one."""
    version = getattr(trial.subject.driver, "api", None)
    expect(version == API_VERSION, f"api is {version!r}; expected {API_VERSION}")


def probe_describes(trial: DeviceTrial) -> None:
    """`probe` returns devices of the driver's family with unique URIs; available ones are numbered from 0, others have
    a reason."""
    family = trial.subject.info.family
    infos = list(trial.subject.driver.probe())
    expect(bool(infos), "probe found nothing, not even an unavailable device that says why")
    for info in infos:
        expect(info.family == family, f"{info.uri}: its family is {info.family!r}; expected {family!r}")
        expect(family_of(info.uri) == family, f"{info.uri!r}: a URI of {family} devices begins with {family}")
        expect("?" not in info.uri, f"{info.uri!r}: options are the user's to add; expected none")
        expect(bool(info.name), f"{info.uri}: its name is empty")
        expect(info.available != bool(info.reason), f"{info.uri}: available is {info.available}, reason "
               f"{info.reason!r}; expected a reason where it is not available, and none where it is")
    uris = [info.uri for info in infos]
    expect(len(set(uris)) == len(uris), f"URIs are not distinct: {', '.join(uris)}")
    ordinals = [info.ordinal for info in infos if info.available]
    expect(sorted(ordinals) == list(range(len(ordinals))), f"ordinals of available devices are {ordinals}; "
           f"expected 0 to {len(ordinals) - 1}")


def probe_touches_nothing(trial: DeviceTrial) -> None:
    """`probe` opens no file, starts no thread or process, and returns the same devices again."""
    first = list(trial.subject.driver.probe())
    before = Held()
    again = list(trial.subject.driver.probe())
    expect(first == again, f"found {again}, before {first}")
    time.sleep(0.02)
    before.expect_same("after probe")


def find_by_uri(trial: DeviceTrial) -> None:
    """A device is found by its URI, by its family, and by its UUID if it has one; an unknown URI is an error that lists
    the present devices."""
    info = trial.subject.info
    base, _ = split_uri(info.uri)
    expect(find_device(base).uri == base, f"{base} is not found by its URI")
    expect(find_device(info.family).available, f"{info.family} finds an unavailable device")
    if info.uuid:
        expect(find_device(info.uuid).uuid == info.uuid, f"{info.uuid} is not found")
    missing = f"{info.family}:no-such-device"
    present = [item.uri for item in probe(info.family) if item.available]
    expect_error(DeviceError, lambda: find_device(missing), f"finding {missing}", present[:1])


def properties(trial: DeviceTrial) -> None:
    """An open device has the info that it was opened with, and at least one queue."""
    device, info = trial.device, trial.subject.info
    expect(device.info.uri == info.uri, f"info.uri is {device.info.uri!r}; it was opened as {info.uri!r}")
    expect(device.info.family == info.family, f"info.family is {device.info.family!r}; expected {info.family!r}")
    expect(type(device.queues) is int and device.queues >= 1, f"queues is {device.queues!r}; expected 1 or more")


def unknown_option(trial: DeviceTrial) -> None:
    """An unknown option is a DeviceError that names it."""
    mark = "&" if "?" in trial.subject.uri else "?"
    info = find_device(f"{trial.subject.uri}{mark}no-such-option=1")
    expect_error(DeviceError, lambda: open_device(info).close(), "opening with ?no-such-option=1", ["no-such-option"])


def close_waits(trial: DeviceTrial) -> None:
    """`close` waits for submitted work: its points are then reached, and reads have arrived."""
    device = trial.open()
    data = trial.bytes_of(100_003)
    target = np.zeros_like(data)
    buffer = device.allocate(data.nbytes)
    written = device.write(buffer, data)
    read = device.read(buffer, target, 0, [written], device.queues - 1)
    device.close()
    expect(written.reached and read.reached, "close came back before what was submitted had ended")
    finish(read, "read")
    expect_equal(target, data, "what was read")


def close_twice(trial: DeviceTrial) -> None:
    """Closing twice is allowed."""
    device = trial.open()
    device.close()
    device.close()


def closed_use(trial: DeviceTrial) -> None:
    """A closed device raises a DeviceError for every operation."""
    device = trial.open()
    data = np.zeros(16, np.uint8)
    buffer, other = device.allocate(16), device.allocate(16)
    device.close()
    actions = {
        "allocate": lambda: device.allocate(16),
        "write": lambda: device.write(buffer, data),
        "read": lambda: device.read(buffer, data),
        "copy": lambda: device.copy(buffer, other),
        "fill": lambda: device.fill(buffer, 0),
        "load": lambda: device.load([], []),
    }
    for name, action in actions.items():
        expect_error(DeviceError, action, f"{name} on a closed device")


def closed_submit(trial: DeviceTrial) -> None:
    """A closed device accepts no recorded work and records none."""
    executable = trial.load()
    buffer = trial.device.allocate(4)
    work = whole("count", [4])
    recorded = trial.device.record(executable, [work], 1, 0)
    trial.device.close()
    expect_error(DeviceError, lambda: trial.device.submit(recorded, [buffer]), "submit on a closed device")
    expect_error(DeviceError, lambda: trial.device.record(executable, [work], 1, 0), "record on a closed device")


def reopen(trial: DeviceTrial) -> None:
    """A device can be opened again after it was closed."""
    for number in range(3):
        device = trial.open()
        trial.check_works(device, f"opened for the {number + 1}. time: what was read")
        device.close()


def open_twice(trial: DeviceTrial) -> None:
    """A device opened twice works in both instances, and closing one does not affect the other; or the second open
    raises a DeviceError."""
    first = trial.open()
    try:
        second = trial.open()
    except DeviceError as error:
        raise Skip(f"it can be opened only once at a time: {error}") from None
    data = trial.bytes_of(1000)
    kept = trial.upload(data, first)
    trial.check_works(second, "the second: what was read")
    second.close()
    expect_equal(trial.download(kept, data, first), data, "the first, after the second was closed: what was read")


def numbered_instances(trial: DeviceTrial) -> None:
    """If `info.instances` is set, any number of devices can be opened on it, `…/1`, `…/7`, which are independent."""
    base, _ = split_uri(trial.subject.uri)
    present = [info for info in probe(trial.subject.info.family) if info.available and info.instances]
    info = next((info for info in present if base == info.uri or base.startswith(f"{info.uri}/")), None)
    if info is None:
        raise Skip("it does not allow several instances")
    opened = [open_device(find_device(f"{info.uri}/{number}")) for number in (1, 7)]
    for device, number in zip(opened, (1, 7), strict=True):
        expect(device.info.uri == f"{info.uri}/{number}", f"{info.uri}/{number} was opened as {device.info.uri}")
        trial.check_works(device, f"{device.info.uri}: what was read")
    opened[0].close()
    trial.check_works(opened[1], f"{opened[1].info.uri}, once the other was closed: what was read")
    opened[1].close()


def nothing_left(trial: DeviceTrial) -> None:
    """The threads, processes and files of a device are released when it is closed."""
    _use_and_close(trial)  # resources shared by all devices of a driver exist after the first use
    before = Held()
    for _ in range(2):
        _use_and_close(trial)
    before.expect_same("after opening and closing twice more")


def fork(trial: DeviceTrial) -> None:
    """The process may fork, and the child exit, while work is in flight; the parent's work continues."""
    if not hasattr(os, "fork"):
        raise Skip("this system has no fork")
    device, gate, data = trial.device, trial.gate(), trial.bytes_of(999)
    buffer, target = device.allocate(data.size), np.zeros_like(data)
    points = [device.write(buffer, data, 0, [gate.point])]
    points.append(device.read(buffer, target, 0, points, device.queues - 1))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    gate.open()
    for point in points:
        finish(point, "work that was in flight when the process forked")
    expect_equal(target, data, "what was read")
    trial.check_works(device, "what was read after that")


def fork_and_use(trial: DeviceTrial) -> None:
    """In the child of a fork, an open device works or raises a DeviceError; it does not hang, nor affect the parent's
    device, which is used at the same time."""
    if not hasattr(os, "fork"):
        raise Skip("this system has no fork")
    device, recorded = trial.device, None
    if not isinstance(trial.subject.code(device), str):
        recorded = device.record(trial.load(), [whole("count", [400])], 1, 0)
    expect(_use(device, recorded, 1) == 0, "the device does not work before the fork")
    child = os.fork()
    if child == 0:
        os._exit(_use(device, recorded, 2))
    try:
        found = _use(device, recorded, 3)
        expect(found == 0, f"the parent, while the child used the device: {_FOUND.get(found, 'an error')}")
    finally:
        status = _wait_for(child)
    expect(status in (0, _REFUSED), f"the child: {_FOUND.get(status, f'ended with status {status}')}")
    expect(_use(device, recorded, 4) == 0, "the device does not work after the child has ended")


_REFUSED = 3
_FOUND = {
    1: "what was read is not what was written and computed", 2: "an error that is no DeviceError", 3: "a DeviceError",
    -signal.SIGKILL: f"it hung for {PATIENCE:g} s",
}


def _use(device: Device, recorded: CommandBuffer | None, seed: int) -> int:
    """Use a device for a while; returns 0 on success, else a key of `_FOUND`."""
    data = np.random.default_rng(seed).integers(0, 1 << 20, 100, np.int32)
    wanted = data + np.int32(recorded is not None)
    try:
        for _ in range(60):
            buffer, target = device.allocate(400), np.zeros_like(data)
            point = device.write(buffer, data)
            if recorded is not None:
                point = device.submit(recorded, [buffer], [point])
            if not device.read(buffer, target, 0, [point]).wait(PATIENCE) or (target[:1] != wanted[:1]).any():
                return 1
            if (target[1:] != data[1:]).any():
                return 1
        return 0
    except DeviceError:
        return _REFUSED
    except Exception:
        return 2


def _wait_for(child: int) -> int:
    """The exit status of a process, which is killed if it does not end."""
    end = time.monotonic() + PATIENCE
    while True:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            end += PATIENCE
        time.sleep(0.01)


def exit_while_open(trial: DeviceTrial) -> None:
    """A process that leaves its devices open, with work that waits forever, still ends."""
    with _another_process(trial, _LEAVE) as process:
        _, errors = _outcome(process)
    last = errors.strip().splitlines()[-1:] or ["nothing"]
    expect(process.returncode == 0, f"it ended with status {process.returncode}, and said: {last[0]}")


def interrupt(trial: DeviceTrial) -> None:
    """Waiting for a point ends with KeyboardInterrupt when the user interrupts (Ctrl-C)."""
    with _another_process(trial, _LEAVE + "print('waiting', flush=True)\npoints[0].wait()") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = _outcome(process)
    expect(line == "waiting\n" and "KeyboardInterrupt" in errors, f"it ended with status {process.returncode}, and "
           f"said: {errors.strip().splitlines()[-1:]}; expected KeyboardInterrupt")


# Opens a device and submits work that waits forever to every queue.
_LEAVE = """
import sys
from motet.runtime.device import find_device, open_device
from motet.runtime.timeline import HostTimeline
device = open_device(find_device(sys.argv[1]))
never = HostTimeline().next()
points = [device.fill(device.allocate(64), 1, [never], queue) for queue in range(device.queues)]
device.fill(device.allocate(64), 1)
"""


def _another_process(trial: DeviceTrial, code: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-c", code, trial.subject.uri], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )


def _outcome(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The output of a process until it ends. Fails if it does not."""
    try:
        return process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failure(f"it did not end in {PATIENCE:g} s") from None


def _use_and_close(trial: DeviceTrial) -> None:
    device = trial.open()
    executable = None if isinstance(trial.subject.code(device), str) else trial.load(device)
    for queue in range(device.queues):
        gate = trial.gate()
        buffer = device.allocate(100)
        point = device.fill(buffer, 1, [gate.point], queue)
        gate.open()
        finish(point, "fill")
        if executable is not None:
            recorded = device.record(executable, [whole("count", [100])], 1, 0)
            finish(device.submit(recorded, [buffer], (), queue), "launch")
    device.close()


CHECKS = (
    driver_version, probe_describes, probe_touches_nothing, find_by_uri, properties, unknown_option, close_waits,
    close_twice, closed_use, closed_submit, reopen, open_twice, numbered_instances, nothing_left, fork, fork_and_use,
    exit_while_open, interrupt,
)
