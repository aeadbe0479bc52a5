"""Concurrent calls: runs the calls that `submit` of a session's functions starts, on threads of the session.

    calls = InFlight(4)
    future = calls.submit(call, reads, writes)      # returns immediately

Calls start in the order of submission and overlap, up to `most` of them, which bounds their memory; waiting calls hold
only their arguments. A call that reads or writes caller's memory that an earlier call writes starts when that call has
ended, and so does one that writes memory that an earlier call reads, so that results are those of sequential calls.
Results allocated by a call are not visible to others before it ends.
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

MOST = 4  # default number of concurrent calls
_ADDRESSES = "addresses"  # this process's address space

# The memory of a tensor: an address space, its first byte and the one after its last.
Range = tuple[object, int, int]
Ranges = Callable[[], Sequence[Range]]


def ranges_of(tensors: Sequence[Any]) -> list[Range]:
    """The memory ranges of tensors. Tensors of other libraries count with their whole storage; values without writable
    memory, such as numbers, have none."""
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
    """A call that was submitted and has not ended. Its reads are computed only if another call writes."""

    call: Callable[[], Any]
    find_reads: Ranges
    writes: Sequence[Range]
    future: Future[Any] = field(default_factory=Future[Any])
    missing: int = 0  # number of earlier calls that must end first
    later: list[_PendingCall] = field(default_factory=list["_PendingCall"])  # calls that wait for this one
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
    """Runs at most `most` calls at the same time. Threads are started when needed, and again in the child of a fork.
    When the interpreter exits, it waits for submitted calls. Thread-safe."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False
        self._entries: dict[_PendingCall, None] = {}  # in the order of submission
        self._writers = 0  # number of entries that write
        self._ready: deque[_PendingCall] = deque()  # calls that may start
        self._threads = 0  # number of threads that take them

    def submit(self, call: Callable[[], Any], reads: Ranges, writes: Sequence[Range] = ()) -> Future[Any]:
        """Run `call` on a thread, after earlier calls with overlapping memory; `reads` is called only if needed. An
        exception of `call` is set on the future. Raises CallError if the queue is closed."""
        entry = _PendingCall(call, reads, writes)
        with self._lock:
            if self._closed:
                raise CallError("the session is closed")
            if self._process != os.getpid():
                self._reset_after_fork()
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
        """Wait for submitted calls, or else cancel those that have not started; may be called again."""
        with self._lock:
            self._closed = True
            executor, self._executor = self._executor, None
            if not wait:
                for entry in self._entries:
                    entry.future.cancel()
        if executor is not None and self._process == os.getpid():
            executor.shutdown(wait)

    def _reset_after_fork(self) -> None:
        """Reset in the child of a fork, which has neither the threads nor their calls."""
        self._process = os.getpid()
        self._executor = None
        self._entries.clear()
        self._ready.clear()
        self._writers = self._threads = 0

    def _ask_for_threads(self) -> None:
        """Start threads for calls that may start, up to the limit. Busy threads take calls that arrive meanwhile."""
        for _ in range(min(len(self._ready), self.most - self._threads)):
            if self._executor is None:
                return  # the session is closing and waits for the existing threads
            try:
                self._executor.submit(self._work)
            except RuntimeError:  # the interpreter is exiting and waits, too
                return
            self._threads += 1

    def _work(self) -> None:
        """The main loop of a thread: runs calls until none is left."""
        while True:
            with self._lock:
                if not self._ready:
                    self._threads -= 1
                    return
                entry = self._ready.popleft()
            _perform(entry)
            with self._lock:
                self._end(entry)
            del entry  # an idle thread must not keep memory alive

    def _end(self, entry: _PendingCall) -> None:
        """Start calls that waited for `entry` only; the thread that ran it takes one of them."""
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
    except BaseException as error:  # of any kind, for the caller
        entry.future.set_exception(error)
    else:
        entry.future.set_result(result)
