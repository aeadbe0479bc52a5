"""The queue of a model: requests wait here for a call, and those that may be joined share one.

    future = queue.add(arrays)      # the request waits
    queue.discard(future)           # it has waited too long

A limited number of calls runs at once; while they run, requests gather. A call takes the oldest request and, if the
model's rows are independent, later ones with equal trailing extents, up to `most` rows; it waits at most `delay`
seconds after the oldest arrived for more. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.errors import CallError
from motet.runtime.tensors import Array, as_list
from motet.serving.errors import RequestError
from motet.serving.metrics import Metrics
from motet.serving.model import ServedModel

Results = list[Array]


@dataclass(eq=False)
class QueuedRequest:
    """A request in the queue. `started` when a call has taken it."""

    arrays: Sequence[Array]
    rows: int
    key: tuple[tuple[int, ...], ...]  # requests with equal keys may be joined
    arrived: float
    future: asyncio.Future[Results]
    started: bool = False


class ModelQueue:
    """The waiting requests of `model`, and its running calls, `calls` at once. `most` is 0 if requests are never
    joined."""

    def __init__(self, model: ServedModel, metrics: Metrics, *, calls: int, most: int, delay: float) -> None:
        self.model = model
        self.most = most
        self._delay = delay
        self._waiting: deque[QueuedRequest] = deque()
        self._arrived = asyncio.Event()
        self._lanes = asyncio.Semaphore(calls)
        self._running: set[asyncio.Task[None]] = set()
        self._length = metrics.queue.labels(model.name)
        self._rows = metrics.rows.labels(model.name)
        self._joined = metrics.joined.labels(model.name)

    def add(self, arrays: Sequence[Array]) -> QueuedRequest:
        """Queue a request; its future has the results, or the error."""
        loop = asyncio.get_running_loop()
        rows = arrays[0].shape[0] if self.most else 1
        key = tuple(array.shape[1:] for array in arrays) if self.most else ()
        entry = QueuedRequest(arrays, rows, key, loop.time(), loop.create_future())
        self._waiting.append(entry)
        self._length.set(len(self._waiting))
        self._arrived.set()
        return entry

    def discard(self, entry: QueuedRequest) -> None:
        """Remove a request that no call has taken."""
        if not entry.started and entry in self._waiting:
            self._waiting.remove(entry)
            self._length.set(len(self._waiting))

    async def run(self) -> None:
        """Starts calls until it is cancelled."""
        while True:
            await self._arrived.wait()
            await self._lanes.acquire()
            await self._gather()
            batch = self._take()
            if not batch:
                self._lanes.release()
                continue
            task = asyncio.create_task(self._perform(batch))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _gather(self) -> None:
        """Waits until the oldest request may be joined by no more, or has waited for `delay`."""
        if not self.most or not self._delay:
            return
        while self._waiting:
            left = self._waiting[0].arrived + self._delay - asyncio.get_running_loop().time()
            if left <= 0 or sum(entry.rows for entry in self._waiting) >= self.most:
                return
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), left)
            except TimeoutError:
                return

    def _take(self) -> list[QueuedRequest]:
        """The requests of the next call."""
        batch: list[QueuedRequest] = []
        if self._waiting:
            batch.append(self._waiting.popleft())
            if self.most and batch[0].rows:
                self._join(batch)
        for entry in batch:
            entry.started = True
        if not self._waiting:
            self._arrived.clear()
        else:
            self._arrived.set()
        self._length.set(len(self._waiting))
        return batch

    def _join(self, batch: list[QueuedRequest]) -> None:
        """Moves requests that fit from the queue to `batch`; the others keep their order."""
        rows = batch[0].rows
        left: deque[QueuedRequest] = deque()
        for entry in self._waiting:
            if entry.key == batch[0].key and entry.rows and rows + entry.rows <= self.most:
                batch.append(entry)
                rows += entry.rows
            else:
                left.append(entry)
        self._waiting = left

    async def _perform(self, batch: list[QueuedRequest]) -> None:
        try:
            await self._call(batch)
        finally:
            self._lanes.release()

    async def _call(self, batch: list[QueuedRequest]) -> None:
        """Runs one call for `batch`. If it is refused, each request is called alone, so that none fails for another."""
        joined = batch[0].arrays if len(batch) == 1 else [
            np.concatenate(parts) for parts in zip(*(entry.arrays for entry in batch), strict=True)
        ]
        try:
            results = as_list(await asyncio.wrap_future(self.model.submit(joined)))
        except CallError as error:
            if len(batch) == 1:
                _fail(batch[0], RequestError(400, str(error)))
                return
            for entry in batch:
                await self._call([entry])
            return
        except Exception as error:
            for entry in batch:
                _fail(entry, error)
            return
        self._rows.observe(sum(entry.rows for entry in batch))
        self._joined.observe(len(batch))
        _deliver(batch, results)


def _fail(entry: QueuedRequest, error: Exception) -> None:
    if not entry.future.done():
        entry.future.set_exception(error)


def _deliver(batch: Sequence[QueuedRequest], results: Results) -> None:
    """Gives each request its rows."""
    first = 0
    for entry in batch:
        own = results if len(batch) == 1 else [result[first : first + entry.rows] for result in results]
        first += entry.rows
        if not entry.future.done():
            entry.future.set_result(own)
