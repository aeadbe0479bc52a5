"""Streams and events of callers, and the event of a call."""

from __future__ import annotations

import contextlib
import numbers
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

from motet.errors import CallError
from motet.runtime.drivers.common.streams import Handle
from motet.runtime.drivers.cuda.api import CudaError
from motet.runtime.drivers.cuda.caller_streams import CallerStreams

_ATTRIBUTES = ("cuda_event", "ptr", "handle")  # of PyTorch's, CuPy's and cuda.core's events


class CudaCallEvent:
    """The end of a call on a caller's stream. The event is destroyed with this object."""

    def __init__(self, device: CallerStreams, event: Handle, raise_failed: Callable[[], None]) -> None:
        self.device = device
        self.event = event
        self._raise_failed = raise_failed
        weakref.finalize(self, _destroy, device, event).atexit = False

    @property
    def handle(self) -> int:
        """The CUevent."""
        return int(self.event)

    @property
    def done(self) -> bool:
        with self.device.working():
            return self.device.api.event_query(self.event)

    def wait(self) -> None:
        """Block until the call has ended. Raises DeviceError, KernelFault, CallError for a failed check."""
        try:
            with self.device.current:
                self.device.api.event_synchronize(self.event)
        except CudaError as error:
            raise self.device.failure(error) from error
        self._raise_failed()


def event_handles(events: Sequence[Any], name: str) -> list[Handle]:
    """The handles of a call's wait list. Raises CallError for anything but an event."""
    return [_event_handle(event, f"{name}: wait {number}") for number, event in enumerate(events)]


def _event_handle(event: Any, where: str) -> Handle:
    if type(event) is CudaCallEvent:
        return event.event
    if isinstance(event, numbers.Integral):
        return int(event)
    for attribute in _ATTRIBUTES:
        found = getattr(event, attribute, None)
        if found is not None:
            with contextlib.suppress(TypeError, ValueError):
                return int(found)
    raise CallError(f"{where}: {type(event).__name__} given; expected an event of CUDA: PyTorch's, CuPy's, that of a "
                    "call, or a handle")  # fmt: skip


def _destroy(device: CallerStreams, event: Handle) -> None:
    with contextlib.suppress(CudaError), device.current:
        device.api.event_destroy(event)


def stream_handle(stream: Any) -> int | None:
    """The handle of a stream: an int, PyTorch's or CuPy's stream, or an object with `__cuda_stream__`."""
    if isinstance(stream, numbers.Integral):
        return int(stream)
    for attribute in ("cuda_stream", "ptr"):
        if isinstance(found := getattr(stream, attribute, None), numbers.Integral):
            return int(found)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        return None
    pair = protocol() if callable(protocol) else protocol
    return int(cast(Sequence[int], pair)[1])
