"""What the driver gave that has to be given back: by the device, and not at the moment when its owner is collected."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from motet.runtime.devices.cuda.api import CudaApi, CudaError, Handle

Destroy = Callable[[], None]


class Resources:
    """Things of the driver that belong to one object, which keeps this alive."""

    def __init__(self, garbage: deque[list[Destroy]]) -> None:
        self._garbage = garbage
        self._destroy: list[Destroy] = []

    def add(self, destroy: Destroy) -> None:
        """`destroy` must not refer to the owner."""
        self._destroy.append(destroy)

    def take(self) -> list[Destroy]:
        """Everything, in the order in which it has to go."""
        taken, self._destroy = self._destroy[::-1], []
        return taken

    def __del__(self) -> None:
        if self._destroy:
            self._garbage.append(self.take())


class Lifetimes:
    """The resources of one device. What nobody owns any more goes when `collect` is called, with the device's context
    current, and the rest with `close`."""

    def __init__(self) -> None:
        self._garbage: deque[list[Destroy]] = deque()
        self._alive: weakref.WeakSet[Resources] = weakref.WeakSet()

    def new(self) -> Resources:
        resources = Resources(self._garbage)
        self._alive.add(resources)
        return resources

    def collect(self) -> None:
        while self._garbage:
            for destroy in self._garbage.popleft():
                destroy()

    def close(self) -> None:
        self.collect()
        for resources in list(self._alive):
            for destroy in resources.take():
                destroy()


class Current:
    """`with current:` makes a context the thread's own, and the one before again in the end."""

    def __init__(self, api: CudaApi, context: Handle) -> None:
        self._api = api
        self.context = context

    def __enter__(self) -> None:
        self._api.push(self.context)

    def __exit__(self, *_: object) -> None:
        self._api.pop()


@dataclass(frozen=True)
class Lane:
    """A stream, and the events for it."""

    stream: Handle
    events: list[Handle]


class Closable(Protocol):
    def close(self) -> None: ...


class Destroyable(Protocol):
    def destroy(self) -> None: ...


class Remains:
    """All that a device has of the driver. It goes when the device is closed, or collected without that."""

    def __init__(
        self, current: Current, api: CudaApi, ordinal: int, lifetimes: Lifetimes, staging: Closable, pool: Destroyable,
        lanes: list[Lane], products: Closable,
    ) -> None:
        self._current = current
        self._api = api
        self._ordinal = ordinal
        self._lifetimes = lifetimes
        self._staging = staging
        self._pool = pool
        self._lanes = lanes
        self._products = products
        self._process = os.getpid()
        self._is_released = False

    def release(self) -> None:
        """Once, and only in the process that has it. Of a context that is lost, the driver takes nothing back."""
        if self._is_released or os.getpid() != self._process:
            return
        self._is_released = True
        steps = (
            self._wait, self._staging.close, self._lifetimes.close, self._products.close, self._destroy_lanes,
            self._pool.destroy,
        )
        for step in steps:
            with suppress(CudaError), self._current:
                step()
        with suppress(CudaError):
            self._api.release(self._ordinal)

    def _wait(self) -> None:
        self._api.context_synchronize()  # streams of others' may still use memory of the device

    def _destroy_lanes(self) -> None:
        for lane in self._lanes:
            for event in lane.events:
                self._api.event_destroy(event)
            self._api.stream_destroy(lane.stream)
