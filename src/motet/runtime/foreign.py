"""Finds the driver that accepts a tensor of another library in device memory, or a caller's stream.

A driver that accepts them implements `StreamDriver`: the DLPack types of its devices' memory, and the calls. It is
found by the type that a tensor states, or by whether it can read an object as a stream. Source:
https://dmlc.github.io/dlpack.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from motet.artifact.schema import Signature
from motet.errors import CallError, DeviceError
from motet.runtime.device import Driver, driver_names, load_driver
from motet.runtime.device_array import DeviceArray
from motet.runtime.dlpack import device_type

# Any call: the arguments, followed by `out`, an entry for each result, if it is given, and a stream or None.
Fallback = Callable[[Sequence[Any], Any], Any]


@dataclass(frozen=True)
class Callee:
    """The function being called: `where` names its arguments in errors, `find` returns the instance for the arguments'
    extents, and whether it existed before; `fallback` is the general call."""

    signature: Signature
    where: Sequence[str]
    find: Callable[[Sequence[Any]], tuple[Any, bool]]
    fallback: Fallback


class ShortCall(Protocol):
    """A faster way for calls like an earlier one. `short(*arguments)` is a call on the current stream,
    `on_stream(arguments, stream)` one on another; `out`, an entry for each result, may follow the arguments if no
    result is a destination."""

    @property
    def short(self) -> Callable[..., Any]: ...

    @property
    def on_stream(self) -> Callable[[Sequence[Any], Any], Any]: ...


class CallEvent(Protocol):
    """The end of a call, as an event of the driver's API. It exists as long as this object."""

    @property
    def handle(self) -> int:
        """The event's handle in the driver's API."""
        ...

    @property
    def done(self) -> bool: ...

    def wait(self) -> None:
        """Block until the call has ended. Raises DeviceError if it failed, CallError for a failed check."""
        ...


@dataclass(frozen=True)
class Enqueued:
    """A call on a caller's stream or queue: `result` is complete when `event` is."""

    result: Any
    event: CallEvent

    def wait(self) -> Any:
        """Block until the call has ended, and return its result. Raises DeviceError, CallError."""
        self.event.wait()
        return self.result


class Again(Protocol):
    """A faster way for a call like an earlier one."""

    def __call__(
        self, arguments: Sequence[Any], out: Sequence[Any], stream: Any, wait: Sequence[Any]
    ) -> Enqueued | None:
        """None if the call is not like it. Raises CallError."""
        ...


class StreamCalls(Protocol):
    """A driver's calls with tensors in its devices' memory: an object or a module. `enqueues_state` tells whether
    `enqueue` takes functions with state."""

    enqueues_state: bool

    def call(
        self, callee: Callee, arguments: Sequence[Any], out: Sequence[Any], stream: Any
    ) -> tuple[Any, ShortCall | None]:
        """Call a function after the work on `stream` or, for None, on the current stream of the tensors' library.
        Returns its result, which may not be computed yet, and a faster way for calls like this one, if there is one.
        `out` has an entry for each result, None for a new tensor. Raises CallError."""
        ...

    def enqueue(
        self, callee: Callee, arguments: Sequence[Any], out: Sequence[Any], stream: Any, wait: Sequence[Any]
    ) -> tuple[Enqueued, Again | None]:
        """Like `call`, also after the events `wait`, and with an event that ends it. Arrays of the host must not change
        until then. The second result may enqueue calls like this one faster. Raises CallError."""
        ...

    def current_stream(self, arguments: Sequence[Any]) -> Any:
        """The stream on which a call with these arguments runs in this thread."""
        ...

    def resident(self, callee: Callee, arguments: Sequence[Any]) -> Sequence[Any]:
        """The arguments, with those in device memory as `DeviceArray`s, ordered after their stream's work. Raises
        CallError."""
        ...

    def stream_handle(self, stream: Any) -> Any | None:
        """The handle of a caller's stream or queue, given as an object of a library or as a handle; None for anything
        else."""
        ...


class StreamDriver(Driver, Protocol):
    """A driver whose devices use other libraries' tensors in place."""

    dlpack_types: Sequence[int]

    def stream_calls(self) -> StreamCalls: ...


def stream_drivers() -> Iterator[StreamDriver]:
    """The drivers of this machine that accept such tensors, Motet's first. Drivers that cannot be loaded are
    omitted."""
    for name in driver_names():
        try:
            driver = load_driver(name)
        except DeviceError:
            continue
        if hasattr(driver, "dlpack_types"):
            yield cast(StreamDriver, driver)


@functools.cache
def calls_of(kind: int) -> StreamCalls | None:
    """The calls for tensors of a DLPack device type; None if no driver accepts them."""
    return next((driver.stream_calls() for driver in stream_drivers() if kind in driver.dlpack_types), None)


def dlpack_type(family: str) -> int | None:
    """The DLPack type of a family's memory; None if its driver exports no tensors."""
    return next(iter(getattr(load_driver(family), "dlpack_types", ())), None)


def calls_with(arguments: Sequence[Any]) -> StreamCalls | None:
    """The calls for arguments with another library's tensor in device memory; None if there is none. (A call with
    `DeviceArray`s only, and without a stream, has ended when it returns, and needs no driver.)"""
    for value in arguments:
        if type(value) is np.ndarray or type(value) is DeviceArray:
            continue
        kind = device_type(value)
        if kind is not None and (found := calls_of(kind)) is not None:
            return found
    return None


def calls_on(stream: Any, arguments: Sequence[Any], name: str) -> StreamCalls:
    """The calls on a caller's stream: by the arguments, else by the driver that can read `stream`. Raises CallError."""
    if (found := calls_with(arguments)) is not None:
        return found
    for value in arguments:
        if type(value) is DeviceArray and hasattr(driver := load_driver(value.device.info.family), "dlpack_types"):
            return cast(StreamDriver, driver).stream_calls()
    for driver in stream_drivers():
        calls = driver.stream_calls()
        if calls.stream_handle(stream) is not None:
            return calls
    raise CallError(
        f"{name}: stream: {type(stream).__name__} given; expected a stream of PyTorch's or CuPy's, an object with "
        "__cuda_stream__, a command queue of pyopencl's, or a handle"
    )
