"""Area `profile`: the events that a device records."""

from __future__ import annotations

import time

import numpy as np

from motet.runtime.conformance.check import expect
from motet.runtime.conformance.trial import DeviceTrial, finish

KINDS = ("launch", "copy", "read", "write", "fill")


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
    unknown = {event.kind for event in events} - set(KINDS)
    expect(not unknown, f"events of kinds {sorted(unknown)}; expected {', '.join(KINDS)}")
    finish(trial.launch(executable, "count", [out], 100), "launch")
    expect(trial.device.profile(False) == [], "events while profiling was off")


CHECKS = (profile_is_off, profile_of_transfers, profile_of_launches)
