"""Area `life`, case by case: what a device is when it is closed, aborted, reopened or lost, and how it reports it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import numpy as np

from motet.errors import DeviceError, DeviceLost
from motet.runtime.conformance.check import Skip, check_text, expect, expect_error
from motet.runtime.conformance.listing import each
from motet.runtime.conformance.operations import KINDS, operation
from motet.runtime.conformance.trial import PATIENCE, DeviceTrial, finish, finish_poisoned
from motet.runtime.device import find_device, open_device, probe

_STATES = ("idle", "working", "aborted", "failed", "waiting")


def closed_call(trial: DeviceTrial, name: str) -> None:
    """`{}` of a closed device raises a DeviceError that names the device, again and again."""
    device, data = trial.open(), np.zeros(16, np.uint8)
    buffer, other = device.allocate(16), device.allocate(16)
    device.close()
    calls: dict[str, Callable[[], object]] = {
        "allocate": lambda: device.allocate(16), "write": lambda: device.write(buffer, data),
        "read": lambda: device.read(buffer, data), "copy": lambda: device.copy(buffer, other),
        "fill": lambda: device.fill(buffer, 0), "load": lambda: device.load([b"no code"], ["no.o"]),
    }
    for _ in range(2):
        expect_error(DeviceError, calls[name], f"{name} on a closed device", [trial.subject.info.family])


def close_when(trial: DeviceTrial, state: str) -> None:
    """A device that is {} closes, and its points are reached."""
    device = trial.open()
    gate = trial.gate()
    points = [device.fill(device.allocate(64), 1, [gate.point], queue) for queue in range(device.queues)]
    if state == "aborted":
        device.abort()
    elif state == "failed":
        gate.fail(DeviceError("device elsewhere: broken"))
    elif state == "waiting":
        threading.Timer(0.02, gate.open).start()
    else:
        gate.open()
    if state == "idle":
        for point in points:
            finish(point, "fill")
    device.close()
    for point in points:
        expect(point.reached, "close came back before its work had ended")
        if state in ("aborted", "failed"):
            finish_poisoned(point, "work of the closed device")
        else:
            finish(point, "work of the closed device")
    device.close()


def reopened_when(trial: DeviceTrial, state: str) -> None:
    """A device that was {} before it was closed opens again and works."""
    close_when(trial, state)
    device = trial.open()
    trial.check_works(device, "what was read")
    device.close()


def close_at_once(trial: DeviceTrial) -> None:
    """Several threads may close a device at the same time: each call returns once it is closed."""
    device = trial.open()
    point = device.fill(device.allocate(1 << 16), 1)
    errors: list[Exception] = []

    def close() -> None:
        try:
            device.close()
            expect(point.reached, "close came back before what was submitted had ended")
        except Exception as error:  # raised below, in the check's thread
            errors.append(error)

    threads = [threading.Thread(target=close, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        expect(not thread.is_alive(), f"close did not return in {PATIENCE:g} s")
    if errors:
        raise errors[0]
    expect_error(DeviceError, lambda: device.allocate(8), "allocate after that")


def malformed_option(trial: DeviceTrial, option: str) -> None:
    """A URI with the option `{}` is a DeviceError with the URI, and opens nothing."""
    mark = "&" if "?" in trial.subject.uri else "?"
    uri = f"{trial.subject.uri}{mark}{option}"
    expect_error(DeviceError, lambda: open_device(find_device(uri)).close(), f"opening {uri}", [option.split("=")[0]])


def info_is_consistent(trial: DeviceTrial) -> None:
    """`probe` and the open device report plain values that agree: names are text, numbers are no less than 0."""
    opened = trial.device.info
    base = opened.uri.partition("?")[0]
    found = next((info for info in probe(opened.family) if info.uri == base), opened)
    for info in (opened, found):
        for field in ("name", "uri", "level", "reason", "family", "uuid"):
            expect(type(getattr(info, field)) is str, f"{field} is {getattr(info, field)!r}; expected text")
        for field in ("cores", "threads", "memory", "ordinal", "rank"):
            value = getattr(info, field)
            expect(type(value) is int and value >= 0, f"{field} is {value!r}; expected an int from 0 on")
        for field in ("available", "host_memory", "instances", "is_modelled"):
            expect(type(getattr(info, field)) is bool, f"{field} is {getattr(info, field)!r}; expected a bool")
        expect(info.instruction >= 0, f"instruction is {info.instruction!r}; expected seconds")
    for field in ("family", "ordinal", "host_memory", "is_modelled", "uuid"):
        if found.uri == opened.uri:
            expect(getattr(opened, field) == getattr(found, field), f"{field} is {getattr(opened, field)!r} of the "
                   f"open device, {getattr(found, field)!r} of what probe found")


def errors_name_the_device(trial: DeviceTrial) -> None:
    """The errors of mistakes are single lines that name the device, whatever the mistake."""
    device, data = trial.device, np.zeros(16, np.uint8)
    buffer, small = device.allocate(16), device.allocate(8)
    mistakes: dict[str, Callable[[], object]] = {
        "allocate": lambda: device.allocate(-1), "write": lambda: device.write(buffer, data, 1),
        "read": lambda: device.read(buffer, data, -1), "copy": lambda: device.copy(buffer, small),
        "fill": lambda: device.fill(buffer, 256), "queue": lambda: device.fill(buffer, 1, (), device.queues),
        "load": lambda: device.load([b"no code"], ["no.o"]),
    }
    for what, mistake in mistakes.items():
        error = expect_error(DeviceError, mistake, what)
        check_text(error, what, [trial.subject.info.family])
        expect("\n" not in str(error).strip(), f"{what}: the error has several lines: {str(error)!r}")


def lost_before(trial: DeviceTrial, kind: str) -> None:
    """On a lost device, a {} raises a DeviceLost or its point fails with one, and it does not run."""
    _open_to_lose(trial)
    work = operation(trial, kind)
    lost = _lose(trial)
    for queue in trial.queues:
        try:
            point = work.start((), queue)
        except DeviceLost as error:
            expect(str(error) == str(lost), f"the error is {error}; the device was lost with {lost}")
            continue
        finish_poisoned(point, kind, DeviceLost)


def lost_call(trial: DeviceTrial, name: str) -> None:
    """`{}` of a lost device raises a DeviceLost that says why it was lost."""
    _open_to_lose(trial)
    files, device = trial.code.files("kernels", "helper"), trial.device
    executable = device.load(*files)
    lost = _lose(trial)
    calls: dict[str, Callable[[], object]] = {
        "allocate": lambda: device.allocate(8), "load": lambda: device.load(*files),
        "record": lambda: device.record(executable, [], 0, 0),
    }
    error = expect_error(DeviceLost, calls[name], f"{name} on a lost device")
    expect(str(error) == str(lost), f"the error is {error}; the device was lost with {lost}")


def lost_while_queued(trial: DeviceTrial) -> None:
    """What is queued when the device is lost, and what waits for it, fails with a DeviceLost; points that were reached
    before stay as they were."""
    _open_to_lose(trial)
    device, gate = trial.device, trial.gate()
    fatal, behind, after = (operation(trial, kind) for kind in ("launch", "write", "read"))
    done = device.fill(device.allocate(8), 1)
    finish(done, "work before the loss")
    first = fatal.start([gate.point], 0)
    points = [first, behind.start((), 0), after.start([first], device.queues - 1)]
    gate.open()
    for point, what in zip(points, ("the work", "work behind it", "what waits for it"), strict=True):
        finish_poisoned(point, what, DeviceLost)
    after.expect_untouched("though the device was lost")
    expect(done.reached and done.error is None, "work that had ended well before the loss is no longer said to have")


def lost_then_closed(trial: DeviceTrial) -> None:
    """A lost device closes, twice too, also after `abort`, and another one opens in its place."""
    _open_to_lose(trial)
    _lose(trial)
    with contextlib.suppress(DeviceLost):  # all calls may raise it
        trial.device.abort()
    trial.device.close()
    trial.device.close()
    trial.check_works(trial.open(), "what was read from the next device")


def _open_to_lose(trial: DeviceTrial) -> None:
    """Open the device so that its first submission of recorded work loses it."""
    option = getattr(trial.subject.driver, "conformance_loss", "")
    if not option:
        raise Skip("its driver names no option with which a device is lost (conformance_loss)")
    trial.open(f"{option}=0")


def _lose(trial: DeviceTrial) -> DeviceLost:
    error = finish_poisoned(operation(trial, "launch").start((), 0), "the submission that loses it", DeviceLost)
    assert isinstance(error, DeviceLost)
    expect(bool(error.reason) and trial.subject.info.family in error.device, f"the loss is of {error.device!r}, "
           f"because {error.reason!r}")
    return error


CHECKS = (
    each(closed_call, ("allocate", "write", "read", "copy", "fill", "load")), each(close_when, _STATES),
    each(reopened_when, _STATES), close_at_once, each(malformed_option, ("x", "=1", "no-such-option=", "&")),
    info_is_consistent, errors_name_the_device, each(lost_before, KINDS),
    each(lost_call, ("allocate", "load", "record")), lost_while_queued, lost_then_closed,
)
