"""A queue on a stream of a vendor's library: the stream, and the points of the submissions to it.

Work that waits for work of such devices is issued to the stream immediately, with the events to wait for. Work that
must wait for the host, for another kind of device, or for such work, is kept by the queue, and a thread issues it when
its waits are reached. A point is reached when the event after its work is; the first thread that asks runs the
remaining host-side part.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeGuard

from motet.errors import MotetError
from motet.runtime.drivers.common.streams import ApiError, Handle, StreamApi, StreamOwner
from motet.runtime.timeline import Point, Timeline, raisable

_ABORT_LATENCY = 0.02  # seconds after which a thread waiting for a point notices an abort
_SPIN = 1e-3  # seconds for which a wait polls without sleeping
_PART = 0.02  # after that, each sleep lasts this fraction of the time waited so far
_LONGEST_SLEEP = 1e-3
_IDLE = 2.0  # seconds after which an idle thread ends
_FEW = 64  # submissions in flight from which on each new one checks for those that have ended

Finish = Callable[[], None]
# Puts work on a stream; returns the part to run on the host once that work has ended, if any.
Issue = Callable[[Handle], Finish | None]


class SubmissionState(Enum):
    KEPT = 0  # kept by the queue, for the thread to issue
    ISSUED = 1  # on the stream
    ENDED = 2


@dataclass(eq=False, slots=True)
class _StreamSubmission:
    """One submission. `holds` keeps its resources alive, `kernels` are those that it launches, `fills_host` means that
    it writes host memory when it ends."""

    value: int
    holds: object
    kernels: Sequence[str]
    fills_host: bool = False
    state: SubmissionState = SubmissionState.KEPT
    event: Handle = None
    error: MotetError | None = None
    finish: Finish | None = None


@dataclass(eq=False, slots=True)
class _Deferred:
    """A task of the thread: wait, then issue the work, or run it if it involves the host."""

    entry: _StreamSubmission
    issue: Issue
    waits: list[Point]
    for_host: bool
    by_thread: bool
    aborted: bool = False
    begun: bool = False


@dataclass
class SortedWaits:
    """The points to wait for, by waiter; `error` is that of a poisoned point."""

    events: list[tuple[Handle, Point]] = field(default_factory=list[tuple[Handle, Point]])
    points: list[Point] = field(default_factory=list[Point])
    error: MotetError | None = None


_NO_WAITS = SortedWaits()


@dataclass(frozen=True)
class StreamHandles:
    """A queue's stream, and its free events."""

    stream: Handle
    events: list[Handle]

    def destroy(self, api: StreamApi) -> None:
        """Destroy them; they must not be in use."""
        for event in self.events:
            api.event_destroy(event)
        api.stream_destroy(self.stream)


class StreamQueue:
    """See `motet.runtime.timeline.Timeline`: values count submissions, from 1. The queues of a device share its
    lock."""

    def __init__(self, device: StreamOwner, number: int) -> None:
        self.device = device
        self.number = number
        self._api = device.api
        self.stream: Handle = self._api.stream_create()
        self._lock = device.lock
        self._changed = threading.Condition(self._lock)
        self._waiting = 0  # number of threads to notify of changes
        self._issued = 0
        self._ended = 0
        self._entries: deque[_StreamSubmission] = deque()  # in order; the first has value `_ended + 1`
        self._errors: dict[int, MotetError] = {}
        self._kept: deque[_Deferred] = deque()  # the thread is processing the first
        self._events: list[Handle] = []  # free events
        self._thread: threading.Thread | None = None
        self._closing = False

    # -- the timeline ----------------------------------------------------------------------------

    def reached(self, value: int) -> bool:
        if value <= self._ended:
            return True
        if os.getpid() != self.device.process:
            return False
        with self._lock:
            self.advance()
            return self._state(value) is SubmissionState.ENDED

    def error(self, value: int) -> MotetError | None:
        return self._errors.get(value) if self.reached(value) else None

    def wait(self, value: int, timeout: float | None = None) -> bool:
        if value > self._ended and not self._wait(value, timeout):
            return False
        if self._errors and (error := self._errors.get(value)) is not None:
            raise raisable(error)
        return True

    def _wait(self, value: int, timeout: float | None) -> bool:
        self.device.check_process()
        begin = time.monotonic()
        while True:
            with self._lock:
                self.advance()
                state = self._state(value)
                if state is SubmissionState.ENDED:
                    return True
                waited = time.monotonic() - begin
                left = timeout - waited if timeout is not None else _IDLE
                if left <= 0:
                    return False
                if state is SubmissionState.KEPT:
                    self._wait_for_change(left)
                    continue
            if waited > _SPIN:
                time.sleep(min(_PART * waited, _LONGEST_SLEEP, left))

    def is_kept(self, value: int) -> bool:
        """Whether work is kept, not issued to the stream yet."""
        with self._lock:
            return self._state(value) is SubmissionState.KEPT

    def wait_issued(self, value: int, timeout: float) -> bool:
        """Block until work is issued or has ended; False after `timeout` seconds."""
        end = time.monotonic() + timeout
        with self._lock:
            while self._state(value) is SubmissionState.KEPT:
                if (left := end - time.monotonic()) <= 0:
                    return False
                self._wait_for_change(left)
        return True

    def _wait_for_change(self, timeout: float) -> None:
        """Call with the lock held."""
        self._waiting += 1
        try:
            self._changed.wait(timeout)
        finally:
            self._waiting -= 1

    def _note_change(self) -> None:
        """Notify waiting threads, if there are any. Call with the lock held."""
        if self._waiting:
            self._changed.notify_all()

    def event_of(self, value: int, for_host: bool) -> Handle | None:
        """The event that a stream can wait for instead of the host; None if there is none yet, or no more."""
        with self._lock:
            entry = self._entry(value)
            if entry is None or entry.state is not SubmissionState.ISSUED or entry.error is not None:
                return None
            return None if for_host and entry.fills_host else entry.event

    def _entry(self, value: int) -> _StreamSubmission | None:
        index = value - self._ended - 1
        return self._entries[index] if 0 <= index < len(self._entries) else None

    def _state(self, value: int) -> SubmissionState:
        entry = self._entry(value)
        return SubmissionState.ENDED if entry is None else entry.state

    def advance(self) -> None:
        """Update the state for submissions that have ended. Call with the lock held."""
        while self._entries:
            entry = self._entries[0]
            if entry.state is SubmissionState.ISSUED:
                try:
                    if not self._api.event_query(entry.event):
                        return
                except ApiError as error:
                    self.device.lose(error)
                    return
                self._end(entry)
            elif entry.state is SubmissionState.KEPT:
                return
            self._entries.popleft()
            self._ended = entry.value

    def _end(self, entry: _StreamSubmission, error: MotetError | None = None) -> None:
        """End a submission, also out of order. Call with the lock held."""
        entry.error = error or entry.error
        if entry.error is not None:
            self._errors[entry.value] = entry.error
        if entry.finish is not None and error is None:
            entry.finish()
        if entry.event is not None and error is None:
            self._events.append(entry.event)
        entry.event = entry.finish = entry.holds = None
        entry.state = SubmissionState.ENDED
        self._note_change()

    # -- submitting ------------------------------------------------------------------------------

    def submit(
        self, issue: Issue, waits: Sequence[Point], holds: object, kernels: Sequence[str] = (), *,
        for_host: bool = False, fills_host: bool = False, by_thread: bool = False,
    ) -> Point:
        """Issue work now, or keep it until it can be issued. `for_host`: it accesses host memory, so that the host-side
        parts of its waits must have run; `fills_host`: it writes host memory; `by_thread`: it takes the host's time."""
        self.device.check_process()
        sorted_waits = self._sort(waits, for_host) if waits else _NO_WAITS
        with self._lock:
            self.device.check_usable()
            self._issued += 1
            entry = _StreamSubmission(self._issued, holds, kernels, fills_host)
            self._entries.append(entry)
            if sorted_waits.error is not None:
                self._end(entry, sorted_waits.error)
            elif sorted_waits.points or self._kept or by_thread:
                self._keep(_Deferred(entry, issue, list(waits), for_host, by_thread))
            else:
                self._issue(entry, issue, sorted_waits.events)
            if len(self._entries) > _FEW:
                self.advance()
            return Point(self, entry.value)

    def _sort(self, waits: Sequence[Point], for_host: bool) -> SortedWaits:
        """Query each timeline, without holding a lock of this device."""
        result = SortedWaits()
        for point in waits:
            timeline = point.timeline
            event = timeline.event_of(point.value, for_host) if self._shares_events(timeline) else None
            if event is not None:
                if timeline is not self:
                    result.events.append((event, point))
            elif not point.reached:
                result.points.append(point)
            elif (error := point.error) is not None:
                result.error = error
        return result

    def _shares_events(self, timeline: Timeline) -> TypeGuard[StreamQueue]:
        """Whether a timeline is a queue whose events this queue's stream can wait for."""
        if not isinstance(timeline, StreamQueue):
            return False
        return timeline.device is self.device or self.device.shares_events(timeline.device)

    def _issue(self, entry: _StreamSubmission, issue: Issue, events: Sequence[tuple[Handle, Point]]) -> None:
        """Issue work to the stream. Call with the lock held."""
        device = self.device
        try:
            with device.current:
                for event, point in events:
                    self._let_stream_wait(event, point)
                entry.state = SubmissionState.ISSUED  # any failure from here on may be due to this work
                try:
                    entry.finish = issue(self.stream)
                except MotetError as error:
                    entry.error = error
                self._record(entry)
        except ApiError as error:
            if not device.lose(error, entry.kernels):
                entry.error = device.passing(error)
                with device.current:
                    self._record(entry)
        self._note_change()

    def _record(self, entry: _StreamSubmission) -> None:
        if entry.state is SubmissionState.ISSUED:
            entry.event = self._events.pop() if self._events else self._api.event_create()
            self._api.event_record(entry.event, self.stream)

    def _let_stream_wait(self, event: Handle, point: Point) -> None:
        try:
            self._api.stream_wait(self.stream, event)
        except ApiError as error:
            if not error.is_invalid_handle or not point.reached:  # of another device that was closed meanwhile
                raise

    # -- the thread ------------------------------------------------------------------------------

    def _keep(self, kept: _Deferred) -> None:
        self._kept.append(kept)
        if self._thread is None:
            name = f"motet {self.device.info.uri} queue {self.number}"
            self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._thread.start()
        self._note_change()

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._has_work():
                    self._thread = None
                    return
                kept = self._kept[0]
            waits = self._await(kept)
            with self._lock:
                kept.begun = not kept.aborted and waits.error is None and self.device.lost is None
                if not kept.aborted and not kept.begun:
                    self._end(kept.entry, waits.error or self.device.lost)
                elif kept.begun and not kept.by_thread:
                    self._issue(kept.entry, kept.issue, waits.events)
            if kept.begun and kept.by_thread:
                self._work(kept, waits.events)
            with self._lock:
                if self._kept and self._kept[0] is kept:
                    self._kept.popleft()
                self._note_change()
            del kept, waits  # an idle thread must not keep memory alive

    def _has_work(self) -> bool:
        """Wait for a while for kept work. Call with the lock held."""
        end = time.monotonic() + _IDLE
        while not self._kept and not self._closing and (left := end - time.monotonic()) > 0:
            self._wait_for_change(left)
        return bool(self._kept)

    def _work(self, kept: _Deferred, events: Sequence[tuple[Handle, Point]]) -> None:
        """Process a kept submission; host work runs without the lock, while only the thread uses the stream."""
        entry, device = kept.entry, self.device
        error: ApiError | None = None
        try:
            with device.current:
                for event, point in events:
                    self._let_stream_wait(event, point)
                kept.issue(self.stream)
        except ApiError as raised:
            error = raised
        with self._lock:
            if entry.state is SubmissionState.ENDED:
                return
            if error is not None and not device.lose(error):
                entry.error = device.passing(error)
            if entry.state is SubmissionState.KEPT:  # it is not if the device is lost
                self._issue(entry, lambda _: None, ())

    def _await(self, kept: _Deferred) -> SortedWaits:
        while True:
            waits = self._sort(kept.waits, kept.for_host)
            if waits.error is not None or not waits.points or kept.aborted:
                return waits
            point = waits.points[0]
            timeline = point.timeline
            if self._shares_events(timeline) and timeline.is_kept(point.value):
                timeline.wait_issued(point.value, _ABORT_LATENCY)
                continue
            try:
                point.wait(_ABORT_LATENCY)
            except MotetError:
                continue  # poisoned, which `_sort` finds

    # -- shutdown --------------------------------------------------------------------------------

    def abort(self, error: MotetError) -> None:
        """End kept work immediately; issued work ends with `error` when the device is done with it. Call with the lock
        held."""
        for kept in list(self._kept):
            if kept.begun:
                kept.entry.error = error
                continue
            kept.aborted = True
            self._end(kept.entry, error)
        self._kept = deque(kept for kept in self._kept if kept.begun)
        for entry in self._entries:
            if entry.state is SubmissionState.ISSUED:
                entry.error = error
        self._note_change()

    def fail(self, error: MotetError) -> None:
        """End all work, as the device is lost. Call with the lock held."""
        for kept in self._kept:
            kept.aborted = True
        self._kept.clear()
        for entry in self._entries:
            if entry.state is not SubmissionState.ENDED:
                self._end(entry, error)
        if self._entries:
            self._ended = self._entries[-1].value
        self._entries.clear()
        self._note_change()

    def kernels(self) -> list[str]:
        """The kernels that may be running. Call with the lock held."""
        return [name for entry in self._entries if entry.state is SubmissionState.ISSUED for name in entry.kernels]

    @property
    def handles(self) -> StreamHandles:
        """The handles of the vendor's library that belong to the queue."""
        return StreamHandles(self.stream, self._events)

    def drain(self) -> None:
        """Block until all work has ended."""
        while self._entries:
            self._wait(self._ended + 1, None)
        with self._lock:
            while self._kept:
                self._wait_for_change(_IDLE)

    def stop(self) -> None:
        """End the thread, which must have no more work."""
        with self._lock:
            self._closing = True
            thread = self._thread
            self._note_change()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
