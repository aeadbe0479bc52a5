"""Tensors of other libraries in a device's memory, and callers' streams: which driver takes them.

A driver that takes them says so (`StreamDriver`): the DLPack types of its devices' memory, and the calls. It is found
by the type that a tensor states, or by what it can read as a stream. Source: https://dmlc.github.io/dlpack.
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

# Any call: the arguments, out behind them where it was given, and a stream or None.
Fallback = Callable[[Sequence[Any], Any], Any]


@dataclass(frozen=True)
class Callee:
    """A function, as such calls need it: `where` names its arguments in errors, `find` gives the instance for the
    extents of arguments, and whether it was there before; `fallback` is any call of it."""

    signature: Signature
    where: Sequence[str]
    find: Callable[[Sequence[Any]], tuple[Any, bool]]
    fallback: Fallback


class ShortCall(Protocol):
    """A shorter way for calls like one that was made. `short(*arguments)` is a call on the current stream,
    `on_stream(arguments, stream)` one on another; `out`, of `tensor_type`, may follow the arguments."""

    @property
    def short(self) -> Callable[..., Any]: ...

    @property
    def on_stream(self) -> Callable[[Sequence[Any], Any], Any]: ...

    @property
    def tensor_type(self) -> type[Any]: ...


class StreamCalls(Protocol):
    """What a driver does for calls with tensors in its devices' memory. A module will do."""

    def call(
        self, callee: Callee, arguments: Sequence[Any], out: Sequence[Any], stream: Any
    ) -> tuple[Any, ShortCall | None]:
        """Calls a function behind what is on `stream`, or, for None, on the current stream of the tensors' library.
        Returns its result, which may not be there yet, and a shorter way for calls like this one, if there is one.
        `out` has an entry for each result, None where it is to be new. Raises CallError."""
        ...

    def current_stream(self, arguments: Sequence[Any]) -> Any:
        """The stream that a call with these arguments in this thread is put on."""
        ...

    def resident(self, callee: Callee, arguments: Sequence[Any]) -> Sequence[Any]:
        """The arguments, those in a device's memory as `DeviceArray`s, ready behind what is on their stream. Raises
        CallError."""
        ...

    def stream_handle(self, stream: Any) -> Any | None:
        """The handle of a caller's stream or queue, an object of a library or a handle; None for anything else."""
        ...


class StreamDriver(Driver, Protocol):
    """A driver whose devices take other libraries' tensors where they are."""

    dlpack_types: Sequence[int]

    def stream_calls(self) -> StreamCalls: ...


def stream_drivers() -> Iterator[StreamDriver]:
    """Those of this machine, Motet's first. One that cannot be loaded is left out."""
    for name in driver_names():
        try:
            driver = load_driver(name)
        except DeviceError:
            continue
        if hasattr(driver, "dlpack_types"):
            yield cast(StreamDriver, driver)


@functools.cache
def calls_of(kind: int) -> StreamCalls | None:
    """The calls for tensors of a DLPack device type; None if no driver takes them."""
    return next((driver.stream_calls() for driver in stream_drivers() if kind in driver.dlpack_types), None)


def dlpack_type(family: str) -> int | None:
    """The DLPack type of a family's memory; None if its driver gives out no tensors."""
    return next(iter(getattr(load_driver(family), "dlpack_types", ())), None)


def calls_with(arguments: Sequence[Any]) -> StreamCalls | None:
    """The calls for arguments of which one is another library's tensor in a device's memory; None if none is.
    (A call with `DeviceArray`s alone, and without a stream, has ended when it returns, and needs none.)"""
    for value in arguments:
        if type(value) is np.ndarray or type(value) is DeviceArray:
            continue
        kind = device_type(value)
        if kind is not None and (found := calls_of(kind)) is not None:
            return found
    return None


def calls_on(stream: Any, arguments: Sequence[Any], name: str) -> StreamCalls:
    """The calls on a caller's stream: by the arguments, else by which driver reads `stream`. Raises CallError."""
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
        "__cuda_stream__, or a handle"
    )
