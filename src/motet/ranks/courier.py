"""Sends and receives the values of calls over a transport, ordered by points.

    point = courier.send(1, tag, data, waits)      begins when `waits` are reached
    point = courier.receive(1, tag, data)          reached when `data` is there

A message is sent once its waits are reached. If one of them is poisoned, a message without bytes is sent instead, which
poisons the receiver's point: messages with data have at least one byte. Threads that wait for a point make progress
themselves; one thread of the courier does so otherwise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from motet.errors import MotetError, RankFailure
from motet.ranks.transport import Array, MessageRequest, RankTransport
from motet.runtime.device import Event
from motet.runtime.timeline import HostTimeline, Point, failed_among

_SPINS = 10  # attempts of a waiting thread before it leaves progress to the courier's
_NAP = 2e-5  # seconds between the courier's attempts
_NOTHING = np.empty(0, np.uint8)


@dataclass
class _Parcel:
    """A message with its point; `error` is why it is sent without content. `data` is None if it is discarded."""

    peer: int
    tag: int
    data: Array | None
    point: Point
    sends: bool
    begun: float
    waits: list[Point] = field(default_factory=list[Point])
    request: MessageRequest | None = None
    error: MotetError | None = None


class _Progressing(HostTimeline):
    """A timeline on which waiting makes progress."""

    def __init__(self, courier: Courier) -> None:
        super().__init__()
        self._courier = courier

    def wait(self, value: int, timeout: float | None = None) -> bool:
        for _ in range(_SPINS):
            if self.reached(value):
                break
            self._courier.progress()
            time.sleep(0)
        return super().wait(value, timeout)


class Courier:
    """The messages of one rank. A message that has not arrived `timeout` seconds after it was expected is lost: its
    point is poisoned with RankFailure. Thread-safe."""

    def __init__(self, transport: RankTransport, timeout: float) -> None:
        self.transport = transport
        self.timeout = timeout
        self._timeline = _Progressing(self)
        self._lock = threading.Lock()
        self._parcels: list[_Parcel] = []
        self._work = threading.Event()
        self._closed = False
        self.lost: RankFailure | None = None  # the first message that was: later calls could take it for theirs
        self._events: list[Event] | None = None
        self._thread = threading.Thread(target=self._serve, name="motet-courier", daemon=True)
        self._thread.start()

    def send(self, peer: int, tag: int, data: Array, waits: Sequence[Point]) -> Point:
        """See `motet.runtime.plans.peers.Peers.send`."""
        return self._add(_Parcel(peer, tag, data, self._timeline.next(), True, time.perf_counter(), list(waits)))

    def receive(self, peer: int, tag: int, data: Array | None) -> Point:
        """See `motet.runtime.plans.peers.Peers.receive`; None discards the message."""
        return self._add(_Parcel(peer, tag, data, self._timeline.next(), False, time.perf_counter()))

    def poison(self, peer: int, tag: int) -> Point:
        """Send that a message will not come."""
        return self._add(_Parcel(peer, tag, _NOTHING, self._timeline.next(), True, time.perf_counter()))

    def settle(self) -> None:
        """Wait for all messages, without raising their errors."""
        while True:
            with self._lock:
                points = [parcel.point for parcel in self._parcels]
            if not points:
                return
            for point in points:
                try:
                    point.wait()
                except MotetError:
                    continue

    def profile(self, on: bool) -> list[Event]:
        """The messages since profiling was switched on; `on` switches it."""
        with self._lock:
            found, self._events = self._events or [], [] if on else None
        return found

    def close(self) -> None:
        self._closed = True
        self._work.set()
        self._thread.join(1.0)

    # -- progress --------------------------------------------------------------------------------

    def progress(self) -> None:
        """Begin the messages whose waits are reached, and end those that have arrived."""
        if not self._lock.acquire(blocking=False):
            return  # another thread does it
        try:
            ended = [parcel for parcel in self._parcels if self._step(parcel)]
            if ended:
                gone = set(map(id, ended))
                self._parcels = [parcel for parcel in self._parcels if id(parcel) not in gone]
        finally:
            self._lock.release()

    def _add(self, parcel: _Parcel) -> Point:
        with self._lock:
            if not self._step(parcel):
                self._parcels.append(parcel)
        self._work.set()
        return parcel.point

    def _step(self, parcel: _Parcel) -> bool:
        """Advance one message; whether it has ended."""
        try:
            if parcel.request is None:
                if not all(point.reached for point in parcel.waits):
                    return False
                self._start(parcel)
            assert parcel.request is not None
            moved = parcel.request.test()
        except MotetError as error:
            self._timeline.fail(parcel.point.value, error)
            return True
        if moved is not None:
            self._end(parcel, moved)
            return True
        if time.perf_counter() - parcel.begun > self.timeout:
            verb = "taken" if parcel.sends else "come"
            reason = f"message {parcel.tag} has not {verb} after {self.timeout:g} s"
            error = RankFailure(parcel.peer, reason, "timeout")
            self.lost = self.lost or error
            self._timeline.fail(parcel.point.value, error)
            return True
        return False

    def _start(self, parcel: _Parcel) -> None:
        parcel.begun = time.perf_counter()
        if not parcel.sends:
            parcel.request = self.transport.start_receive(parcel.peer, parcel.tag, parcel.data)
            return
        parcel.error = failed_among(parcel.waits)
        data = _NOTHING if parcel.error is not None or parcel.data is None else parcel.data
        parcel.request = self.transport.start_send(parcel.peer, parcel.tag, data)

    def _end(self, parcel: _Parcel, moved: int) -> None:
        expected = 0 if parcel.data is None else parcel.data.nbytes
        error = parcel.error
        if not parcel.sends and parcel.data is not None and moved != expected:
            reason = "it could not compute a value" if not moved else f"it sent {moved} bytes, {expected} are expected"
            error = RankFailure(parcel.peer, reason, "poison")
        if self._events is not None:
            name = f"send to rank {parcel.peer}" if parcel.sends else f"receive from rank {parcel.peer}"
            kind = "read" if parcel.sends else "write"
            self._events.append(Event(name, kind, parcel.peer, parcel.begun, time.perf_counter(), bytes=moved))
        if error is None:
            self._timeline.signal(parcel.point.value)
        else:
            self._timeline.fail(parcel.point.value, error)

    def _serve(self) -> None:
        while not self._closed:
            self._work.wait()
            self._work.clear()
            while self._parcels and not self._closed:
                self.progress()
                time.sleep(_NAP)


class CallPeers:
    """The messages of calls of one function on one rank: see `motet.runtime.plans.peers.Peers`. `sends` and `receives`
    are the peers and tags of all messages of a call; `begin` begins one."""

    def __init__(
        self, courier: Courier, sends: Sequence[tuple[int, int]], receives: Sequence[tuple[int, int]]
    ) -> None:
        self._courier = courier
        self._sends = sends
        self._receives = receives
        self._begun: set[tuple[str, int, int]] = set()

    def begin(self) -> None:
        self._begun.clear()

    def send(self, peer: int, tag: int, data: Array, waits: Sequence[Point]) -> Point:
        self._begun.add(("send", peer, tag))
        return self._courier.send(peer, tag, data, waits)

    def receive(self, peer: int, tag: int, data: Array) -> Point:
        self._begun.add(("receive", peer, tag))
        return self._courier.receive(peer, tag, data)

    def fail(self) -> None:
        for peer, tag in self._sends:
            if ("send", peer, tag) not in self._begun:
                self._begun.add(("send", peer, tag))
                self._courier.poison(peer, tag)
        for peer, tag in self._receives:
            if ("receive", peer, tag) not in self._begun:
                self._begun.add(("receive", peer, tag))
                self._courier.receive(peer, tag, None)

