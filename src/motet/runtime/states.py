"""State of a session: the values of the program's mutable globals, kept between calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

import motet.runtime.tensors as tensors
from motet.artifact.schema import TensorSpec
from motet.errors import CallError
from motet.runtime.device_array import DeviceArray, allocate_on

Array = np.ndarray[Any, Any]
Tensor = Array | DeviceArray


class States(Mapping[str, Array]):
    """The program's mutable globals by name, as copies: `dict(session.state)` is a checkpoint.

    A stored tensor is never written in place. A call that changes state allocates new tensors; when it succeeds, they
    replace the old ones atomically. Calls that only read state therefore never wait. Thread-safe.
    """

    def __init__(self, specs: Mapping[str, TensorSpec], initial: Callable[[], Any] | None) -> None:
        self._specs = specs
        self._initial = initial  # returns all of them
        self._writing = threading.Lock()
        self._beginning = threading.Lock()
        self._values: Mapping[str, Tensor] | None = None

    def __getitem__(self, name: str) -> Array:
        """A copy. Raises KeyError, and errors of the computation of initial values."""
        value = self.current()[name]
        return value.numpy() if isinstance(value, DeviceArray) else value.copy()

    def __setitem__(self, name: str, array: Any) -> None:
        """Replaces a value by a copy of `array`. Raises CallError for another shape or dtype, or an unknown name."""
        spec = self._specs.get(name)
        if spec is None:
            raise CallError(f"state {name!r}: there is no such global; there are: {', '.join(self._specs) or 'none'}")
        where = f"state {name!r}"
        given = tensors.adopt(array, spec, where, writable=False)
        tensors.check_shape(given, tuple(int(extent) for extent in _extents(spec)), where)
        with self._writing:
            before = self.current()[name]
            value: Tensor = given.copy()
            if isinstance(before, DeviceArray):
                value = allocate_on(before.device, before.shape, before.dtype)
                value.write(given)
            self.replace({name: value})

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def __repr__(self) -> str:
        kinds = (f"{name}: {'x'.join([*map(str, spec.shape), spec.dtype])}" for name, spec in self._specs.items())
        return f"<state {', '.join(kinds) or 'none'}>"

    def reset(self) -> None:
        """Restores the initial values, for the next call; waits for a running call that writes state."""
        with self._writing:
            self._values = None

    # -- use by functions

    def current(self) -> Mapping[str, Tensor]:
        """A consistent snapshot of all values. They must not be written to."""
        values = self._values
        if values is not None:
            return values
        with self._beginning:
            values = self._values
            if values is None:
                made: Any = () if self._initial is None else self._initial()
                results: tuple[Tensor, ...] = made if isinstance(made, tuple) else (made,)
                values = self._values = dict(zip(self._specs, results, strict=True))
            return values

    def writing(self) -> AbstractContextManager[object]:
        """The lock held by a call that writes state, from before it reads any."""
        return self._writing

    def replace(self, values: Mapping[str, Tensor]) -> None:
        """Replaces some values; the caller holds `writing`."""
        self._values = {**self.current(), **values}

    def ranges(self, names: Sequence[str]) -> list[tuple[object, int, int]]:
        """Ranges that stand for the memory of these states, by which `InFlight` orders calls."""
        return [((id(self), name), 0, 1) for name in names]

    def close(self) -> None:
        """Frees the memory."""
        self._initial = None
        self._values = {}


def _extents(spec: TensorSpec) -> list[int]:
    return [extent for extent in spec.shape if isinstance(extent, int)]
