"""Queues that are streams, over an interface that runs step by step: order, waits, failures and loss."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.unit.runtime.drivers.common.stepped import SteppedApi, SteppedDevice, SteppedStream

from motet.errors import DeviceError, DeviceLost
from motet.runtime.drivers.common.stream_queue import Finish, Issue, StreamQueue
from motet.runtime.timeline import HostTimeline, Point


def queues_of(api: SteppedApi, count: int, uri: str = "stepped:0") -> list[StreamQueue]:
    device = SteppedDevice(api, uri)
    queues = [StreamQueue(device, number) for number in range(count)]
    device.queues = list(queues)
    return queues


def noting(api: SteppedApi, log: list[str], name: str, finish: Finish | None = None) -> Issue:
    def issue(stream: SteppedStream) -> Finish | None:
        api.put(stream, lambda: log.append(name))
        return finish

    return issue


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(1e-3)


def test_work_is_put_on_the_stream_at_once_and_ends_with_its_event() -> None:
    api, log = SteppedApi(), []
    [queue] = queues_of(api, 1)
    point = queue.submit(noting(api, log, "a", lambda: log.append("finished")), (), None)
    assert not point.reached and log == []
    api.run()
    assert point.reached and point.error is None
    assert log == ["a", "finished"]


def test_streams_wait_for_events_of_queues_that_share_them() -> None:
    api, log = SteppedApi(), []
    first, second = queues_of(api, 2)
    [third] = queues_of(api, 1, "stepped:1")
    a = first.submit(noting(api, log, "a"), (), None)
    b = second.submit(noting(api, log, "b"), (a,), None)
    c = third.submit(noting(api, log, "c"), (b,), None)
    assert not any(queue.is_kept(1) for queue in (second, third))  # all of it is on streams
    api.run()
    assert c.wait(5) and log == ["a", "b", "c"]


def test_a_queue_of_another_interface_is_waited_for_by_the_host() -> None:
    api, other, log = SteppedApi(), SteppedApi(), []
    [queue], [foreign] = queues_of(api, 1), queues_of(other, 1, "other:0")
    a = foreign.submit(noting(other, log, "a"), (), None)
    b = queue.submit(noting(api, log, "b"), (a,), None)
    api.run()
    assert queue.is_kept(b.value) and log == []
    other.run()
    api.runs_by_itself = True
    assert b.wait(20) and log == ["a", "b"]
    queue.stop()


def test_what_waits_for_the_host_keeps_what_is_behind_it_in_order() -> None:
    api, log, gate = SteppedApi(), [], HostTimeline()
    [queue] = queues_of(api, 1)
    opened = gate.next()
    first = queue.submit(noting(api, log, "first"), (opened,), None)
    second = queue.submit(noting(api, log, "second"), (), None)
    api.run()
    assert log == [] and queue.is_kept(first.value) and queue.is_kept(second.value)
    api.runs_by_itself = True
    gate.signal(opened.value)
    assert second.wait(20) and first.reached
    assert log == ["first", "second"]
    queue.stop()


@pytest.mark.parametrize("foreign", [False, True])
def test_poison_reaches_what_waits_and_nothing_else(foreign: bool) -> None:
    api, log, gate = SteppedApi(), [], HostTimeline()
    queue, other = queues_of(api, 2)
    failed = gate.next()
    if not foreign:
        gate.fail(failed.value, DeviceError("gone wrong"))
    dependent = queue.submit(noting(api, log, "dependent"), (failed,), None)
    behind = other.submit(noting(api, log, "behind"), (dependent,), None)
    free = queue.submit(noting(api, log, "free"), (), None)
    if foreign:
        gate.fail(failed.value, DeviceError("gone wrong"))
    api.runs_by_itself = True
    assert free.wait(20) and free.error is None
    for point in (dependent, behind):
        with pytest.raises(DeviceError, match="gone wrong"):
            point.wait(20)
    assert log == ["free"]
    queue.stop()
    other.stop()


def test_abort_ends_what_is_kept_at_once_and_what_runs_at_its_end() -> None:
    api, log, gate = SteppedApi(), [], HostTimeline()
    [queue] = queues_of(api, 1)
    running = queue.submit(noting(api, log, "running"), (), None)
    kept = queue.submit(noting(api, log, "kept"), (gate.next(),), None)
    with queue.device.lock:
        queue.abort(DeviceError("aborted"))
    assert isinstance(Point(queue, kept.value).timeline, StreamQueue) and not running.reached
    api.run()
    for point in (running, kept):
        with pytest.raises(DeviceError, match="aborted"):
            point.wait(20)
    assert log == ["running"]
    until(lambda: queue.submit(noting(api, log, "after"), (), None) is not None)
    queue.stop()


def test_a_final_error_ends_everything() -> None:
    api, log = SteppedApi(), []
    queue, other = queues_of(api, 2)
    points = [queue.submit(noting(api, log, "a"), (), None), other.submit(noting(api, log, "b"), (), None)]
    api.broken = True
    for point in points:
        with pytest.raises(DeviceLost):
            point.wait(20)
    with pytest.raises(DeviceLost):
        queue.submit(noting(api, log, "c"), (), None)


def test_its_handles_are_given_back() -> None:
    api, log = SteppedApi(), []
    [queue] = queues_of(api, 1)
    for name in "abc":
        queue.submit(noting(api, log, name), (), None)
    api.runs_by_itself = True
    queue.drain()
    queue.stop()
    queue.handles.destroy(api)
    assert api.events == 0 and all(stream.gone for stream in api.streams)
