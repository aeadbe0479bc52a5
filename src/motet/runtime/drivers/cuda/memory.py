"""Memory of a GPU: a pool of the driver, from which a `BlockPool` allocates blocks, and the buffers in them."""

from __future__ import annotations

from typing import Protocol

from motet.errors import MotetError
from motet.runtime.drivers.common.block_pool import BlockPool
from motet.runtime.drivers.common.streams import Handle
from motet.runtime.drivers.cuda.api import CudaApi
from motet.runtime.drivers.cuda.lifetime import Current


class BufferOwner(Protocol):
    """The device of a buffer, as other devices see it."""

    @property
    def current(self) -> Current: ...

    @property
    def lost(self) -> MotetError | None: ...

    def finish(self, stream: int) -> None:
        """Block until all work on a caller's stream has ended."""
        ...


class DriverPool:
    """See `motet.runtime.drivers.common.streams.BlockSource`. `stream` is used for allocation only."""

    def __init__(self, api: CudaApi, ordinal: int) -> None:
        self._api = api
        self.stream: Handle = api.stream_create()
        self._handle: Handle = api.pool_create(ordinal)

    def allocate(self, size: int) -> int:
        address = self._api.pool_allocate(self._handle, size, self.stream)
        self._api.stream_synchronize(self.stream)  # from here on, all streams may use it
        return address

    def free(self, address: int) -> None:
        self._api.free(address, self.stream)

    def trim(self) -> None:
        self._api.stream_synchronize(self.stream)
        self._api.pool_trim(self._handle)

    def let_in(self, ordinal: int) -> None:
        """Allow another GPU to access all current and future memory of the pool. Raises CudaError."""
        self._api.pool_let_in(self._handle, ordinal)

    def close(self) -> None:
        self._api.pool_destroy(self._handle)
        self._api.stream_destroy(self.stream)


class CudaBuffer:
    """Memory of one device: a block of its pool, or `owner`'s memory. `stream` is a caller's stream whose work may
    still use it."""

    __slots__ = ("__weakref__", "_pool", "address", "bytes", "device", "owner", "stream")

    def __init__(
        self, device: BufferOwner, address: int, size: int, pool: BlockPool | None = None, owner: object = None,
        stream: int | None = None,
    ) -> None:
        self.device = device
        self.address = address
        self.bytes = size
        self.owner = owner
        self.stream = stream
        self._pool = pool

    def __del__(self) -> None:
        pool = getattr(self, "_pool", None)
        if pool is not None:
            pool.give_back(self.address, self.bytes, self.stream)
