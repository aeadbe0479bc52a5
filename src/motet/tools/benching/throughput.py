"""Throughput: calls that are in flight at the same time, submitted as soon as an earlier one ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from motet.measuring.latency import Latency, Sample, latency_of

if TYPE_CHECKING:
    from motet.runtime.session import Session
    from motet.specs import Array

_LONGEST = 600.0  # seconds to wait for a call


@dataclass(frozen=True)
class Throughput:
    """`calls` calls in `seconds`, up to `in_flight` at once; `latency` is from the submission of a call to its end.
    `items` are the rows of a batch, of all calls, if there is one."""

    in_flight: int
    calls: int
    seconds: float
    calls_per_second: float
    items_per_second: float | None
    latency: Latency


def measure_throughput(
    session: Session, name: str, arrays: Sequence[Array], in_flight: int, seconds: float, batch: int | None,
    progress: Callable[[str, float], None],
) -> Throughput:
    """Calls function `name` for `seconds`. Raises the error of a call that fails."""
    function = session[name]
    written = {spec.destination for spec in function.signature.results}
    # Calls that write the same memory would wait for each other.
    slots = [[array.copy() if index in written else array for index, array in enumerate(arrays)]
             for _ in range(in_flight)]
    for own in slots[:2]:
        function(*own)
    free = threading.Semaphore(in_flight)
    idle, lock = list(range(in_flight)), threading.Lock()
    taken: list[float] = []
    failures: list[BaseException] = []

    def ended(future: Future[object], slot: int, submitted: float) -> None:
        error = future.exception()
        with lock:
            idle.append(slot)
            if error is None:
                taken.append(time.perf_counter() - submitted)
            else:
                failures.append(error)
        free.release()

    begin = moment = time.perf_counter()
    while not failures and (moment - begin < seconds or not taken):
        if not free.acquire(timeout=_LONGEST):
            break
        with lock:
            slot = idle.pop()
        moment = time.perf_counter()
        future = function.submit(*slots[slot])
        future.add_done_callback(lambda done, slot=slot, moment=moment: ended(done, slot, moment))
        progress(f"{len(taken)} calls", min(1.0, (moment - begin) / seconds) if seconds else 1.0)
    for _ in range(in_flight):
        free.acquire(timeout=_LONGEST)
    elapsed = time.perf_counter() - begin
    if failures:
        raise failures[0]
    rate = len(taken) / elapsed
    latency = latency_of([Sample(len(taken), np.asarray(taken))], 1)
    return Throughput(in_flight, len(taken), elapsed, rate, None if batch is None else rate * batch, latency)
