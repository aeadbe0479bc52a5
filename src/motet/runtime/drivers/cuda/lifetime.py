"""The current context of a GPU, and the resources that are released with its device."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol

from motet.runtime.drivers.common.lifetime import ResourceLifetimes
from motet.runtime.drivers.common.stream_queue import StreamHandles
from motet.runtime.drivers.common.streams import Handle
from motet.runtime.drivers.cuda.api import CudaApi, CudaError


class Current:
    """`with current:` makes a context the thread's current one, and restores the previous one."""

    def __init__(self, api: CudaApi, context: Handle) -> None:
        self._api = api
        self.context = context

    def __enter__(self) -> None:
        self._api.push(self.context)

    def __exit__(self, *_: object) -> None:
        self._api.pop()


class Closable(Protocol):
    def close(self) -> None: ...


class Destroyable(Protocol):
    def destroy(self) -> None: ...


class Remains:
    """All of a device's resources of the driver. They are released when the device is closed or collected."""

    def __init__(
        self, current: Current, api: CudaApi, ordinal: int, lifetimes: ResourceLifetimes, staging: Closable,
        pool: Destroyable, lanes: list[StreamHandles], products: Closable,
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
        """Release once, and only in the process that owns them. The driver reclaims nothing of a lost context."""
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
        self._api.context_synchronize()  # callers' streams may still use memory of the device

    def _destroy_lanes(self) -> None:
        for lane in self._lanes:
            lane.destroy(self._api)
