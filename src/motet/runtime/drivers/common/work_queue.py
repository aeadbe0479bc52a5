"""A queue of closures that run in order on a separate thread, for devices driven by this process.

    queue = WorkQueue("null/1 queue 0")
    point = queue.submit(work, waits)      # runs on the queue's thread
    point = queue.run(work, waits)         # runs in this thread if it does not have to wait

The thread is started when first needed, ends with its queue, and is started again in the child of a fork.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from motet.errors import DeviceError, MotetError
from motet.runtime.timeline import HostTimeline, Point, failed_among

_ABORT_LATENCY = 0.02  # seconds after which a thread waiting for a point notices an abort


@dataclass(eq=False, slots=True)
class _Item:
    work: Callable[[], object]
    waits: tuple[Point, ...]
    point: Point
    aborted: MotetError | None = None


@dataclass
class _QueueState:
    """The state of the thread; it has no reference to the queue, so that the queue can be collected."""

    name: str
    timeline: HostTimeline = field(default_factory=HostTimeline)
    changed: threading.Condition = field(default_factory=threading.Condition)
    items: deque[_Item] = field(default_factory=deque[_Item])
    current: _Item | None = None  # taken by the thread, not ended
    running: bool = False  # whether the work of `current` has begun
    ending: bool = False


class WorkQueue:
    """Closures that run in the order of submission, each after the points that it waits for.

    A closure that raises a `MotetError` poisons its point with it; any other exception becomes a `DeviceError`.
    Thread-safe.
    """

    def __init__(self, name: str) -> None:
        self._state = _QueueState(name)
        self._thread: threading.Thread | None = None
        self._closed = False
        self._inside: deque[None] = deque()  # one entry for each closure running in its caller's thread
        self._aborted: tuple[int, MotetError | None] = (0, None)  # number of aborts, and the last error
        self._reached = Point(self._state.timeline, 0)
        weakref.finalize(self, _end, self._state).atexit = False
        renew = weakref.WeakMethod(self._renew)
        os.register_at_fork(after_in_child=lambda: _call(renew))

    @property
    def timeline(self) -> HostTimeline:
        return self._state.timeline

    @property
    def idle(self) -> bool:
        """Whether no work is queued or running on the queue's thread."""
        state = self._state
        return not state.items and state.current is None

    def run(self, work: Callable[[], object], waits: Sequence[Point] = ()) -> Point:
        """Run `work` in the caller's thread if the queue is idle and all waits are reached; otherwise like `submit`.

        Does not raise exceptions of `work`: they are the point's error.
        """
        state = self._state
        if state.items or state.current is not None or self._closed:
            return self.submit(work, waits)
        for point in waits:
            if not point.timeline.reached(point.value):
                return self.submit(work, waits)
        if waits and (error := failed_among(waits)) is not None:
            return self.failed(error)
        aborts = self._aborted[0]
        self._inside.append(None)
        try:
            work()
        except Exception as error:  # any exception belongs to the point
            return self.failed(_as_motet_error(error, state.name))
        finally:
            self._inside.pop()
        count, error = self._aborted
        return self._reached if count == aborts or error is None else self.failed(error)

    def submit(self, work: Callable[[], object], waits: Sequence[Point] = ()) -> Point:
        """Queue `work`; returns immediately. Raises DeviceError if the queue is closed."""
        state = self._state
        with state.changed:
            if self._closed:
                raise DeviceError(f"device {state.name}: it is closed; nothing can be submitted any more")
            point = state.timeline.next()
            state.items.append(_Item(work, tuple(waits), point))
            if self._thread is None:
                self._thread = threading.Thread(target=_serve, args=(state,), name=f"motet {state.name}", daemon=True)
                self._thread.start()
            state.changed.notify_all()
        return point

    def failed(self, error: MotetError) -> Point:
        """A point that is reached and poisoned."""
        point = self._state.timeline.next()
        self._state.timeline.fail(point.value, error)
        return point

    def abort(self, error: MotetError) -> None:
        """Poison queued work immediately, and running work as soon as it ends."""
        state = self._state
        self._aborted = (self._aborted[0] + 1, error)
        with state.changed:
            dropped = list(state.items)
            state.items.clear()
            current = state.current
            if current is not None and current.aborted is None:
                current.aborted = error
                if not state.running:  # it waits for a point and will give up
                    dropped.insert(0, current)
            for item in dropped:
                state.timeline.fail(item.point.value, error)
            state.changed.notify_all()

    def drain(self, timeout: float | None = None) -> bool:
        """Block until all submitted work has ended; False after `timeout` seconds."""
        state = self._state
        deadline = None if timeout is None else time.monotonic() + timeout
        with state.changed:
            if not state.changed.wait_for(lambda: self.idle, timeout):
                return False
        while self._inside:  # rare: another thread is inside a closure while this one closes the device
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(1e-4)
        return True

    def close(self, timeout: float | None = None) -> bool:
        """Wait for submitted work and end the thread; may be called again. False if work has not ended after `timeout`
        seconds: the thread is left then, and the queue takes no more work."""
        with self._state.changed:
            self._closed = True
        if not self.drain(timeout):
            return False
        _end(self._state)
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        return True

    def _renew(self) -> None:
        """Reset in the child of a fork, which has neither the thread nor its work."""
        old = self._state
        old.timeline.abandon(DeviceError(f"device {old.name}: submitted before a fork, in the parent process"))
        self._state = _QueueState(old.name)
        self._thread = None
        self._inside.clear()
        self._reached = Point(self._state.timeline, 0)
        weakref.finalize(self, _end, self._state).atexit = False


def _serve(state: _QueueState) -> None:
    """The thread's main loop: runs items in order until the queue ends."""
    while True:
        with state.changed:
            state.changed.wait_for(lambda: state.items or state.ending)
            if not state.items:
                return
            item = state.current = state.items.popleft()
        error = _await(item)
        with state.changed:
            error = item.aborted or error
            state.running = error is None
        if error is None:
            try:
                item.work()
            except Exception as raised:  # any exception belongs to the point
                error = _as_motet_error(raised, state.name)
        with state.changed:
            began, aborted = state.running, item.aborted
            state.running, state.current = False, None
            if aborted is not None and not began:
                pass  # `abort` has ended the point
            elif (error := aborted or error) is not None:
                state.timeline.fail(item.point.value, error)
            else:
                state.timeline.signal(item.point.value)
            state.changed.notify_all()
        del item, error, aborted  # an idle thread must not keep memory alive


def _await(item: _Item) -> MotetError | None:
    """Wait for the points of an item; returns the error that keeps it from running, if any."""
    for point in item.waits:
        while not point.reached:
            if item.aborted is not None:
                return item.aborted
            try:
                point.wait(_ABORT_LATENCY)
            except MotetError:
                break  # reached and poisoned; the error is read below
    return failed_among(item.waits)


def _as_motet_error(error: Exception, name: str) -> MotetError:
    if isinstance(error, MotetError):
        return error
    return DeviceError(f"device {name}: {type(error).__name__}: {error}")


def _end(state: _QueueState) -> None:
    with state.changed:
        state.ending = True
        state.changed.notify_all()


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    target = method()
    if target is not None:
        target()
