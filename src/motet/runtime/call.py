"""One call of a function: the interface of instances, the adopted arguments, and the results."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from motet.errors import CallError
from motet.runtime.device import Device
from motet.runtime.device_array import DeviceArray
from motet.runtime.instantiate import Shape
from motet.runtime.jax_arrays import to_jax
from motet.runtime.tensors import Array
from motet.runtime.trace import CallEvents

Tensor = Array | DeviceArray


class Runnable(Protocol):
    """A function for one combination of extents: on the host only (`Instance`), or over devices (`PlacedInstance`).
    `prepared` is the result of `prepare`, once it was called."""

    inputs: list[Shape]
    results: list[Shape]
    prepared: Callable[..., Any] | None
    resident: bool  # whether it accepts tensors on devices (`DeviceArray`)

    def run(self, arrays: Sequence[Any]) -> None:
        """Run once on the inputs, then the results, in this order; returns when the results are computed."""
        ...

    def run_timed(self, arrays: Sequence[Any]) -> list[tuple[str, float]]:
        """Like `run`; returns the seconds of each command."""
        ...

    def run_traced(self, arrays: Sequence[Any]) -> CallEvents:
        """Like `run`; returns the events of all devices."""
        ...

    @property
    def kept_bytes(self) -> int: ...

    def prepare(self, fallback: Callable[..., Any]) -> Callable[..., Any] | None: ...

    def home(self, result: int) -> Device | None:
        """The device on which a result stays that is not returned to a caller; None for host memory."""
        ...


# Creates the instance for values of the symbols.
Make = Callable[[Mapping[str, int]], Runnable]


class Call:
    """The arguments of one call, checked and adopted, and its return value. `again` means that an instance for these
    extents existed before."""

    def __init__(
        self, instance: Runnable, again: bool, inputs: list[Tensor], results: list[Tensor], returned: list[Any]
    ) -> None:
        self.instance = instance
        self.again = again
        self.inputs = inputs
        self.results = results
        self.returned = returned
        self.strided: list[tuple[Array, Array]] = []  # the caller's array, and the contiguous one
        self.for_jax: list[int] = []  # results that become arrays of JAX, which cannot change, after the call
        self._late: list[tuple[DeviceArray, Array]] = []

    def arrays(self) -> list[Tensor]:
        """The inputs, then the results; tensors on devices as the instance accepts them."""
        if self.instance.resident:
            return [*self.inputs, *self.results]
        copies = {id(t): t.numpy() for t in (*self.inputs, *self.results) if isinstance(t, DeviceArray)}
        self._late = [(t, copies[id(t)]) for t in self.results if isinstance(t, DeviceArray)]
        return [copies.get(id(tensor), tensor) for tensor in (*self.inputs, *self.results)]

    def value(self) -> Any:
        for tensor, array in self._late:
            tensor.write(array)
        for view, array in self.strided:
            np.copyto(view, array)
        return value_of(self.returned, self.for_jax)


def value_of(returned: list[Any], for_jax: Sequence[int]) -> Any:
    """What a call with these results returns, of which those of `for_jax` become arrays of JAX."""
    for index in for_jax:
        returned[index] = to_jax(returned[index], sys.modules["jax"])
    if len(returned) == 1:
        return returned[0]
    return tuple(returned) if returned else None


def refuse_closed(name: str) -> NoReturn:
    """Raises CallError: a call of function `name` after its session was closed."""
    raise CallError(f"{name}: the session is closed")


def weakly(method: weakref.WeakMethod[Callable[..., Any]]) -> Callable[..., Any]:
    """Call a method without keeping its object alive: the garbage collector does not traverse native callables."""

    def call(*arguments: Any) -> Any:
        bound = method()
        if bound is None:
            raise CallError("the session is closed")
        return bound(*arguments)

    return call
