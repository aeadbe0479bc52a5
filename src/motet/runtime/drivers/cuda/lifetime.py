"""The current context of a GPU, and the resources that are released with its device."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
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


@dataclass(eq=False)
class Remains:
    """All of a device's resources of the driver. They are released when the device is closed or collected."""

    current: Current
    api: CudaApi
    ordinal: int
    lifetimes: ResourceLifetimes
    staging: Closable
    pool: Destroyable
    lanes: list[StreamHandles]
    products: Closable
    marks: Closable
    _process: int = field(default_factory=os.getpid)
    _is_released: bool = False

    def release(self) -> None:
        """Release once, and only in the process that owns them. The driver reclaims nothing of a lost context."""
        if self._is_released or os.getpid() != self._process:
            return
        self._is_released = True
        steps = (
            self._wait, self.staging.close, self.lifetimes.close, self.products.close, self.marks.close,
            self._destroy_lanes, self.pool.destroy,
        )
        for step in steps:
            with suppress(CudaError), self.current:
                step()
        with suppress(CudaError):
            self.api.release(self.ordinal)

    def _wait(self) -> None:
        self.api.context_synchronize()  # streams of others' may still use memory of the device

    def _destroy_lanes(self) -> None:
        for lane in self.lanes:
            lane.destroy(self.api)
