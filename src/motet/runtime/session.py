"""Sessions: artifacts that are loaded, bound to this machine, and callable.

artifact → its devices are bound to the machine's → code is loaded, parameters are mapped or copied
         → for each combination of dynamic extents, an instance (`instance.py`), kept for later calls
         → for each call: arguments are adopted and checked, results allocated; one native call
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

import motet.cpu_features as cpu_features
from motet.argument_kinds import check_kind, count_of, path_of, refuse_kind
from motet.artifact.device_flags import bindings_of
from motet.artifact.reader import Artifact
from motet.artifact.schema import Signature, Variant
from motet.artifact.states import INITIAL_STATE, has_state, initial_states
from motet.artifact.visible import hidden_functions
from motet.errors import CallError, DeviceLost, OptionError
from motet.runtime.binding import BoundDevices
from motet.runtime.call import Runnable, refuse_closed
from motet.runtime.call_queue import MOST, InFlight
from motet.runtime.device import Device, find_device
from motet.runtime.device_array import DeviceArray, allocate_on
from motet.runtime.drivers.host.driver import HostDevice
from motet.runtime.drivers.host.memory import Pool
from motet.runtime.drivers.host.threads import HostThreads, thread_count
from motet.runtime.foreign import Enqueued
from motet.runtime.function import Function
from motet.runtime.host_program import OnHost
from motet.runtime.named import call_by_name
from motet.runtime.notebook import session_html
from motet.runtime.selection import HOST, DeviceChoice, choose
from motet.runtime.stateful import StatefulFunction
from motet.runtime.states import States
from motet.runtime.valued import ValuedFunction

DEFAULT_FUNCTION = "main"
_PROGRAMS = (".mlir", ".onnx", ".xml", ".stablehlo", ".pt2", ".pb")
_log = logging.getLogger("motet")


@dataclass(frozen=True)
class SessionMemory:
    """Bytes held by a session: of constant tensors, in arenas, and in live results."""

    parameters: int
    arena: int
    results: int


def load(
    source: str | Path | bytes | bytearray | memoryview | Artifact,
    *,
    devices: str | Mapping[str, str] | None = None,
    threads: int | None = None,
    in_flight: int = MOST,
    copy: bool = False,
) -> Session:
    """Load an artifact, given as a file, its content, or an open artifact, as a session.

    `devices` binds the program's devices to this machine's (`motet.devices()` lists them), by name or all to one;
    devices not named are bound to the first present alternative. `threads` is the maximum number of threads of one call
    on the host; by default MOTET_THREADS, else the number of CPUs that the process may use, limited by its CPU quota.
    `in_flight` is the maximum number of concurrent submitted calls; each has separate memory for intermediate tensors
    and results. `copy` reads a file into memory instead of mapping it: a mapped one that is cut short while in use ends
    the process. Raises ArtifactError, DeviceError, OptionError, OutOfMemoryError.
    """
    check_kind("copy", copy, int, "True or False")
    source = _opened(source, copy)
    bindings = bindings_of(devices)
    threads = thread_count() if threads is None else count_of("threads", threads)
    session = Session(source, threads, bindings, count_of("in_flight", in_flight))
    _log.info("loaded %s: code for %s, %d threads", source.name,
              ", ".join(variant.target for variant in session.variants), session.threads)
    return session


def _opened(source: str | Path | bytes | bytearray | memoryview | Artifact, copy: bool) -> Artifact:
    """The artifact. Raises OptionError for what is none, with what to do."""
    if isinstance(source, Artifact):
        return source
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Artifact.from_bytes(source)
    path = path_of("source", source, "the path of an artifact, its bytes, or what motet.compile returns")
    if "\n" in (text := str(path)):
        raise OptionError("source: it is the text of a program, not an artifact; expected motet.load(motet.compile("
                          "text)), or the path of an artifact")
    if path.suffix in _PROGRAMS and path.is_file():
        raise OptionError(f"source: {text} is a program, not an artifact; expected motet.load(motet.compile("
                          f"{text!r})), or the path of an artifact")
    return Artifact.open(path, copy=copy)


class Session:
    """Callable functions: `session(x)`, `session.main(x)`, `session["main"](x)`.

    Calling the session itself calls its only function, or `main`. Thread-safe. `close`, or leaving the `with` block,
    ends it; results stay valid.
    """

    def __init__(
        self, artifact: Artifact, threads: int, bindings: Mapping[str, str] | None = None, in_flight: int = MOST
    ) -> None:
        self.artifact = artifact
        self.threads = threads
        self._pool = Pool()
        self._in_flight = InFlight(in_flight)
        self._bound: BoundDevices | None = None
        self._host: OnHost | None = None
        on_host = any(variant.family == HOST for variant in artifact.manifest.variants)
        if artifact.manifest.devices or not on_host or set((bindings or {}).items()) - {("", HOST)}:
            self._bound = BoundDevices(artifact, bindings or {}, self._pool, threads)
        else:
            self._variant = choose(
                artifact.manifest.variants, cpu_features.machine(), cpu_features.host_features(), artifact.name
            )
            schedules = list(self._variant.schedules.values())
            self._host = OnHost(artifact, self._variant, schedules, self._pool, HostThreads(threads))
        self._functions = self._make_functions(self._recover if self._bound is not None else None)
        self._unique = next(iter(self._functions.values())) if len(self._functions) == 1 else None
        self._quick = self._unique if type(self._unique) is Function else None
        # Attributes of the instance are found faster; the session's own names take precedence.
        self.__dict__.update(
            {name: function for name, function in self._functions.items() if not hasattr(type(self), name)}
        )

    def _make_functions(self, recover: Callable[[DeviceLost], bool] | None) -> dict[str, Function]:
        """The functions visible to callers, which refer to the others."""
        signatures = self.artifact.functions
        makes = {name: functools.partial(self._instance, signature) for name, signature in signatures.items()}
        pool, in_flight = self._pool, self._in_flight
        hidden = self._hidden = {
            name: Function(signatures[name], makes[name], pool, in_flight, recover)
            for name in hidden_functions(signatures.values())
        }
        self._states = States(initial_states(signatures), hidden.get(INITIAL_STATE))
        found: dict[str, Function] = {}
        for name, signature in signatures.items():
            if name in hidden:
                continue
            if has_state(signature):
                found[name] = StatefulFunction(
                    signature, makes[name], pool, in_flight, recover, hidden, self._states
                )
            elif any(spec.value is not None for spec in signature.inputs):
                found[name] = ValuedFunction(signature, makes[name], pool, in_flight, recover, hidden)
            else:
                found[name] = Function(signature, makes[name], pool, in_flight, recover)
        return found

    # -- calling ---------------------------------------------------------------------------------

    def __call__(self, *arguments: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """Call the default function; see `Function.__call__`."""
        quick = self._quick
        if quick is not None and out is None and stream is None and not named:
            prepared = quick.prepared  # keywords, and a call in between, cost more than the checks of a call
            if prepared is not None and len(arguments) == quick.arity:
                return prepared(*arguments)
            return quick(*arguments)
        return self._default(*arguments, out=out, stream=stream, **named)

    def bind(self, *arguments: Any, out: Any = None, stream: Any = None, **named: Any) -> Callable[[], Any]:
        """Bind arguments to the default function; see `Function.bind`."""
        return self._default.bind(*arguments, out=out, stream=stream, **named)

    def submit(self, *arguments: Any, out: Any = None, stream: Any = None, **named: Any) -> Future[Any]:
        """Call the default function on a thread of the session; see `Function.submit`."""
        return self._default.submit(*arguments, out=out, stream=stream, **named)

    async def acall(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """Call the default function on a thread of the session, and wait in the running event loop; see
        `Function.submit`. A cancelled task cancels a call that has not started."""
        import asyncio  # slow to import, and no other call needs it

        return await asyncio.wrap_future(self.submit(*arguments, out=out, **named))

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Call the default function with its inputs by name; returns the results `names`, or all for None, in this
        order. Raises CallError for unknown names and missing inputs."""
        return call_by_name(self._default, names, feeds)

    def enqueue(self, *arguments: Any, out: Any = None, stream: Any = None, wait: Sequence[Any] = ()) -> Enqueued:
        """Put a call of the default function on a caller's stream or command queue; see `Function.enqueue`."""
        return self._default.enqueue(*arguments, out=out, stream=stream, wait=wait)

    def profile(self, *arguments: Any) -> list[tuple[str, float]]:
        """Call the default function and return the seconds of each kernel; see `Function.profile`."""
        return self._default.profile(*arguments)

    def __reduce__(self) -> NoReturn:
        """Raises TypeError: a session holds memory and threads of its process."""
        raise TypeError(f"a session of {self.artifact.name} cannot be pickled or copied; send the artifact's path, or "
                        "its bytes (bytes(session.artifact.data)), and call motet.load there")

    def __getitem__(self, name: str) -> Function:
        function = self._functions.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
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
        if self._unique is not None:
            return self._unique
        if DEFAULT_FUNCTION in self._functions:
            return self._functions[DEFAULT_FUNCTION]
        raise CallError(f"{self.artifact.name}: which function is meant? there are: {self._names}")

    def put(self, array: Any, device: str = "") -> DeviceArray:
        """A copy of `array` on `device`, a device of the program (may be omitted if there is only one), for any number
        of calls. Raises CallError for an unknown device, OutOfMemoryError."""
        try:
            given = np.ascontiguousarray(array)
        except (TypeError, ValueError):  # a list of rows of several lengths, a tensor that numpy cannot read
            refuse_kind("array", array, "a numpy array, or what numpy makes one of", CallError)
        there = self.empty(given.shape, given.dtype, device)
        there.write(given)
        return there

    def wrap(self, tensor: Any, device: str = "") -> DeviceArray:
        """A tensor of another library on `device`, without a copy, as an argument or, as `out`, memory for a result.
        Raises CallError if it is elsewhere or not contiguous, and for a device that shares no memory with other
        libraries."""
        home = self._home(device)
        wrap = getattr(home, "wrap", None)
        if wrap is None:
            raise CallError(f"{home.info.uri}: it takes no tensors of other libraries in place; put a copy there")
        return wrap(tensor)

    def empty(self, shape: Sequence[int], dtype: Any, device: str = "") -> DeviceArray:
        """Uninitialised memory on `device` for a tensor that a call writes; pass it as `out`."""
        return allocate_on(self._home(device), shape, dtype)

    # -- properties ------------------------------------------------------------------------------

    @property
    def signature(self) -> Signature:
        """The default function's names, shapes and dtypes; each function has its own `signature`."""
        return self._default.signature

    @property
    def functions(self) -> Mapping[str, Function]:
        return self._functions

    @property
    def variants(self) -> Sequence[Variant]:
        """The variants in use: one for each target of the session's devices."""
        return [self._variant] if self._bound is None else self._bound.variants

    @property
    def devices(self) -> Sequence[DeviceChoice]:
        """The device bound to each device of the program; empty for a program without devices, which runs on the
        host."""
        return () if self._bound is None else self._bound.choices

    @property
    def notes(self) -> Sequence[str]:
        """Notes on the devices: those that share one, and lost ones with their replacements."""
        return () if self._bound is None else tuple(self._bound.notes)

    @property
    def state(self) -> States:
        """The program's mutable globals after the calls of this session; `state.reset()` restores their initial
        values."""
        return self._states

    @property
    def memory(self) -> SessionMemory:
        """The memory that the session holds now."""
        arena = sum(function.arena_bytes for function in (*self._functions.values(), *self._hidden.values()))
        in_use = self._pool.statistics.in_use
        code = self._bound if self._bound is not None else self._host
        parameters, copied = (code.parameter_bytes, code.copied_bytes) if code is not None else (0, 0)
        return SessionMemory(parameters, arena, max(0, in_use - arena - copied))

    def _repr_html_(self) -> str:
        """What a notebook shows: devices, functions, memory."""
        bound = [(f"@{choice.device.name}" if choice.device.name else "-", choice.info.uri, choice.info.name,
                  choice.variant.target) for choice in self.devices]
        host = [("-", "host", f"{self.threads} threads", variant.target) for variant in self.variants]
        signatures = [function.signature for function in self._functions.values()]
        return session_html(self.artifact.name, bound or host, signatures, asdict(self.memory))

    def __repr__(self) -> str:
        targets = ", ".join(variant.target for variant in self.variants)
        return f"Session({self.artifact.name!r}, {targets}, functions: {self._names})"

    # -- lifetime --------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for submitted calls and free code, parameters and arenas. Later calls are errors."""
        self._close(interrupted=False)

    def _close(self, interrupted: bool) -> None:
        """Like `close`; after the user's interrupt, end running work without waiting."""
        self._in_flight.close(wait=not interrupted)
        self._states.close()
        for function in (*self._functions.values(), *self._hidden.values()):
            function.close()
        self._host = None
        if self._bound is not None:
            self._bound.close(interrupted)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(interrupted=kind is not None and issubclass(kind, KeyboardInterrupt))

    # -- internals -------------------------------------------------------------------------------

    def _instance(self, signature: Signature, symbols: Mapping[str, int]) -> Runnable:
        if self._bound is not None:
            return self._bound.instance(signature, symbols)
        if self._host is None:
            refuse_closed(signature.name)
        return self._host.instance(signature, self._variant.schedules[signature.name], symbols)

    def _home(self, name: str) -> Device:
        """The open device bound to the program's device `name`."""
        check_kind("device", name, str, "the name of a device of the program", CallError)
        if self._bound is not None:
            return self._bound.device(name)
        if name not in ("", HOST):
            raise CallError(f"{self.artifact.name}: no device @{name}; the program has one, without a name")
        return HostDevice(find_device(HOST), HostThreads(1), self._pool)

    def _recover(self, lost: DeviceLost) -> bool:
        """Whether a lost device was replaced; all functions are then instantiated again."""
        if self._bound is None or not self._bound.recover(lost):
            return False
        for function in (*self._functions.values(), *self._hidden.values()):
            function.forget()
        return True
