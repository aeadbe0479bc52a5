"""Calls in flight: what `submit` of a session's functions starts, several at once, on threads of the session.

    calls = InFlight(4)
    future = calls.submit(call, reads, writes)      # returns at once

Calls begin in the order of their submission and overlap, up to `most` of them, which bounds how much memory they take:
those that wait hold their arguments alone. A call that reads or writes memory of its caller's that an earlier
one writes begins when that one has ended, and one that writes what an earlier one reads does too, so that results are
those of one call after the other. Results that calls make anew are known to nobody before they are there.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motet.errors import CallError
from motet.runtime.device_array import DeviceArray

MOST = 4  # calls at once, where nothing else is said
_ADDRESSES = "addresses"  # the memory that this process addresses

# Where a tensor lies: a memory, and its first byte there and the one after its last.
Range = tuple[object, int, int]
Ranges = Callable[[], Sequence[Range]]


def ranges_of(tensors: Sequence[Any]) -> list[Range]:
    """Where tensors lie. Those of other libraries take all of their storage; what has no memory of its own that could
    be written, such as numbers, lies nowhere."""
    found: list[Range] = []
    for tensor in tensors:
        if isinstance(tensor, DeviceArray):
            view = tensor.view()
            if view is None:
                found.append((id(tensor.buffer), 0, max(1, tensor.nbytes)))
                continue
            tensor = view
        if isinstance(tensor, np.ndarray):
            found.append(_range_of_array(tensor))
        elif hasattr(tensor, "untyped_storage"):  # torch's
            storage = tensor.untyped_storage()
            found.append((_ADDRESSES, storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
        elif tensor is not None:
            found += _range_of_buffer(tensor)
    return found


def _range_of_array(array: np.ndarray[Any, Any]) -> Range:
    interface = array.__array_interface__
    if interface["strides"] is None:  # contiguous
        first = interface["data"][0]
        return _ADDRESSES, first, first + array.nbytes
    return (_ADDRESSES, *np.lib.array_utils.byte_bounds(array))


def _range_of_buffer(value: Any) -> list[Range]:
    try:
        array = np.asarray(memoryview(value))
    except (TypeError, ValueError):
        return []
    return [_range_of_array(array)]


def _meet(some: Sequence[Range], others: Sequence[Range]) -> bool:
    for space, first, last in some:
        for other, first_other, last_other in others:
            if first < last_other and first_other < last and space == other:
                return True
    return False


@dataclass(eq=False)
class _PendingCall:
    """A call that was submitted and has not ended. What it reads is looked at where another one writes only."""

    call: Callable[[], Any]
    find_reads: Ranges
    writes: Sequence[Range]
    future: Future[Any] = field(default_factory=Future[Any])
    missing: int = 0  # earlier calls that have to end before
    later: list[_PendingCall] = field(default_factory=list["_PendingCall"])  # those that wait for this one
    _reads: Sequence[Range] | None = None

    @property
    def reads(self) -> Sequence[Range]:
        if self._reads is None:
            self._reads = self.find_reads()
        return self._reads

    def waits_for(self, earlier: _PendingCall) -> bool:
        return bool(earlier.writes and (_meet(earlier.writes, self.reads) or _meet(earlier.writes, self.writes))) or (
            bool(self.writes) and _meet(self.writes, earlier.reads)
        )


class InFlight:
    """At most `most` calls at once. Threads are started when first needed, and anew in the child of a fork; when the
    interpreter ends, what was submitted is waited for. Safe to use from several threads."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False
        self._entries: dict[_PendingCall, None] = {}  # in the order of their submission
        self._writers = 0  # of the entries
        self._ready: deque[_PendingCall] = deque()  # those that may begin
        self._threads = 0  # that take them

    def submit(self, call: Callable[[], Any], reads: Ranges, writes: Sequence[Range] = ()) -> Future[Any]:
        """Runs `call` on a thread, behind earlier calls that it meets in memory; `reads` is asked for what it reads
        where that matters. What `call` raises is in the future. Raises CallError once closed."""
        entry = _PendingCall(call, reads, writes)
        with self._lock:
            if self._closed:
                raise CallError("the session is closed")
            if self._process != os.getpid():
                self._begin_anew()
            if writes or self._writers:
                for earlier in self._entries:
                    if entry.waits_for(earlier):
                        earlier.later.append(entry)
                        entry.missing += 1
            self._entries[entry] = None
            self._writers += bool(writes)
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.most, thread_name_prefix="motet")
            if not entry.missing:
                self._ready.append(entry)
                self._ask_for_threads()
        return entry.future

    def close(self, wait: bool = True) -> None:
        """Waits for what was submitted, or else cancels what has not begun; closing twice is allowed."""
        with self._lock:
            self._closed = True
            executor, self._executor = self._executor, None
            if not wait:
                for entry in self._entries:
                    entry.future.cancel()
        if executor is not None and self._process == os.getpid():
            executor.shutdown(wait)

    def _begin_anew(self) -> None:
        """In the child of a fork: neither threads nor what they were to do came along."""
        self._process = os.getpid()
        self._executor = None
        self._entries.clear()
        self._ready.clear()
        self._writers = self._threads = 0

    def _ask_for_threads(self) -> None:
        """For what may begin, as far as there may be any. Threads that work already take what comes meanwhile."""
        for _ in range(min(len(self._ready), self.most - self._threads)):
            if self._executor is None:
                return  # the session is closing, which waits for the threads that there are
            try:
                self._executor.submit(self._work)
            except RuntimeError:  # the interpreter is ending, which does too
                return
            self._threads += 1

    def _work(self) -> None:
        """A thread: runs what may begin until there is nothing."""
        while True:
            with self._lock:
                if not self._ready:
                    self._threads -= 1
                    return
                entry = self._ready.popleft()
            _perform(entry)
            with self._lock:
                self._end(entry)
            del entry  # a thread at rest keeps no one's memory alive

    def _end(self, entry: _PendingCall) -> None:
        """What waited for `entry` alone may begin; the thread that ran it is there for one of them."""
        self._entries.pop(entry, None)
        self._writers -= bool(entry.writes)
        for later in entry.later:
            later.missing -= 1
            if not later.missing:
                self._ready.append(later)
        if len(self._ready) > 1:
            self._ask_for_threads()


def _perform(entry: _PendingCall) -> None:
    if not entry.future.set_running_or_notify_cancel():
        return
    try:
        result = entry.call()
    except BaseException as error:  # whatever it is, it is the caller's to see
        entry.future.set_exception(error)
    else:
        entry.future.set_result(result)
