"""The core of an open GPU, shared by all its parts: driver, context, lock, and the effect of errors on the device."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator, Sequence

from motet.errors import DeviceError, DeviceLost, MotetError
from motet.runtime.device import DeviceInfo
from motet.runtime.drivers.common.lifetime import ResourceLifetimes
from motet.runtime.drivers.common.stream_queue import StreamQueue
from motet.runtime.drivers.common.streams import ApiError, StreamOwner
from motet.runtime.drivers.cuda.api import CudaApi, CudaError, Gpu
from motet.runtime.drivers.cuda.faults import final_error, is_final, lost_by, passing_error
from motet.runtime.drivers.cuda.lifetime import Current


class CudaCore:
    """See `motet.runtime.drivers.common.streams.StreamOwner`. `checks` waits for each command before the next one;
    `overlaps` allows a kernel to start while the previous one still runs."""

    def __init__(self, api: CudaApi, info: DeviceInfo, gpu: Gpu, ordinal: int, check: bool, overlap: bool) -> None:
        self.info = info
        self.api = api
        self.gpu = gpu
        self.ordinal = ordinal
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.lost: MotetError | None = None
        self.checks = check
        self.overlaps = overlap
        self.current = Current(api, api.retain(ordinal))
        self._closed = False
        self._closing = threading.RLock()
        self._lifetimes = ResourceLifetimes()
        self._queues: list[StreamQueue] = []

    def shares_events(self, other: StreamOwner) -> bool:
        return isinstance(other, CudaCore)

    # -- availability ----------------------------------------------------------------------------

    def check_usable(self) -> None:
        self.check_process()
        if self._closed:
            raise DeviceError(f"device {self.info.uri}: it is closed; open it again")
        if self.lost is not None:
            raise self.lost

    def check_process(self) -> None:
        """Raises DeviceError in the child of a fork, where the driver's state is not valid."""
        if os.getpid() != self.process:
            raise DeviceError(
                f"device {self.info.uri}: opened before a fork, in the parent process; start processes that use it by "
                "spawn"
            )

    @contextlib.contextmanager
    def working(self) -> Generator[None, None, None]:
        """Hold the lock, with the context current. Converts errors of the driver to exceptions."""
        with self.lock:
            try:
                with self.current:
                    yield
            except CudaError as error:
                raise self.failure(error) from error

    # -- errors ----------------------------------------------------------------------------------

    def lose(self, error: ApiError, kernels: Sequence[str] = (), *, alone: bool = False) -> bool:
        """End all work if an error is permanent; returns whether it is. `kernels` may have been running in addition to
        those in flight; if `alone`, only they."""
        if not is_final(error):
            return False
        with self.lock:
            if self.lost is None:
                at_work = [] if alone else [name for queue in self._queues for name in queue.kernels()]
                final = final_error(self.info.uri, error, [*kernels, *at_work])
                self.lost = final if isinstance(final, DeviceLost) else lost_by(final)
                for queue in self._queues:
                    queue.fail(final)
        return True

    def passing(self, error: ApiError) -> MotetError:
        return passing_error(self.info.uri, error)

    def failure(self, error: CudaError, size: int = 0) -> MotetError:
        """The exception for a failed call. `size` is the requested memory, if any."""
        if self.lose(error) and self.lost is not None:
            return self.lost
        return passing_error(self.info.uri, error, size)
