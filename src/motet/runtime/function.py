"""Functions of a session: check the arguments of a call, find or create the instance for their shapes, and run it."""

from __future__ import annotations

import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

import numpy as np

import motet.runtime.tensors as tensors
from motet.artifact.dtypes import DTYPES
from motet.artifact.schema import Signature, TensorSpec
from motet.artifact.visible import visible
from motet.errors import CallError, DeviceLost
from motet.runtime.arguments import in_order, place_of, show_signature
from motet.runtime.call import Call, Make, Runnable, Tensor, refuse_closed, weakly
from motet.runtime.call_queue import InFlight, Range, ranges_of
from motet.runtime.device_array import DeviceArray, allocate_on
from motet.runtime.drivers.host.memory import Pool
from motet.runtime.drivers.host.torch_call import torch_call
from motet.runtime.foreign import Again, Callee, Enqueued, StreamCalls, calls_on, calls_with
from motet.runtime.instance import Instance, allocate
from motet.runtime.instantiate import Shape
from motet.runtime.jax_arrays import jax_results
from motet.runtime.overlaps import check_overlaps
from motet.runtime.tensors import Array
from motet.runtime.trace import Traced

_INSTANCES = 64  # combinations of extents kept ready
_REPEATED = 4  # calls with an event kept ready, such as those of a caller with two sets of buffers


class Function:
    """A compiled function. `signature` gives names, shapes and dtypes. Thread-safe.

    `recover` is called if a device was lost in a call: it returns whether the session has replaced the device, so that
    the call can be repeated.
    """

    def __init__(
        self, signature: Signature, make: Make, pool: Pool, in_flight: InFlight,
        recover: Callable[[DeviceLost], bool] | None = None,
    ) -> None:
        self._whole = signature  # including inputs that callers do not pass
        self.signature = visible(signature)
        self._make: Make | None = make
        self._pool = pool
        self._in_flight = in_flight
        self._recover = recover
        self._lock = threading.Lock()
        self._bound = weakref.WeakSet[functools.partial[Any]]()
        self._instances: OrderedDict[tuple[int, ...], Runnable] = OrderedDict()
        self._where = [place_of(signature.name, index, spec) for index, spec in enumerate(signature.inputs)]
        self.arity = len(self._where)  # arguments of the native callable, without `out`
        self._places = [spec.destination for spec in signature.results]
        self._destinations = {place for place in self._places if place is not None}
        # The native callable of repeated calls: for functions of this class, the call of exactly `arity` arguments.
        self.prepared: Callable[..., Any] | None = None
        self._on_stream: Callable[[Sequence[Any], Any], Any] | None = None  # the same for tensors on a device
        self._again: tuple[Again, ...] = ()  # for calls with an event, the latest first
        self._takes_out = not self._destinations  # the native callable: memory for each result, after the arguments
        self._takes_all = self.signature is signature  # callers pass all inputs and get all results

    @property
    def name(self) -> str:
        return self._whole.name

    @property
    def count(self) -> int:
        """The number of arguments."""
        return self.arity

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arenas kept for later calls."""
        with self._lock:
            return sum(instance.kept_bytes for instance in self._instances.values())

    def __call__(self, *arguments: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """Run the function and return its result; a tuple if there are several, None if there are none.

        Inputs are given in order, by name (`f(x, weights=w)`), or as one dict. `arguments` are numpy arrays, torch
        tensors, or other objects with DLPack or a buffer, of the shapes and dtypes of `signature`. Results are torch
        tensors, or arrays of JAX, if an argument is one, else numpy arrays. Destination arguments are written in place
        and also returned. `out` gives memory for the results: an array, or a tuple with one entry per result, None for
        a new one. With tensors on a GPU, the call is put on their library's current stream, or on `stream`, and results
        are allocated on the GPU; the call may not have ended when it returns.
        Raises CallError for unsuitable arguments, OutOfMemoryError.
        """
        if named:
            arguments = tuple(in_order(self.signature, arguments, named))
        prepared = self.prepared
        if prepared is not None and len(arguments) == len(self._where):
            if stream is None:
                if out is None:
                    return prepared(*arguments)
                if self._takes_out:
                    return prepared(*arguments, *self._given(out))
            elif self._on_stream is not None and (out is None or self._takes_out):
                return self._on_stream(arguments if out is None else (*arguments, *self._given(out)), stream)
        if arguments and type(arguments[0]) is dict:
            return self(*in_order(self.signature, arguments, {}), out=out, stream=stream)
        return self._call(arguments, out, stream)

    def bind(self, *arguments: Any, out: Any = None, stream: Any = None, **named: Any) -> Callable[[], Any]:
        """A call with these arguments, for programs that repeat it: `step = f.bind(x, out=y)`, then `step()`.

        Arguments are checked here, and each call reads and writes their current content; without `out`, it returns new
        results. For numpy arrays on the host a call takes some 50 ns beyond its kernels. The bound call keeps the
        arguments, the code and the memory of intermediate tensors until the session is closed, and raises CallError
        from then on. Raises CallError.
        """
        if named or (arguments and type(arguments[0]) is dict):
            arguments = tuple(in_order(self.signature, arguments, named))
        arrays = [*arguments, *(() if out is None else self._given(out))]
        if stream is None and self._takes_all and all(type(array) is np.ndarray for array in arrays):
            call = self._prepare(arguments, out)
            self._keep_prepared(call.instance)
            if call.instance.prepared is not None and (out is None or not self._destinations):
                bound = functools.partial(call.instance.prepared, *arrays)
                self._bound.add(bound)
                return bound
        return functools.partial(self, *arguments, out=out, stream=stream)

    def submit(self, *arguments: Any, out: Any = None, stream: Any = None, **named: Any) -> Future[Any]:
        """Run the function on a thread of the session; returns immediately.

        Up to `in_flight` calls of a session (see `load`) run concurrently, started in the order of submission; a call
        that writes memory that an earlier one reads or writes, or reads memory that it writes (`out`, destinations),
        waits for it. The arguments must not change until the future is done. Errors are set on the future; it can be
        cancelled until the call starts. For tensors on a GPU, the stream is the current one now, and the future is done
        when the work is on it. Raises CallError if the session is closed.
        """
        if named or (arguments and type(arguments[0]) is dict):
            arguments = tuple(in_order(self.signature, arguments, named))
        if stream is None and (calls := calls_with(arguments)) is not None:
            stream = calls.current_stream(arguments)
        call = functools.partial(self, *arguments, out=out, stream=stream)
        return self._in_flight.submit(call, lambda: self._reads(arguments), self._written(arguments, out))

    def enqueue(self, *arguments: Any, out: Any = None, stream: Any = None, wait: Sequence[Any] = ()) -> Enqueued:
        """Put the function on a caller's stream or command queue, after the events `wait`; returns immediately, with
        the result and an event that ends the call.

        `stream` is by default that of the arguments' library. `wait` are events of the same API: CUDA's of PyTorch or
        CuPy, OpenCL's of pyopencl, those of earlier calls, or handles. Arguments and `out` must not change or be freed
        until the event. Raises CallError for unsuitable arguments, OutOfMemoryError.
        """
        self._check_count(arguments)
        given = self._given(out)
        for again in self._again:
            if (made := again(arguments, given, stream, wait)) is not None:
                return made
        calls = calls_with(arguments) if stream is None else calls_on(stream, arguments, self.name)
        if calls is None:
            raise CallError(f"{self.name}: no argument is in a device's memory; expected stream=, the stream or the "
                            "command queue of the call")  # fmt: skip
        if len(self._where) != len(self.signature.inputs) and not calls.enqueues_state:
            raise CallError(f"{self.name}: it has state; expected a call without an event")
        made, again = calls.enqueue(self._callee(), arguments, given, stream, wait)
        with self._lock:
            if again is not None and self._make is not None:
                self._again = (again, *self._again[: _REPEATED - 1])
        return made

    def profile(self, *arguments: Any, out: Any = None) -> list[tuple[str, float]]:
        """Run the function command by command; returns each kernel's name and seconds."""
        return self._timed(arguments, out)[1]

    def trace(self, *arguments: Any, out: Any = None) -> tuple[Any, Sequence[Traced]]:
        """Run the function; returns its results and the events of all devices (for `trace.chrome_trace`)."""
        call = self._prepare(self._resident(arguments), out)
        events = call.instance.run_traced(call.arrays())
        return call.value(), events

    def __reduce__(self) -> NoReturn:
        """Raises TypeError: a function holds memory of its process."""
        raise TypeError(f"{self.name}: a function of a session cannot be pickled or copied; send the artifact's path, "
                        "and call motet.load there")

    def forget(self) -> None:
        """Discard all instances; they are created again when needed."""
        with self._lock:
            self.prepared = self._on_stream = None
            self._again = ()
            self._instances.clear()

    def close(self) -> None:
        with self._lock:
            self.prepared = self._on_stream = self._make = None
            self._again = ()
            self._instances.clear()
            bound: Any
            for bound in self._bound:  # this costs calls nothing
                bound.__setstate__((refuse_closed, (self.name,), {}, {}))

    def __repr__(self) -> str:
        return f"Function({show_signature(self.signature)})"

    # -- a call ----------------------------------------------------------------------------------

    def _timed(self, arguments: Sequence[Any], out: Any) -> tuple[Any, list[tuple[str, float]]]:
        """The result of a call, and each kernel's name and seconds."""
        call = self._prepare(self._resident(arguments), out)
        timed = call.instance.run_timed(call.arrays())
        return call.value(), timed

    def _reads(self, arguments: Sequence[Any]) -> Sequence[Range]:
        """The memory that a call reads."""
        return ranges_of(arguments)

    def _written(self, arguments: Sequence[Any], out: Any) -> Sequence[Range]:
        """The caller's memory that a call writes."""
        if out is None and not self._destinations:
            return ()
        given = out if isinstance(out, (tuple, list)) else (out,)
        return ranges_of([*given, *(value for i, value in enumerate(arguments) if i in self._destinations)])

    def _call(self, arguments: Sequence[Any], out: Any, stream: Any = None) -> Any:
        calls = calls_with(arguments) if stream is None else calls_on(stream, arguments, self.name)
        if calls is not None:
            return self._call_on_stream(calls, arguments, out, stream)
        lost: set[str] = set()
        while True:
            try:
                call = self._prepare(arguments, out)
                call.instance.run(call.arrays())
                break
            except DeviceLost as error:
                # A device is lost once. If it is lost again, a tensor of the caller was on it.
                if error.device in lost or self._recover is None or not self._recover(error):
                    raise
                lost.add(error.device)
        if call.again and all(type(argument) is np.ndarray for argument in arguments):
            self._keep_prepared(call.instance)
        elif call.again and type(call.instance) is Instance and not self._destinations:
            self._keep_prepared_for_torch(call.instance, arguments)
        return call.value()

    def _call_on_stream(self, calls: StreamCalls, arguments: Sequence[Any], out: Any, stream: Any) -> Any:
        self._check_count(arguments)
        value, shorter = calls.call(self._callee(), arguments, self._given(out), stream)
        if shorter is not None:
            with self._lock:
                if self._make is not None:
                    self.prepared, self._on_stream = shorter.short, shorter.on_stream
        return value

    def _callee(self) -> Callee:
        fallback = weakly(weakref.WeakMethod(self._call_unprepared_on))
        return Callee(self._whole, self._where, self._instance, fallback)

    def _resident(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """The arguments, with those on a device as tensors of the session."""
        calls = calls_with(arguments)
        if calls is None:
            return arguments
        self._check_count(arguments)
        return calls.resident(self._callee(), arguments)

    def _call_unprepared(self, *arguments: Any) -> Any:
        return self._call_unprepared_on(arguments, None)

    def _call_unprepared_on(self, arguments: Sequence[Any], stream: Any) -> Any:
        """Handle calls that the prepared callable does not: the arguments, followed by the destinations if given."""
        count = len(self._where)
        given = arguments[:count]
        if given and type(given[0]) is dict:
            given = in_order(self.signature, given, {})
        return self._call(given, arguments[count:] or None, stream)

    def _prepare(self, arguments: Sequence[Any], out: Any) -> Call:
        specs = self._whole.inputs
        self._check_count(arguments)
        strided: list[tuple[Array, Array]] = []
        inputs: list[Tensor] = []
        for index, (value, spec, where) in enumerate(zip(arguments, specs, self._where, strict=True)):
            written = index in self._destinations
            if written and spec.strided and type(value) is not DeviceArray:
                view, array = tensors.adopt_destination(value, spec, where)
                strided += [(view, array)] if view is not array else []
                inputs.append(array)
            else:
                inputs.append(self._adopt(value, spec, where, writable=written))
        instance, again = self._instance(inputs)
        for array, shape, where in zip(inputs, instance.inputs, self._where, strict=True):
            if array.shape != shape.extents:
                tensors.check_shape(array, shape.extents, where)
        results, returned = self._results(arguments, inputs, instance, out)
        check_overlaps(self.name, self._places, self._given(out), _as_given(inputs, strided),
                       _as_given(results, strided), _overlap)
        call = Call(instance, again, inputs, results, returned)
        call.strided = strided
        call.for_jax = jax_results(arguments, self._whole.results, self._given(out), returned)
        return call

    def _check_count(self, arguments: Sequence[Any]) -> None:
        if len(arguments) != len(self._where):
            together = len(arguments) == 1 and isinstance(arguments[0], (list, tuple))
            hint = "; give them one by one, f(*arrays), or as a dict by name" if together else ""
            raise CallError(
                f"{self.name}: {len(arguments)} arguments given, {len(self._where)} expected: "
                f"{show_signature(self.signature)}{hint}"
            )

    def _adopt(self, value: Any, spec: TensorSpec, where: str, *, writable: bool) -> Tensor:
        if type(value) is not DeviceArray:
            return tensors.adopt(value, spec, where, writable=writable)
        view = value.view()
        if view is not None:
            return tensors.adopt(view, spec, where, writable=writable)
        if value.dtype != DTYPES[spec.dtype]:
            raise CallError(f"{where}: {value!r} given, {spec.dtype} expected")
        return value

    def _instance(self, inputs: Sequence[Tensor]) -> tuple[Runnable, bool]:
        """The instance for the extents of `inputs`, and whether it existed."""
        key = tuple(
            self._extent(inputs[symbol.input], symbol.input, symbol.axis) for symbol in self._whole.symbols
        )
        with self._lock:
            if self._make is None:
                refuse_closed(self.name)
            instance = self._instances.get(key)
            if instance is not None:
                self._instances.move_to_end(key)
                return instance, True
            symbols = {symbol.name: value for symbol, value in zip(self._whole.symbols, key, strict=True)}
            instance = self._instances[key] = self._make(symbols)
            if len(self._instances) > _INSTANCES:
                self._instances.popitem(last=False)
        return instance, False

    def _keep_prepared(self, instance: Runnable) -> None:
        """From the third call with the same extents on, try their native callable first.

        It is created after a call, and takes over the arena of that call, which would otherwise be kept in addition for
        calls with other kinds of arguments.
        """
        with self._lock:
            if self._make is None:
                return
            if instance.prepared is None:
                instance.prepared = instance.prepare(weakly(weakref.WeakMethod(self._call_unprepared)))
            self.prepared, self._on_stream = instance.prepared, None

    def _keep_prepared_for_torch(self, instance: Instance, arguments: Sequence[Any]) -> None:
        torch = tensors.torch_of(arguments)
        if torch is None or not all(type(argument) is torch.Tensor for argument in arguments):
            return
        with self._lock:
            if self._make is None:
                return
            if instance.prepared_for_torch is None:
                fallback = weakly(weakref.WeakMethod(self._call_unprepared))
                instance.prepared_for_torch = torch_call(torch, instance, fallback)
            if instance.prepared_for_torch is not None:
                self.prepared, self._on_stream = instance.prepared_for_torch, None

    def _extent(self, array: Tensor, index: int, axis: int) -> int:
        shape = self._whole.inputs[index].shape
        if array.ndim != len(shape):
            given, expected = tensors.show_shape(array.shape), tensors.show_shape(shape)
            raise CallError(f"{self._where[index]}: shape {given} given, {expected} expected")
        return array.shape[axis]

    def _results(
        self, arguments: Sequence[Any], inputs: Sequence[Tensor], instance: Runnable, out: Any
    ) -> tuple[list[Tensor], list[Any]]:
        """The arrays to which results are written, and the values returned for them."""
        given = self._given(out)
        torch = tensors.torch_of(arguments)
        results: list[Tensor] = []
        returned: list[Any] = []
        for index, (spec, shape) in enumerate(zip(self._whole.results, instance.results, strict=True)):
            where = (
                f'{self.name}: result {index} ("{spec.name}")'
                if spec.name
                else f"{self.name}: result {index}"
            )
            if spec.destination is not None:
                if given[index] is not None and given[index] is not arguments[spec.destination]:
                    raise CallError(
                        f"{where}: is written to argument {spec.destination}; out must be that or None"
                    )
                array, value = inputs[spec.destination], arguments[spec.destination]
            elif given[index] is not None:
                value = given[index]
                array = self._adopt(value, spec, where, writable=True)
                tensors.check_shape(array, shape.extents, where)
            elif spec.state is not None:
                home = instance.home(index)
                array = value = self._allocate(shape) if home is None else allocate_on(home, shape.extents, shape.dtype)
            else:
                array = made = self._allocate(shape)
                value = array if torch is None else tensors.to_torch(made, torch)
            results.append(array)
            returned.append(value)
        return results, returned

    def _given(self, out: Any) -> Sequence[Any]:
        count = len(self._whole.results)
        if out is None:
            return (None,) * count
        if not isinstance(out, (tuple, list)):
            out = (out,)
        if len(out) != count:
            raise CallError(f"{self.name}: out: {len(out)} given, {count} expected, one for each result")
        return out

    def _allocate(self, shape: Shape) -> Array:
        return allocate(shape, self._pool)


def _as_given(arrays: Sequence[Tensor], strided: Sequence[tuple[Array, Array]]) -> list[Tensor]:
    """`arrays`, with contiguous copies replaced by the caller's arrays."""
    views = {id(array): view for view, array in strided}
    return [views.get(id(array), array) for array in arrays]


def _overlap(a: Tensor, b: Tensor) -> bool:
    if isinstance(a, DeviceArray) or isinstance(b, DeviceArray):
        return isinstance(a, DeviceArray) and isinstance(b, DeviceArray) and a.buffer is b.buffer
    return tensors.overlap(a, b)
