"""Returns resources to a vendor's library from the device, rather than whenever their owner is collected."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable

Destroy = Callable[[], None]


class OwnedResources:
    """Resources of the library that belong to one object, which keeps this one alive."""

    def __init__(self, garbage: deque[list[Destroy]]) -> None:
        self._garbage = garbage
        self._destroy: list[Destroy] = []

    def add(self, destroy: Destroy) -> None:
        """Register a destructor, which must not refer to the owner."""
        self._destroy.append(destroy)

    def take(self) -> list[Destroy]:
        """All destructors, in the order in which they must run."""
        taken, self._destroy = self._destroy[::-1], []
        return taken

    def __del__(self) -> None:
        if self._destroy:
            self._garbage.append(self.take())


class ResourceLifetimes:
    """The resources of one device. `collect`, called with the device's context current, destroys those without an
    owner; `close` destroys the rest."""

    def __init__(self) -> None:
        self._garbage: deque[list[Destroy]] = deque()
        self._alive: weakref.WeakSet[OwnedResources] = weakref.WeakSet()

    def new(self) -> OwnedResources:
        resources = OwnedResources(self._garbage)
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
