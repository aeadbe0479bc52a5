"""Functions with value-dependent extents: a call computes these values first, then runs with the resulting extents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motet.artifact.schema import ExtentValue, Signature
from motet.errors import CallError
from motet.runtime.arguments import in_order, show_signature
from motet.runtime.call import Make
from motet.runtime.call_queue import InFlight
from motet.runtime.device_array import DeviceArray
from motet.runtime.drivers.host.memory import Pool
from motet.runtime.foreign import Enqueued
from motet.runtime.function import Function
from motet.runtime.trace import Traced

_MOST = 1 << 48  # upper bound of extents


class ValuedFunction(Function):
    """A function with inputs that stand for values, which `functions` compute, by name."""

    def __init__(
        self, signature: Signature, make: Make, pool: Pool, in_flight: InFlight, recover: Any,
        functions: Mapping[str, Function],
    ) -> None:
        super().__init__(signature, make, pool, in_flight, recover)
        self._functions = functions
        self._taken = [spec for spec in signature.inputs if spec.value is None]
        self._added = [spec.value for spec in signature.inputs if spec.value is not None]

    def __call__(self, *arguments: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """See `Function.__call__`."""
        if named or (arguments and type(arguments[0]) is dict):
            arguments = tuple(in_order(self.signature, arguments, named))
        return super().__call__(*self._completed(arguments), out=out, stream=stream)

    def enqueue(self, *arguments: Any, out: Any = None, stream: Any = None, wait: Sequence[Any] = ()) -> Enqueued:
        """See `Function.enqueue`. Raises CallError for extents that follow from values: a call waits for them."""
        if self._added:
            raise CallError(f"{self.name}: it has extents that follow from values; expected a call without an event")
        return super().enqueue(*arguments, out=out, stream=stream, wait=wait)

    def _timed(self, arguments: Sequence[Any], out: Any) -> tuple[Any, list[tuple[str, float]]]:
        """The computation of values is not timed."""
        return super()._timed(self._completed(arguments), out)

    def trace(self, *arguments: Any, out: Any = None) -> tuple[Any, Sequence[Traced]]:
        """See `Function.trace`; the computation of values is not included."""
        return super().trace(*self._completed(arguments), out=out)

    def _completed(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """`arguments`, and the inputs that stand for values."""
        if len(arguments) != len(self._taken):
            raise CallError(
                f"{self.name}: {len(arguments)} arguments given, {len(self._taken)} expected: "
                f"{show_signature(self.signature)}"
            )
        complete = list(arguments)
        computed: dict[str, tuple[Any, Sequence[Any]]] = {}
        for value in self._added:
            if value.function not in computed:
                function = self._functions[value.function]
                computed[value.function] = self._compute(function, complete)
            numbers, results = computed[value.function]
            complete.append(
                results[value.result] if value.result else self._stand_in(value, int(numbers[value.index]))
            )
        return complete

    def _compute(self, function: Function, arguments: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """The values computed by `function`, in host memory, and all its results. Its errors are attributed to this
        function."""
        try:
            result = function(*arguments[: function.count])
        except CallError as error:
            raise CallError(str(error).replace(f"{function.name}: ", f"{self.name}: ", 1)) from None
        results: Sequence[Any] = result if isinstance(result, tuple | list) else [result]
        return _on_host(results[0]), results

    def _stand_in(self, value: ExtentValue, number: int) -> Any:
        """A tensor without elements whose first extent is `number`."""
        if not 0 <= number <= _MOST:
            bound = "at least 0" if number < 0 else "at most 2^48"
            raise CallError(f"{self.name}: {value.operator}: an extent or a place is {number}; expected {bound}")
        return np.empty((number, 0), np.int8)


def _on_host(result: Any) -> Any:
    """A result as an array of numpy."""
    if isinstance(result, DeviceArray):
        return result.numpy()
    if hasattr(result, "get"):
        return result.get()  # CuPy's
    return result.cpu().numpy() if hasattr(result, "cpu") else np.asarray(result)  # PyTorch's, JAX's or numpy's
