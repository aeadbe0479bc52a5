"""What devices recorded and what was noted when submitting to them become one trace."""

from __future__ import annotations

import json
from typing import Any

from motet.artifact.schema import KernelInfo
from motet.runtime.device import Event
from motet.runtime.timeline import HostTimeline, Point
from motet.runtime.trace import Submissions, Traced, chrome_trace


def event(name: str, queue: int, begin: float, kind: str = "launch") -> Event:
    return Event(name, kind, queue, begin, begin + 1)


def test_waits_are_between_queues_and_end_at_the_last_event_of_a_submission() -> None:
    reached = Point(HostTimeline(), 0)  # the same for everything that has ended already, as queues give it
    noted = Submissions({"b": 10})
    first = noted.submitted("a", 0, 2, [], reached)
    noted.allocated("b", 32)
    moved = noted.submitted("b", 1, 1, [first], reached)
    noted.submitted("b", 0, 2, [moved], reached)
    noted.submitted("b", 0, 1, [moved], reached)
    a = [event("p", 0, 0), event("q", 0, 1)]
    b = [event("write", 1, 2, "write"), event("r", 0, 3), event("s", 0, 4), event("t", 0, 5)]
    traced = {each.event.name: each for each in noted.attach({"a": a, "b": b})}
    assert traced["write"].after == (a[1],)
    assert traced["r"].after == (b[0],) and traced["s"].after == () and traced["t"].after == (b[0],)
    assert traced["p"].memory == 0 and traced["write"].memory == 42


def test_order_on_one_queue_needs_no_arrow() -> None:
    noted = Submissions({})
    point = noted.submitted("a", 0, 1, [], Point(HostTimeline(), 0))
    noted.submitted("a", 0, 1, [point], Point(HostTimeline(), 0))
    assert [each.after for each in noted.attach({"a": [event("p", 0, 0), event("q", 0, 1)]})] == [(), ()]


def test_a_queue_that_recorded_something_else_has_its_events_alone() -> None:
    noted = Submissions({})
    point = noted.submitted("a", 0, 3, [], Point(HostTimeline(), 0))
    noted.submitted("b", 0, 1, [point], Point(HostTimeline(), 0))
    found = noted.attach({"a": [event("p", 0, 0)], "b": [event("q", 0, 1)]})
    assert [each.event.name for each in found] == ["p", "q"] and all(not each.after for each in found)


def entries(phase: str, *traced: Traced) -> list[dict[str, Any]]:
    info = KernelInfo("k", "rows", 12, 34)
    content = json.loads(chrome_trace(traced, "f", lambda device, name: info if name == "k_1" else None, {"more": 1}))
    assert content["otherData"] == {"program": "f", "more": 1}
    return [entry for entry in content["traceEvents"] if entry["ph"] == phase]


def test_arrows_lie_in_their_events() -> None:
    source, target = event("k_1", 0, 2.0), event("write", 1, 4.0, "write")
    traced = Traced("a", source), Traced("b", target, (source,))
    (begin,), (end,) = entries("s", *traced), entries("f", *traced)
    assert begin["id"] == end["id"] and (begin["pid"], begin["tid"]) == (0, 0) and (end["pid"], end["tid"]) == (1, 1)
    assert 0 <= begin["ts"] < 1e6 and end["ts"] == 2e6


def test_kernels_say_class_and_work_and_devices_count_their_memory() -> None:
    traced = [Traced("a", event("k_1", 0, t), memory=size) for t, size in enumerate((5, 5, 9))]
    spans = entries("X", *traced)
    assert spans[0]["args"] == {"kernel": "k", "class": "rows", "flops": 12, "kernel_bytes": 34}
    assert [(entry["ts"], entry["args"]["bytes"]) for entry in entries("C", *traced)] == [(0, 5), (2e6, 9)]
