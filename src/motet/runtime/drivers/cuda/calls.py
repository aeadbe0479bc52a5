"""Calls of functions with tensors on a GPU: of PyTorch, CuPy, or any library with DLPack or the CUDA array interface.

    y = session(x)                      # x and y on the GPU, on PyTorch's current stream
    session(x, out=y, stream=side)      # on another stream

A function whose work is all on one GPU is put on the caller's stream without waiting (`single_launch.py`). If other
devices take part, the call starts after the stream's work and has ended when it returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

import motet.runtime.dlpack as dlpack
import motet.runtime.tensors as tensors
from motet.artifact.dtypes import DTYPES, spelling
from motet.artifact.schema import Signature, TensorSpec
from motet.errors import CallError
from motet.runtime.call import value_of
from motet.runtime.device_array import DeviceArray
from motet.runtime.drivers.cuda import external, libraries
from motet.runtime.drivers.cuda.call_events import CudaCallEvent, event_handles, stream_handle
from motet.runtime.drivers.cuda.device import CudaDevice
from motet.runtime.drivers.cuda.external import DLPACK_CUDA, LEGACY_STREAM
from motet.runtime.drivers.cuda.libraries import Library
from motet.runtime.drivers.cuda.single_launch import DirectWork
from motet.runtime.drivers.cuda.torch_call import TorchCall, torch_call
from motet.runtime.foreign import Callee, Enqueued
from motet.runtime.instantiate import Shape
from motet.runtime.jax_arrays import jax_results
from motet.runtime.overlaps import Range, check_overlaps, is_shared
from motet.runtime.plan_executor import PlacedInstance
from motet.runtime.pointer import Pointer

_ALIGNMENT = 16  # bytes, the alignment that kernels rely on
enqueues_state = False
_SHARED_STREAMS = (0, 1, 2)  # handles of special streams, valid in every context


class GpuArgument(NamedTuple):
    """A contiguous tensor on GPU `ordinal`. `tensor` keeps its memory alive; `producer` is the stream that computes it,
    if known."""

    tensor: Any
    ordinal: int
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read_only: bool = False
    producer: int | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def range(self) -> Range:
        return self.address, self.address + self.bytes


@dataclass(frozen=True)
class HostArgument:
    """An argument that is not on the GPU and is copied there."""

    array: np.ndarray[Any, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim


Argument = GpuArgument | HostArgument


def is_on_gpu(value: Any) -> bool:
    """Whether an argument is on an NVIDIA GPU."""
    if type(value) is DeviceArray:
        return value.device.info.family == "cuda"
    device = getattr(value, "__dlpack_device__", None)
    if device is not None:
        try:
            return int(device()[0]) == DLPACK_CUDA
        except (TypeError, ValueError, RuntimeError, BufferError, AttributeError):
            return False
    return hasattr(value, "__cuda_array_interface__")


def call(callee: Callee, arguments: Sequence[Any], out: Sequence[Any], stream: Any) -> tuple[Any, TorchCall | None]:
    """See `motet.runtime.foreign.StreamCalls`."""
    return _StreamCall(callee, arguments, out, stream).run()


def enqueue(
    callee: Callee, arguments: Sequence[Any], out: Sequence[Any], stream: Any, wait: Sequence[Any]
) -> tuple[Enqueued, None]:
    """See `motet.runtime.foreign.StreamCalls`."""
    made = _StreamCall(callee, arguments, out, stream)
    made.waits = event_handles(wait, made.signature.name)
    value, _ = made.run()
    return Enqueued(value, made.event()), None


def current_stream(arguments: Sequence[Any]) -> int:
    """The stream on which a call with these arguments runs in this thread."""
    loaded, there = libraries.loaded(), [value for value in arguments if is_on_gpu(value)]
    library = next((library for library in loaded if any(library.owns(value) for value in there)), None)
    return 0 if library is None else library.current_stream(_home(there, loaded))


def resident(callee: Callee, arguments: Sequence[Any]) -> list[Any]:
    """The arguments of a measured call, with those on a GPU as tensors of the session, ordered after their stream's
    work. Raises CallError."""
    return _StreamCall(callee, arguments, [None] * len(callee.signature.results), None).resident()


class _StreamCall:
    def __init__(self, callee: Callee, arguments: Sequence[Any], out: Sequence[Any], stream: Any) -> None:
        self.callee = callee
        self.signature = signature = callee.signature
        self.where = callee.where
        self.arguments = arguments
        self.out = out
        there = [value for value in (*arguments, *out) if value is not None and is_on_gpu(value)]
        self.there = set(map(id, there))
        # Libraries that own none of the tensors need not be asked again.
        self.loaded = [library for library in libraries.loaded() if any(library.owns(value) for value in there)]
        self.library: Library | None = self.loaded[0] if self.loaded else None
        self.home = _home(there, self.loaded)
        self.is_given = stream is not None
        self.stream = _handle(stream, signature.name) if stream is not None else self._current(self.home)
        self.destinations = {spec.destination for spec in signature.results if spec.destination is not None}
        self.waits: list[Any] = []
        self.device: CudaDevice | None = None
        self.raise_failed: Callable[[], None] = lambda: None

    def event(self) -> CudaCallEvent:
        """An event after the call, which has been put on its stream."""
        assert self.device is not None
        return CudaCallEvent(self.device, self.device.event_after(self.stream), self.raise_failed)

    def _current(self, ordinal: int) -> int:
        return 0 if self.library is None else self.library.current_stream(ordinal)

    def run(self) -> tuple[Any, TorchCall | None]:
        inputs = [
            self._adopt(value, spec, where, writable=index in self.destinations)
            for index, (value, spec, where) in enumerate(
                zip(self.arguments, self.signature.inputs, self.where, strict=True)
            )
        ]
        instance, again = self.callee.find(inputs)
        for argument, shape, where in zip(inputs, instance.inputs, self.where, strict=True):
            if argument.shape != shape.extents:
                tensors.check_shape(cast(Any, argument), shape.extents, where)
        if not isinstance(instance, PlacedInstance):
            raise CallError(f"{self._name_of(inputs)}: lies on cuda:{self.home}, and nothing of this session does; "
                            f'load it with devices="cuda:{self.home}", or copy the tensor to the host')  # fmt: skip
        device = _device_of(instance, self.home, lambda: self._name_of(inputs))
        if self.is_given:
            _check_stream(device, self.stream, self.signature.name)
        self.device = device
        if self.waits:
            device.let_stream_wait_for(self.stream, self.waits)
        direct = _direct(instance, device)
        if direct is None:
            return self._run_placed(instance, device, inputs), None
        self.raise_failed = direct.raise_failed
        addresses = [self._ready(device, argument) for argument in inputs]
        results, returned = self._results(device, inputs, instance.results)
        direct([*(item.address for item in addresses), *(result.address for result in results)], self.stream)
        if borrowed := [found for item in (*addresses, *results) if (found := _borrowed(item)) is not None]:
            device.keep_until_done(self.stream, borrowed)
        value = self._value_of(returned)
        keeps = any(spec.state is not None for spec in (*self.signature.inputs, *self.signature.results))
        if again and isinstance(self.library, libraries.Torch) and not keeps:
            return value, torch_call(self.library, direct, self.signature, instance, self.home, self.callee.fallback)
        return value, None

    def resident(self) -> list[Any]:
        triples = zip(self.arguments, self.signature.inputs, self.where, strict=True)
        inputs = [self._adopt(value, spec, where, writable=False) for value, spec, where in triples]
        instance, _ = self.callee.find(inputs)
        if not isinstance(instance, PlacedInstance):
            return list(self.arguments)
        device = _device_of(instance, self.home, lambda: self._name_of(inputs))
        device.let_queues_wait_for(self.stream)
        return [_taken(device, item) if isinstance(item, GpuArgument) else item.array for item in inputs]

    # -- arguments -------------------------------------------------------------------------------

    def _name_of(self, inputs: Sequence[Argument]) -> str:
        """The name of the first argument on a GPU, for errors."""
        found = [where for where, item in zip(self.where, inputs, strict=True) if isinstance(item, GpuArgument)]
        return found[0] if found else self.signature.name

    def _adopt(self, value: Any, spec: TensorSpec, where: str, *, writable: bool) -> Argument:
        if id(value) not in self.there:
            if writable:
                raise CallError(f"{where}: a destination in the host's memory; expected a tensor on cuda:{self.home}")
            return HostArgument(tensors.adopt(value, spec, where, writable=False))
        found = self._described(value, where, writable)
        expected = DTYPES[spec.dtype]
        if found.dtype != expected and not _is_same_integer(found.dtype, expected, spec):
            raise CallError(f"{where}: dtype {spelling(found.dtype)} given, {spec.dtype} expected")
        if found.ordinal != self.home:
            raise CallError(
                f"{where}: lies on cuda:{found.ordinal}, other arguments on cuda:{self.home}; expected all on one GPU"
            )
        if writable and found.read_only:
            raise CallError(f"{where}: read-only memory given, a destination must be writable")
        return found

    def _described(self, value: Any, where: str, writable: bool) -> GpuArgument:
        """A tensor on a GPU, copied by its library if it is not contiguous or not aligned."""
        if type(value) is DeviceArray:
            buffer, ordinal = cast(Any, value.buffer), value.device.info.ordinal
            return GpuArgument(value, ordinal, buffer.address, value.shape, value.dtype, False, buffer.stream)
        library = next((library for library in self.loaded if library.owns(value)), None)
        if library is None:
            return self._exported(value, where)
        ordinal, address, shape, dtype, contiguous = library.describe(value)
        if dtype is None:
            raise CallError(f"{where}: dtype {value.dtype} given; expected one of {', '.join(DTYPES)}")
        if contiguous and not address % _ALIGNMENT:
            return GpuArgument(value, ordinal, address, shape, dtype)
        if writable:
            problem = f"it lies at {address:#x}" if contiguous else "it is not contiguous"
            raise CallError(
                f"{where}: {problem}; a destination must be contiguous and aligned to {_ALIGNMENT} bytes"
            )
        copy = library.contiguous(value, ordinal, self.stream)
        return GpuArgument(copy, ordinal, library.describe(copy)[1], shape, dtype)

    def _exported(self, value: Any, where: str) -> GpuArgument:
        producer: int | None = None
        if type(value) is Pointer:
            ordinal, found = value.__dlpack_device__()[1], external.pointed(value)
        elif hasattr(value, "__dlpack__"):
            ordinal = int(value.__dlpack_device__()[1])
            found = dlpack.export_from(value, where, self.stream or LEGACY_STREAM)
        else:
            interface = cast(Mapping[str, Any], value.__cuda_array_interface__)
            ordinal = self.home
            found = dlpack.read_cuda_interface(interface, value, where)
            stream = interface.get("stream")
            producer = int(stream) if stream is not None else None
        if not dlpack.is_contiguous(found):
            raise CallError(f"{where}: strides of {found.strides} bytes given; expected a contiguous tensor")
        if found.address % _ALIGNMENT and 0 not in found.shape:
            raise CallError(f"{where}: it lies at {found.address:#x}; expected a multiple of {_ALIGNMENT}; copy it")
        return GpuArgument(found, ordinal, found.address, found.shape, found.dtype, found.read_only, producer)

    def _ready(self, device: CudaDevice, argument: Argument) -> GpuArgument:
        """An argument on the GPU, ready for use on the stream."""
        if isinstance(argument, HostArgument):
            made = _sent(device, argument.array, self.stream)
            return GpuArgument(made, self.home, made.buffer.address, made.shape, made.dtype)
        if argument.producer is not None:
            device.let_stream_wait(self.stream, argument.producer)
        if type(argument.tensor) is DeviceArray:
            cast(Any, argument.tensor.buffer).stream = self.stream
        return argument

    # -- results ---------------------------------------------------------------------------------

    def _results(
        self, device: CudaDevice, inputs: Sequence[Argument], shapes: Sequence[Shape]
    ) -> tuple[list[GpuArgument], list[Any]]:
        results: list[GpuArgument] = []
        returned: list[Any] = []
        for index, (spec, shape, given) in enumerate(zip(self.signature.results, shapes, self.out, strict=True)):
            where = f'{self.signature.name}: result {index}' + (f' ("{spec.name}")' if spec.name else "")
            if spec.destination is not None:
                value = self.arguments[spec.destination]
                if given is not None and given is not value:
                    raise CallError(f"{where}: is written to argument {spec.destination}; out must be that or None")
                place = cast(GpuArgument, inputs[spec.destination])
            elif given is not None:
                value = given
                if id(given) not in self.there:
                    raise CallError(f"{where}: out in the host's memory; expected a tensor on cuda:{self.home}")
                place = cast(GpuArgument, self._adopt(given, spec, where, writable=True))
                tensors.check_shape(cast(Any, place), shape.extents, where)
                place = self._ready(device, place)
            else:
                value = self._made(device, shape, self.stream, spec)
                place = self._described(value, where, writable=True)
            results.append(place)
            returned.append(value)
        _check_overlaps(self.signature, inputs, results, self.out)
        return results, returned

    def _made(self, device: CudaDevice, shape: Shape, stream: int, spec: TensorSpec) -> Any:
        """Memory for a result: a tensor of the library, or of the session for state."""
        if spec.state is None and self.library is not None and libraries.has_dtype(self.library, shape.dtype):
            return self.library.empty(shape.extents, shape.dtype, device.ordinal, stream)
        return DeviceArray(device, device.allocate_for(shape.bytes, stream), shape.extents, shape.dtype)

    # -- several devices -------------------------------------------------------------------------

    def _run_placed(self, instance: PlacedInstance, device: CudaDevice, inputs: Sequence[Argument]) -> Any:
        results: list[Any] = []
        places: list[GpuArgument | None] = []
        for index, (shape, given) in enumerate(zip(instance.results, self.out, strict=True)):
            spec = self.signature.results[index]
            if spec.destination is not None or given is not None:
                value = self.arguments[spec.destination] if spec.destination is not None else given
                own = self._adopt(value, spec, f"{self.signature.name}: result {index}", writable=True)
                places.append(cast(GpuArgument, own))
                results.append(value)
                continue
            home = instance.devices[instance.plan.result_devices[index]].device
            value = np.empty(shape.extents, shape.dtype)
            if isinstance(home, CudaDevice):
                stream = self.stream if home is device or self.library is None else self._current(home.ordinal)
                value = self._made(home, shape, stream, spec)
                home.let_queues_wait_for(stream)
            places.append(self._described(value, "", writable=True) if isinstance(home, CudaDevice) else None)
            results.append(value)
        device.let_queues_wait_for(self.stream)
        taken: list[Any] = [_taken(device, item) if isinstance(item, GpuArgument) else item.array for item in inputs]
        for value, place in zip(results, places, strict=True):
            taken.append(value if place is None else _taken(_device_of(instance, place.ordinal, str), place))
        instance.run(taken)
        torch = self.library.torch if isinstance(self.library, libraries.Torch) else None
        returned = [
            tensors.to_torch(value, torch) if torch is not None and isinstance(value, np.ndarray) and spec.state is None
            else value
            for value, spec in zip(results, self.signature.results, strict=True)
        ]
        return self._value_of(returned)

    def _value_of(self, returned: list[Any]) -> Any:
        """What the call returns. Results are arrays of JAX if an argument is one."""
        return value_of(returned, jax_results(self.arguments, self.signature.results, self.out, returned))


def _borrowed(argument: GpuArgument) -> object:
    """What releases the memory of another library; None if no release is known, or it is in the order of the stream."""
    return argument.tensor.release if isinstance(argument.tensor, dlpack.Exported) else None


def _home(there: Sequence[Any], loaded: Sequence[Library]) -> int:
    """The GPU of the first tensor."""
    for value in there:
        if type(value) is DeviceArray:
            return value.device.info.ordinal
        if hasattr(value, "__dlpack_device__"):
            return int(value.__dlpack_device__()[1])
        library = next((library for library in loaded if library.owns(value)), None)
        if library is not None:
            return library.describe(value)[0]
    return 0


def _is_same_integer(given: np.dtype[Any], expected: np.dtype[Any], spec: TensorSpec) -> bool:
    """Whether a signless integer is given as a signed or unsigned one of the same width."""
    signless = spec.dtype.startswith("i") and expected.kind == "i"
    return signless and given.kind in "iu" and given.itemsize == expected.itemsize


def _handle(stream: Any, name: str) -> int:
    """The handle of a caller's stream. Raises CallError if it is not a stream."""
    if (handle := stream_handle(stream)) is not None:
        return handle
    raise CallError(f"{name}: stream: {type(stream).__name__} given; expected a stream of PyTorch's or CuPy's, an "
                    "object with __cuda_stream__, or a handle")  # fmt: skip


def _check_stream(device: CudaDevice, stream: int, name: str) -> None:
    if stream in _SHARED_STREAMS:
        return
    if not device.has_stream(stream):
        raise CallError(f"{name}: stream {stream:#x} is not one of {device.info.uri}; expected one of the GPU on which "
                        "the arguments lie")  # fmt: skip


def _device_of(instance: PlacedInstance, ordinal: int, where: Callable[[], str]) -> CudaDevice:
    """The device of an instance that is GPU `ordinal`. Raises CallError, which begins with `where`."""
    found = [loaded.device for loaded in instance.devices if isinstance(loaded.device, CudaDevice)]
    for device in found:
        if device.info.ordinal == ordinal:
            return device
    here = ", ".join(dict.fromkeys(loaded.device.info.uri for loaded in instance.devices))
    raise CallError(f"{where()}: lies on cuda:{ordinal}; this session works on {here}; copy it there")


def _direct(instance: PlacedInstance, device: CudaDevice) -> DirectWork | None:
    """The whole instance as work of one GPU, created once."""
    if not instance.direct:
        alone = instance.alone()
        made = None
        if alone is not None and alone.is_whole and alone.loaded.device is device:
            parameters = [alone.loaded.parameter(index) for index in alone.concrete.parameters]
            concrete = alone.concrete
            made = DirectWork(device, cast(Any, alone.commands), concrete.arena, parameters, concrete.statuses)
        instance.direct.append(made)
    return instance.direct[0]


def _sent(device: CudaDevice, array: np.ndarray[Any, Any], stream: int) -> DeviceArray:
    made = DeviceArray(device, device.allocate_for(array.nbytes, stream), array.shape, array.dtype)
    device.write_on_stream(cast(Any, made.buffer), array, stream)
    return made


def _taken(device: CudaDevice, tensor: GpuArgument) -> DeviceArray:
    """The tensor as a `DeviceArray`, for a call that ends before it returns."""
    if type(tensor.tensor) is DeviceArray:
        return tensor.tensor
    if tensor.producer is not None:
        device.let_queues_wait_for(tensor.producer)
    buffer = device.adopt_address(tensor.address, tensor.bytes, tensor.tensor)
    return DeviceArray(device, buffer, tensor.shape, tensor.dtype)


def _check_overlaps(
    signature: Signature, inputs: Sequence[Argument], results: Sequence[GpuArgument], given: Sequence[Any]
) -> None:
    """Raises CallError if memory that is written is also read or written through another tensor."""
    destinations = [spec.destination for spec in signature.results]
    is_new = [own is None and value is None for own, value in zip(destinations, given, strict=True)]
    if all(is_new):
        return
    reads = [item.range for i, item in enumerate(inputs) if isinstance(item, GpuArgument) and i not in destinations]
    reads += [item.range for item, new in zip(results, is_new, strict=True) if new]
    if is_shared(reads, [item.range for item, new in zip(results, is_new, strict=True) if not new]):
        check_overlaps(signature.name, destinations, given, inputs, results, _overlap)


def _overlap(a: Argument, b: Argument) -> bool:
    if isinstance(a, HostArgument) or isinstance(b, HostArgument):
        return False
    return a.address < b.range[1] and b.address < a.range[1]
