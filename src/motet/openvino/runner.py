"""A compiled part in this process: the shapes of its results, and calls on OpenVINO's tensors in place.

Thread-safe: the requests and streams of a compiled model share one session. A call with the buffers of an earlier one
is a bound call of Motet (`Function.bind`), which takes neither checks nor allocations.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from motet.artifact.expressions import evaluate, symbols_of
from motet.artifact.reader import Artifact
from motet.runtime.instantiate import check_constraints
from motet.runtime.session import Session, load

_BOUND = 64  # combinations of buffers whose calls are kept ready

Array = np.ndarray[Any, Any]
Extents = tuple[int, ...]


class Runner:
    """Calls the artifact's function `main`. `threads` is the maximum number of threads of a call; None: Motet's
    default."""

    def __init__(self, artifact: Artifact, threads: int | None = None) -> None:
        self.artifact = artifact
        self.threads = threads
        self._affinity = _affinity()
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._bound: dict[tuple[Any, ...], Any] = {}
        self._shapes: dict[tuple[Extents, ...], tuple[Extents, ...]] = {}
        (self.signature,) = artifact.callable_functions
        self.arguments = range(len(self.signature.inputs))

    # -- shapes ------------------------------------------------------------------------------------

    def result_extents(self, inputs: Sequence[Sequence[int | None]]) -> list[list[int | None]]:
        """The extents of the results for those of the inputs. None stands for an extent that is not known, or that
        follows from values. Raises CallError for extents that the function does not accept."""
        signature = self.signature
        symbols: dict[str, int] = {}
        for symbol in signature.symbols:
            extent = inputs[symbol.input][symbol.axis]
            if extent is not None:
                symbols[symbol.name] = extent
        if len(symbols) == len(signature.symbols):
            check_constraints(signature, symbols, signature.name)
        return [
            [evaluate(extent, symbols) if symbols_of(extent) <= symbols.keys() else None for extent in spec.shape]
            for spec in signature.results
        ]

    def result_shapes(self, inputs: tuple[Extents, ...]) -> tuple[Extents, ...] | None:
        """The shapes of a call's results; None if they follow from values. Raises CallError."""
        known = self._shapes.get(inputs)
        if known is None:
            found = self.result_extents(inputs)
            if any(None in shape for shape in found):
                return None
            known = tuple(tuple(extent for extent in shape if extent is not None) for shape in found)
            if len(self._shapes) >= _BOUND:
                self._shapes.clear()
            self._shapes[inputs] = known
        return known

    # -- calls -------------------------------------------------------------------------------------

    def run(self, inputs: Sequence[Array], results: Sequence[Array]) -> None:
        """Compute `results` from `inputs`; C-contiguous arrays of the signature's shapes and dtypes. Raises
        MotetError."""
        key = tuple([(array.__array_interface__["data"][0], array.shape) for array in (*inputs, *results)])
        call = self._bound.get(key)
        if call is not None:
            call()
            return
        with self._on_all_processors():  # the first call starts Motet's threads
            self._bind(key, inputs, results)()

    def run_unshaped(self, inputs: Sequence[Array]) -> list[Array]:
        """The results of a function whose results' extents follow from values."""
        with self._on_all_processors():
            returned = self._loaded()(*inputs)
        return list(returned) if isinstance(returned, tuple) else [returned]

    def prepare(self) -> None:
        """Load the code and the constants, which the first call would do."""
        with self._on_all_processors():
            self._loaded()

    def _bind(self, key: tuple[Any, ...], inputs: Sequence[Array], results: Sequence[Array]) -> Any:
        # The arrays of a bound call do not keep OpenVINO's tensors, so that memory that is no more in use is freed.
        # The call is made only when OpenVINO passes these addresses again.
        views = [_view(array) for array in (*inputs, *results)]
        own, out = views[: len(inputs)], tuple(views[len(inputs) :])
        call = self._loaded().bind(*own, out=out)
        with self._lock:
            while len(self._bound) >= _BOUND:
                self._bound.pop(next(iter(self._bound)))
            self._bound[key] = call
        return call

    def _loaded(self) -> Session:
        with self._lock:
            if self._session is None:
                self._session = load(self.artifact, threads=self.threads)
            return self._session

    @contextlib.contextmanager
    def _on_all_processors(self) -> Generator[None]:
        """OpenVINO pins the threads that run operations. Threads that Motet starts there would share one processor."""
        pinned = _affinity()
        if pinned == self._affinity:
            yield
            return
        os.sched_setaffinity(0, self._affinity)
        try:
            yield
        finally:
            os.sched_setaffinity(0, pinned)


def _affinity() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _view(array: Array) -> Array:
    """The same elements, without a reference to their owner."""
    if not array.size:
        return np.empty(array.shape, array.dtype)
    memory = (ctypes.c_char * array.nbytes).from_address(array.__array_interface__["data"][0])
    return np.frombuffer(memoryview(memory), array.dtype).reshape(array.shape)
