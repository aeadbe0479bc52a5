"""What the driver gave that has to be given back: by the device, and not at the moment when its owner is collected."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable

from motet.runtime.devices.cuda.api import CudaApi, Handle

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
