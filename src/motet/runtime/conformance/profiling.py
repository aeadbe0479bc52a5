"""Area `profile`: the events that a device records."""

from __future__ import annotations

import itertools
import time

import numpy as np

from motet.errors import DeviceError
from motet.runtime.conformance.check import expect
from motet.runtime.conformance.listing import each
from motet.runtime.conformance.operations import KINDS, SIZE, operation
from motet.runtime.conformance.trial import PAUSE, DeviceTrial, finish, finish_poisoned
from motet.runtime.timeline import Point

_EVENTS = ("launch", "copy", "read", "write", "fill")
_CLOCKS = 0.01  # seconds by which a device's clock, converted to the process's, may differ


def profile_is_off(trial: DeviceTrial) -> None:
    """No event is recorded before profiling is switched on."""
    finish(trial.device.fill(trial.device.allocate(8), 1), "fill")
    events = trial.device.profile(False)
    expect(events == [], f"{len(events)} events without profiling; expected none")


def profile_of_transfers(trial: DeviceTrial) -> None:
    """Profiling records each transfer: kind, bytes, queue, and time by this process's clock."""
    device, data, queue = trial.device, np.zeros(1234, np.uint8), trial.device.queues - 1
    source, target = device.allocate(1234), device.allocate(2000)
    begin = time.perf_counter()
    device.profile(True)
    point = device.write(source, data, 0, (), queue)
    point = device.copy(source, target, [point], queue)
    point = device.fill(target, 3, [point], queue)
    finish(device.read(source, data, 0, [point], queue), "read")
    events = device.profile(False)
    found = {(event.kind, event.bytes, event.queue) for event in events}
    wanted = {("write", 1234, queue), ("copy", 1234, queue), ("fill", 2000, queue), ("read", 1234, queue)}
    expect(found == wanted, f"events (kind, bytes, queue) are {sorted(found)}; expected {sorted(wanted)}")
    expect(len(events) == 4, f"{len(events)} events; expected 4")
    for event in events:
        expect(begin - 0.01 <= event.begin <= event.end, f"{event.kind} from {event.begin} to {event.end}; expected "
               f"seconds of time.perf_counter, after {begin}")
    expect(device.profile(False) == [], "events that were given are given again")


def profile_of_launches(trial: DeviceTrial) -> None:
    """Profiling records each launch under its kernel's name, and nothing after it is switched off."""
    executable, out = trial.load(), trial.upload(np.zeros(100, np.int32))
    trial.device.profile(True)
    for _ in range(3):
        finish(trial.launch(executable, "count", [out], 100), "launch")
    events = trial.device.profile(False)
    names = [event.name for event in events if event.kind == "launch"]
    expect(names == ["count"] * 3, f"launches are {names}; expected count, three times")
    unknown = {event.kind for event in events} - set(_EVENTS)
    expect(not unknown, f"events of kinds {sorted(unknown)}; expected {', '.join(_EVENTS)}")
    finish(trial.launch(executable, "count", [out], 100), "launch")
    expect(trial.device.profile(False) == [], "events while profiling was off")


def profile_of(trial: DeviceTrial, kind: str) -> None:
    """Each {} is one event on its queue, which begins after its submission and ends before the host sees its point."""
    device = trial.device
    works = [operation(trial, kind) for _ in trial.queues]
    device.profile(True)
    for queue, work in enumerate(works):
        begin = time.perf_counter()
        finish(work.start((), queue), kind)
        end = time.perf_counter()
        events = device.profile(True)
        expect(len(events) == 1, f"{len(events)} events of one {kind}: {[event.kind for event in events]}")
        [event] = events
        expected = kind.removeprefix("recorded-"), queue, 0 if kind == "launch" else SIZE
        found = event.kind, event.queue, event.bytes
        expect(found == expected, f"kind, queue and bytes are {found}; expected {expected}")
        inside = begin - _CLOCKS <= event.begin <= event.end and (event.end <= end + _CLOCKS or _is_modelled(trial))
        expect(inside, f"it ran from {event.begin - begin:.6f} s to {event.end - begin:.6f} s after its submission; it "
               f"had ended {end - begin:.6f} s after that")
    expect(device.profile(False) == [], "events without work")


def profile_of_failed(trial: DeviceTrial, kind: str) -> None:
    """A {} that does not run, because what it waits for failed, is no event."""
    gate, work = trial.gate(), operation(trial, kind)
    trial.device.profile(True)
    point = work.start([gate.point], 0)
    gate.fail(DeviceError("device elsewhere: broken"))
    finish_poisoned(point, kind)
    events = trial.device.profile(False)
    expect(not events, f"events of work that did not run: {[event.kind for event in events]}")


def profile_of_waits(trial: DeviceTrial) -> None:
    """The time that work waits for points is not part of its event."""
    gate, work = trial.gate(), operation(trial, "write")
    trial.device.profile(True)
    point = work.start([gate.point], 0)
    time.sleep(PAUSE)
    opened = time.perf_counter()
    gate.open()
    finish(point, "write")
    [event] = trial.device.profile(False)
    expect(event.begin >= opened - _CLOCKS, f"it begins {opened - event.begin:.6f} s before what it waits for")


def profile_of_order(trial: DeviceTrial) -> None:
    """Of operations of which each waits for the one before, on any queues, the events follow each other."""
    works = [operation(trial, kind) for kind in ("write", "fill", "copy", "read", "fill", "write")]
    trial.device.profile(True)
    point: Point | None = None
    for number, work in enumerate(works):
        point = work.start([point] if point else (), number % trial.device.queues)
    assert point is not None
    finish(point, "the last")
    events = sorted(trial.device.profile(False), key=lambda event: (event.begin, event.end))
    kinds = [event.kind for event in events]
    expect(kinds == [work.kind for work in works], f"the events, by time, are {kinds}")
    for earlier, later in itertools.pairwise(events):
        expect(earlier.end <= later.begin + _CLOCKS, f"{later.kind} begins {earlier.end - later.begin:.6f} s before "
               f"{earlier.kind}, which it waits for, ends")


def profile_twice(trial: DeviceTrial) -> None:
    """Profiling may be switched on and off repeatedly: each time gives the events since the last."""
    device, buffer = trial.device, trial.device.allocate(100)
    for lap in range(3):
        expect(device.profile(True) == [], f"time {lap + 1}: events from while it was off")
        for byte in range(lap + 1):
            finish(device.fill(buffer, byte), "fill")
        kinds = [event.kind for event in device.profile(False)]
        expect(kinds == ["fill"] * (lap + 1), f"time {lap + 1}: events {kinds}; expected {lap + 1} fills")
        finish(device.fill(buffer, 9), "fill")


def _is_modelled(trial: DeviceTrial) -> bool:
    """Whether the device's times are computed, so that an event may end after its point is reached."""
    return trial.device.info.is_modelled


CHECKS = (
    profile_is_off, profile_of_transfers, profile_of_launches, each(profile_of, KINDS), each(profile_of_failed, KINDS),
    profile_of_waits, profile_of_order, profile_twice,
)
