"""Functions that read or write state: a call passes the session's tensors and stores the new ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from motet.artifact.schema import Signature
from motet.errors import CallError, DeviceLost
from motet.runtime.arguments import in_order, show_signature
from motet.runtime.call import Make
from motet.runtime.call_queue import InFlight, Range
from motet.runtime.device_array import DeviceArray
from motet.runtime.drivers.host.memory import Pool
from motet.runtime.foreign import Enqueued
from motet.runtime.function import Function
from motet.runtime.states import States, Tensor
from motet.runtime.trace import Traced
from motet.runtime.valued import ValuedFunction


class StatefulFunction(ValuedFunction):
    """A function some of whose inputs and results are state. Calls that write state are serialised; a call that fails
    leaves state unchanged."""

    def __init__(
        self, signature: Signature, make: Make, pool: Pool, in_flight: InFlight, recover: Any,
        functions: Mapping[str, Function], states: States,
    ) -> None:
        super().__init__(signature, make, pool, in_flight, recover, functions)
        self._states = states
        self._read = [spec.state for spec in signature.inputs if spec.state is not None]
        self._kept = {spec.state: i for i, spec in enumerate(signature.results) if spec.state is not None}
        self._returned = [i for i, spec in enumerate(signature.results) if spec.state is None]

    @property
    def count(self) -> int:
        """The number of arguments that callers pass."""
        return len(self.signature.inputs)

    def __call__(self, *arguments: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """See `Function.__call__`."""
        if named or (arguments and type(arguments[0]) is dict):
            arguments = tuple(in_order(self.signature, arguments, named))
        call = super().__call__
        return self._advance(arguments, lambda complete: call(*complete, out=self._out(out), stream=stream))

    def enqueue(self, *arguments: Any, out: Any = None, stream: Any = None, wait: Sequence[Any] = ()) -> Enqueued:
        """See `Function.enqueue`; the call has ended when this returns, so that its state is the next call's."""
        made: list[Enqueued] = []
        enqueue = super().enqueue

        def call(complete: Sequence[Any]) -> Any:
            made.append(enqueue(*complete, out=self._out(out), stream=stream, wait=wait))
            return made[0].wait()

        result = self._advance(arguments, call)
        return Enqueued(result, made[0].event)

    def trace(self, *arguments: Any, out: Any = None) -> tuple[Any, Sequence[Traced]]:
        """See `Function.trace`; state changes as in any call."""
        events: Sequence[Traced] = []
        trace = super().trace

        def call(complete: Sequence[Any]) -> Any:
            nonlocal events
            returned, events = trace(*complete, out=self._out(out))
            return returned

        return self._advance(arguments, call), events

    def _timed(self, arguments: Sequence[Any], out: Any) -> tuple[Any, list[tuple[str, float]]]:
        times: list[tuple[str, float]] = []
        timed = super()._timed

        def call(complete: Sequence[Any]) -> Any:
            returned, noted = timed(complete, self._out(out))
            times.extend(noted)
            return returned

        return self._advance(arguments, call), times

    def _reads(self, arguments: Sequence[Any]) -> Sequence[Range]:
        return [*super()._reads(arguments), *self._states.ranges(self._read)]

    def _written(self, arguments: Sequence[Any], out: Any) -> Sequence[Range]:
        return [*super()._written(arguments, out), *self._states.ranges([*self._kept])]

    # -- internals

    def _advance(self, arguments: Sequence[Any], call: Callable[[Sequence[Any]], Any]) -> Any:
        """Run `call` with `arguments` and the state, store the new state, and return the caller's results."""
        if len(arguments) != len(self.signature.inputs):
            raise CallError(
                f"{self.name}: {len(arguments)} arguments given, {len(self.signature.inputs)} expected: "
                f"{show_signature(self.signature)}"
            )
        with self._states.writing() if self._kept else contextlib.nullcontext():
            current = self._states.current() if self._read else {}
            try:
                returned = call([*arguments, *(current[name] for name in self._read)])
            except DeviceLost as lost:
                raise self._with_what_is_gone(lost, current) from None
            results = returned if isinstance(returned, tuple) else (returned,)
            if self._kept:
                self._states.replace({name: results[index] for name, index in self._kept.items()})
        mine = [results[index] for index in self._returned]
        if len(mine) == 1:
            return mine[0]
        return tuple(mine) if mine else None

    def _with_what_is_gone(self, lost: DeviceLost, current: Mapping[str, Tensor]) -> DeviceLost:
        """The error for a lost device, which lists the state that was on it."""
        gone = [
            f"@{name}" for name in self._read
            if isinstance(value := current[name], DeviceArray)
            and lost.device in (value.device.info.uri, value.device.info.uri.partition("?")[0])
        ]
        if not gone:
            return lost
        return DeviceLost(
            lost.device, f"{lost.reason}; the state {', '.join(gone)} was on it: state.reset() begins anew"
        )

    def _out(self, out: Any) -> Any:
        """`out`, extended by None for each result that is state."""
        if out is None:
            return None
        given = out if isinstance(out, (tuple, list)) else (out,)
        if len(given) != len(self._returned):
            raise CallError(
                f"{self.name}: out: {len(given)} given, {len(self._returned)} expected, one for each result"
            )
        complete: list[Any] = [None] * len(self._whole.results)
        for index, value in zip(self._returned, given, strict=True):
            complete[index] = value
        return tuple(complete)
