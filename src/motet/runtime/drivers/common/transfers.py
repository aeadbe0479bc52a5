"""Transfers between host and device memory: by the device directly, through a slot, or through a ring.

Each method returns the work for a queue to issue, and whether it takes the host's time, so that a thread should run it.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.runtime.drivers.common.staging import SMALL, Bytes, Part, StagingMemory, StagingRing
from motet.runtime.drivers.common.stream_queue import Finish, Issue
from motet.runtime.drivers.common.streams import Handle, TransferApi


class Transfers:
    """Transfers of one device; each of its queues has a ring."""

    def __init__(self, api: TransferApi, staging: StagingMemory) -> None:
        self._api = api
        self._staging = staging
        self._rings: dict[int, StagingRing] = {}

    def upload(self, address: int, data: Bytes, queue: int) -> tuple[Issue, bool]:
        """Copy `data` to `address`."""
        if self._is_for_ring(data):
            return self.gather(address, data.size, [(0, data)], queue)

        def issue(stream: Handle) -> Finish | None:
            if data.size > SMALL:
                self._api.upload(address, data.ctypes.data, data.size, stream)
            if data.size > SMALL or not data.size:
                return None
            slot = self._staging.take(data.size)
            slot.array[: data.size] = data
            self._api.upload(address, slot.address, data.size, stream)
            return lambda: self._staging.give(slot)

        return issue, False

    def gather(self, address: int, size: int, parts: Sequence[Part], queue: int) -> tuple[Issue, bool]:
        """Copy `parts`, in order, to their offsets in `size` bytes at `address`; bytes between them are undefined."""

        def issue(stream: Handle) -> None:
            self._ring(queue).upload(address, size, parts, stream)

        return issue, True

    def download(self, data: Bytes, address: int, queue: int) -> tuple[Issue, bool]:
        """Copy memory at `address` to `data`."""
        by_ring = self._is_for_ring(data)

        def issue(stream: Handle) -> Finish | None:
            if by_ring:
                self._ring(queue).download(data, address, stream)
                return None
            if data.size > SMALL:
                self._api.download(data.ctypes.data, address, data.size, stream)
            if data.size > SMALL or not data.size:
                return None
            slot = self._staging.take(data.size)
            self._api.download(slot.address, address, data.size, stream)

            def finish() -> None:
                data[...] = slot.array[: data.size]
                self._staging.give(slot)

            return finish

        return issue, by_ring

    def _is_for_ring(self, data: Bytes) -> bool:
        """Whether an array is large and not pinned. Pinned arrays are transferred by the device directly."""
        return data.size > SMALL and not self._api.is_pinned(data.ctypes.data)

    def _ring(self, queue: int) -> StagingRing:
        if queue not in self._rings:
            self._rings[queue] = self._staging.ring()
        return self._rings[queue]
