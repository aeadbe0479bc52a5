"""Fast calls with PyTorch's tensors: a few microseconds from arguments to the driver.

A fast call is created for a function on one GPU after calls with the same extents. It accepts contiguous, aligned
tensors of these shapes and dtypes on this GPU, which can be checked quickly. If addresses repeat, as they do with
PyTorch's allocator, the call only launches a graph.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from motet.artifact.schema import Signature
from motet.runtime.drivers.cuda import libraries
from motet.runtime.drivers.cuda.single_launch import DirectWork
from motet.runtime.foreign import Fallback
from motet.runtime.instantiate import Shape
from motet.runtime.overlaps import is_shared

_ALIGNMENT = 16  # bytes, the alignment that kernels rely on
_MOST_STREAMS = 256  # streams known to belong to this GPU
_MOST_ALIKE = 4  # kinds of accepted tensors that PyTorch compares others with: they require gradients or not, …


class CallShapes(Protocol):
    """The properties of a function's instance that are needed."""

    inputs: list[Shape]
    results: list[Shape]


@dataclass(frozen=True)
class TorchCall:
    """`short(*arguments)` is a call on the current stream, `on_stream(arguments, stream)` one on another; both take
    `out`, a tensor for each result, after the arguments if no result is a destination."""

    short: Callable[..., Any]
    on_stream: Callable[[Sequence[Any], Any], Any]


def torch_call(
    library: libraries.Torch, direct: DirectWork, signature: Signature, instance: CallShapes, ordinal: int,
    fallback: Fallback,
) -> TorchCall | None:
    """The fast calls; None if PyTorch lacks a dtype or a function that they need."""
    torch, raw_stream = library.torch, library.raw_stream
    shapes = [*instance.inputs, *instance.results]
    if raw_stream is None or not all(libraries.has_dtype(library, shape.dtype) for shape in shapes):
        return None
    stream_of = raw_stream
    tensors = _CallTensors.of(library, signature, instance)
    core = _call_on_stream(torch, direct, tensors, ordinal, fallback)
    allocates_none, count = len(tensors.places) == len(tensors.made), len(tensors.inputs)
    stream_type = torch.cuda.Stream
    known: dict[int, bool] = {}
    is_capturing, stream_is_capturing = torch.cuda.is_current_stream_capturing, direct.device.api.is_capturing
    is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", is_capturing)

    def short(*arguments: Any) -> Any:
        stream = stream_of(ordinal)
        return core(arguments, stream, None, stream != 0 and is_capturing())  # the legacy stream cannot be captured

    def on_stream(arguments: Sequence[Any], stream: Any) -> Any:
        handle = stream.cuda_stream if type(stream) is stream_type else stream
        is_current = type(handle) is int and handle == stream_of(ordinal)
        has_all = allocates_none or len(arguments) > count
        if not is_current and not (has_all and type(handle) is int and _is_known(handle)):
            return fallback(arguments, stream)
        return core(arguments, handle, stream, stream_is_capturing(handle))

    def _is_known(handle: int) -> bool:
        if handle not in known:
            if len(known) >= _MOST_STREAMS:
                known.clear()
            known[handle] = direct.device.has_stream(handle)
        return known[handle]

    return TorchCall(short, on_stream)


@dataclass(frozen=True)
class _CallTensors:
    """The tensors of a call: the requirements on arguments and on `out`, which is empty if a call takes none, the
    destination or the extents, strides and dtype of each result, the arguments that are destinations, and the bytes of
    all arguments and results."""

    inputs: list[_Expected]
    out: list[_Expected]
    made: list[tuple[int | None, tuple[int, ...], tuple[int, ...], Any]]
    places: list[int]
    sizes: list[int]

    @staticmethod
    def of(library: libraries.Torch, signature: Signature, instance: CallShapes) -> _CallTensors:
        made = [
            (spec.destination, shape.extents, _strides(shape.extents), library.dtypes[shape.dtype])
            for spec, shape in zip(signature.results, instance.results, strict=True)
        ]
        places = [spec.destination for spec in signature.results if spec.destination is not None]
        inputs, out = ([_Expected.of(library, shape) for shape in each] for each in (instance.inputs, instance.results))
        sizes = [shape.bytes for shape in (*instance.inputs, *instance.results)]
        return _CallTensors(inputs, [] if places else out, made, places, sizes)

    def share(self, addresses: Sequence[int], has_out: bool) -> bool:
        """Whether memory that a call writes is also that of another tensor; results that it made are no others'."""
        if not has_out and not self.places:
            return False
        ranges = [(address, address + size) for address, size in zip(addresses, self.sizes, strict=True)]
        count = len(self.inputs)
        written = ranges[count:] if has_out else [ranges[place] for place in self.places]
        return is_shared([each for i, each in enumerate(ranges[:count]) if i not in self.places], written)


def _call_on_stream(
    torch: Any, direct: DirectWork, tensors: _CallTensors, ordinal: int, fallback: Fallback
) -> Callable[[Sequence[Any], int, Any, bool], Any]:
    """The function `(arguments, handle of the stream, the stream as given, whether it is being captured)` that calls
    it."""
    made, count, total = tensors.made, len(tensors.inputs), len(tensors.inputs) + len(tensors.out)
    are_inputs = _check_of(torch, tensors.inputs, ordinal)
    are_all = _check_of(torch, [*tensors.inputs, *tensors.out], ordinal)
    make, address_of = _maker(torch, ordinal), torch.Tensor.data_ptr
    ready, lock, launch, told = direct.ready, direct.device.lock, direct.launch_ready, direct.told

    def core(arguments: Sequence[Any], stream: int, given: Any, is_captured: bool) -> Any:
        has_out = len(arguments) == total != count
        if told is not None and any(told):
            direct.raise_failed()
        if not (are_all(arguments) if has_out else len(arguments) == count and are_inputs(arguments)):
            return fallback(arguments, given)
        addresses = [*map(address_of, arguments)]
        if has_out:
            results = arguments[count:]
        else:
            results: Sequence[Any] = []
            for destination, extents, strides, dtype in made:
                result = make(extents, strides, dtype) if destination is None else arguments[destination]
                addresses.append(result.data_ptr())
                results.append(result)
        value = results[0] if len(results) == 1 else tuple(results) or None
        found = None if is_captured else ready.get((*addresses, stream))
        if found is not None:
            with lock:  # so that the graph is not set for other addresses meanwhile
                if found.handle and not launch(found.handle, stream):
                    return value
        if any(address % _ALIGNMENT for address in addresses) or tensors.share(addresses, has_out):
            return fallback(arguments, given)
        direct(addresses, stream, is_captured)
        return value

    return core


class _Expected(NamedTuple):
    """The requirements on a tensor. `may_be_negated` tells whether a lazily negated one must be excluded: a contiguous
    tensor of several elements is never one."""

    dtype: Any
    shape: Any
    may_be_negated: bool

    @staticmethod
    def of(library: libraries.Torch, shape: Shape) -> _Expected:
        size = library.torch.Size(shape.extents)
        return _Expected(library.dtypes[shape.dtype], size, math.prod(shape.extents) < 2)


def _check_of(torch: Any, expected: Sequence[_Expected], ordinal: int) -> Callable[[Sequence[Any]], bool]:
    """A function that tells whether as many tensors are `expected` ones, contiguous and on a GPU. PyTorch itself
    compares tensors with those of an earlier call, in a fraction of the time that it takes to ask for each property."""
    tensor_type = torch.Tensor
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    guard_of = getattr(guards, "TensorGuards", None)  # called by code of PyTorch's own compiler
    alike: list[Callable[..., bool]] = []

    def are_expected(tensors: Sequence[Any]) -> bool:
        for are_alike in alike:
            if are_alike(*tensors):
                return True
        for tensor, (dtype, shape, may_be_negated) in zip(tensors, expected, strict=True):
            if (
                type(tensor) is not tensor_type or tensor.dtype is not dtype or tensor.shape != shape
                or not tensor.is_contiguous() or tensor.get_device() != ordinal or (may_be_negated and tensor.is_neg())
            ):
                return False
        if guard_of is not None and tensors and len(alike) < _MOST_ALIKE:
            with contextlib.suppress(TypeError):  # of an older PyTorch
                alike.append(guard_of(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check)
        return True

    return are_expected


def _strides(extents: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(extents[axis + 1 :]) for axis in range(len(extents)))


def _maker(torch: Any, ordinal: int) -> Callable[[Sequence[int], Sequence[int], Any], Any]:
    """A function that creates a tensor of given extents, strides and dtype, by the cheapest way available."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, "_empty_strided_cuda", None)  # called by code of PyTorch's own compiler
    if quick is not None and torch.cuda.device_count() == 1:
        return quick
    home, empty = torch.device("cuda", ordinal), torch.empty_strided
    return lambda extents, strides, dtype: empty(extents, strides, dtype=dtype, device=home)
