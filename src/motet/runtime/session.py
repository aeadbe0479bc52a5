"""A session: an artifact loaded and bound to this machine; callable.

artifact → variant this processor runs → objects loaded, parameters mapped
         → per combination of dynamic extents, an Instance (`instance.py`), kept for the next call
         → per call: arguments adopted and checked, results allocated, one native call
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from motet.artifact.reader import Artifact
from motet.artifact.schema import Signature, Variant
from motet.errors import CallError, OptionError
from motet.runtime import cpu_features
from motet.runtime.devices.host.loader import load_objects
from motet.runtime.devices.host.memory import ALIGNMENT, Pool
from motet.runtime.devices.host.threads import HostThreads, thread_count
from motet.runtime.function import Function, Queue
from motet.runtime.instance import Binding, host_instances
from motet.runtime.selection import check_devices, choose

DEFAULT_FUNCTION = "main"


@dataclass(frozen=True)
class Memory:
    """Bytes that a session holds: for constant tensors, in arenas, in results still alive."""

    parameters: int
    arena: int
    results: int


def load(
    source: str | Path | bytes | bytearray | memoryview | Artifact,
    *,
    devices: str | Mapping[str, str] | None = None,
    threads: int | None = None,
) -> Session:
    """A session for an artifact: a file, its content, or one that is open.

    `devices` binds the program's devices to this machine's (`motet.devices()` lists them); without it they
    are chosen. `threads` is how many threads one call uses at most; by default MOTET_THREADS, else as many as the
    process may use of the machine (its processors, its share of them).
    Raises ArtifactError, DeviceError, OptionError, OutOfMemoryError.
    """
    if isinstance(source, (str, Path)):
        source = Artifact.open(source)
    elif not isinstance(source, Artifact):
        source = Artifact.from_bytes(source)
    check_devices(devices)
    if threads is not None and threads < 1:
        raise OptionError(f"threads: {threads} given, at least 1 expected")
    return Session(source, thread_count() if threads is None else threads)


class Session:
    """Functions ready to be called: `session(x)`, `session.main(x)`, `session["main"](x)`.

    Calling the session itself calls its only function, or `main`. Safe to use from several threads.
    `close`, or leaving the `with` block, ends it; results stay valid.
    """

    def __init__(self, artifact: Artifact, threads: int) -> None:
        self.artifact = artifact
        self.threads = threads
        self.variant = choose(
            artifact.manifest.variants, cpu_features.machine(), cpu_features.host_features(), artifact.name
        )
        self._pool = Pool()
        self._queue = Queue()
        objects = [artifact.member(name) for name in self.variant.objects]
        code = load_objects(objects, {}, self.variant.objects)
        self._parameter_bytes = self._copied_bytes = 0
        binding = Binding(code, self._load_parameters(self.variant), self._pool, HostThreads(threads))
        self._functions = {
            name: Function(
                signature, host_instances(signature, self.variant.schedules[name], binding), self._pool, self._queue
            )
            for name, signature in artifact.functions.items()
        }
        # As attributes of the object itself they are found faster; the session's own names win.
        self.__dict__.update(
            {name: function for name, function in self._functions.items() if not hasattr(type(self), name)}
        )

    # -- calling ---------------------------------------------------------------------------------

    def __call__(self, *arguments: Any, out: Any = None) -> Any:
        """Calls the default function; see `Function.__call__`."""
        return self._default(*arguments, out=out)

    def submit(self, *arguments: Any, out: Any = None) -> Future[Any]:
        """Calls the default function on a thread of the session; see `Function.submit`."""
        return self._default.submit(*arguments, out=out)

    def profile(self, *arguments: Any) -> list[tuple[str, float]]:
        """Calls the default function and says how long each kernel took; see `Function.profile`."""
        return self._default.profile(*arguments)

    def __getitem__(self, name: str) -> Function:
        function = self._functions.get(name)
        if function is None:
            raise CallError(f"{self.artifact.name}: no function {name!r}; there are: {self._names}")
        return function

    def __getattr__(self, name: str) -> Function:
        functions: dict[str, Function] = self.__dict__.get("_functions", {})
        raise AttributeError(
            f"session has no function or attribute {name!r}; functions: {', '.join(functions)}"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._functions})

    @property
    def _names(self) -> str:
        return ", ".join(self._functions) or "none"

    @functools.cached_property
    def _default(self) -> Function:
        if len(self._functions) == 1:
            return next(iter(self._functions.values()))
        if DEFAULT_FUNCTION in self._functions:
            return self._functions[DEFAULT_FUNCTION]
        raise CallError(f"{self.artifact.name}: which function is meant? there are: {self._names}")

    # -- what it is ------------------------------------------------------------------------------

    @property
    def signature(self) -> Signature:
        """The default function's names, shapes and dtypes; each function has a `signature` of its own."""
        return self._default.signature

    @property
    def functions(self) -> Mapping[str, Function]:
        return self._functions

    @property
    def memory(self) -> Memory:
        """What the session holds now."""
        arena = sum(function.arena_bytes for function in self._functions.values())
        in_use = self._pool.statistics.in_use
        return Memory(self._parameter_bytes, arena, max(0, in_use - arena - self._copied_bytes))

    def __repr__(self) -> str:
        return f"Session({self.artifact.name!r}, {self.variant.target}, functions: {self._names})"

    # -- its life --------------------------------------------------------------------------------

    def close(self) -> None:
        """Waits for what was submitted and frees code, parameters and arenas. Later calls are errors."""
        self._queue.close()
        for function in self._functions.values():
            function.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load_parameters(self, variant: Variant) -> list[np.ndarray[Any, Any] | None]:
        """The parameters that the variant's schedules use, 64-byte aligned, where mapped if possible."""
        used = {
            buffer.index
            for schedule in variant.schedules.values()
            for buffer in schedule.buffers
            if buffer.kind == "parameter"
        }
        loaded: list[np.ndarray[Any, Any] | None] = [None] * len(self.artifact.manifest.parameters)
        for index in used:
            array = self.artifact.parameter(index)
            self._parameter_bytes += array.nbytes
            if array.ctypes.data % ALIGNMENT:
                aligned = self._pool.allocate(array.nbytes).array(array.dtype, array.shape)
                aligned[...] = array
                self._copied_bytes += array.nbytes
                array = aligned
            loaded[index] = array
        return loaded
