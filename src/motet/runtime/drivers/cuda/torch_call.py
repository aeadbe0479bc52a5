"""Fast calls with PyTorch's tensors: a few microseconds from arguments to the driver.

A fast call is created for a function on one GPU after calls with the same extents. It accepts contiguous, aligned
tensors of these shapes and dtypes on this GPU, which can be checked quickly. If addresses repeat, as they do with
PyTorch's allocator, the call only launches a graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from motet.artifact.schema import Signature
from motet.runtime.drivers.cuda import libraries
from motet.runtime.drivers.cuda.single_launch import DirectWork
from motet.runtime.foreign import Fallback
from motet.runtime.instantiate import Shape

_ALIGNMENT = 16  # bytes, the alignment that kernels rely on
_MOST_STREAMS = 256  # streams known to belong to this GPU


class CallShapes(Protocol):
    """The properties of a function's instance that are needed."""

    inputs: list[Shape]
    results: list[Shape]


@dataclass(frozen=True)
class TorchCall:
    """`short(*arguments)` is a call on the current stream, `on_stream(arguments, stream)` one on another; both take
    `out`, a tensor, after the arguments if the function has one result that is not a destination. `note_stream`
    registers a handle as a stream of this GPU."""

    short: Callable[..., Any]
    on_stream: Callable[[Sequence[Any], Any], Any]
    tensor_type: type[Any]


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
    allocates_none, count = len(tensors.places) == len(tensors.made), len(tensors.expected)
    tensor_type, stream_type = torch.Tensor, torch.cuda.Stream
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

    return TorchCall(short, on_stream, tensor_type)


@dataclass(frozen=True)
class _CallTensors:
    """The tensors of a call: the requirements on arguments (`with_out`: including `out` after them), the destination or
    the extents, strides and dtype of each result, the arguments that are destinations, and the bytes of all that may
    overlap."""

    expected: list[tuple[Any, Any, bool]]
    with_out: list[tuple[Any, Any, bool]]
    made: list[tuple[int | None, tuple[int, ...], tuple[int, ...], Any]]
    places: list[int]
    sizes: list[int]

    @staticmethod
    def of(library: libraries.Torch, signature: Signature, instance: CallShapes) -> _CallTensors:
        expected = [_expected(library, shape) for shape in instance.inputs]
        made = [
            (spec.destination, shape.extents, _strides(shape.extents), library.dtypes[shape.dtype])
            for spec, shape in zip(signature.results, instance.results, strict=True)
        ]
        places = [spec.destination for spec in signature.results if spec.destination is not None]
        takes_out = len(made) == 1 and not places
        with_out = [*expected, _expected(library, instance.results[0])] if takes_out else []
        sizes = [shape.bytes for shape in (*instance.inputs, *(instance.results if takes_out else ()))]
        return _CallTensors(expected, with_out, made, places, sizes)


def _call_on_stream(
    torch: Any, direct: DirectWork, tensors: _CallTensors, ordinal: int, fallback: Fallback
) -> Callable[[Sequence[Any], int, Any, bool], Any]:
    """The function `(arguments, handle of the stream, the stream as given, whether it is being captured)` that calls
    it."""
    expected, with_out, made = tensors.expected, tensors.with_out, tensors.made
    places, sizes, count, takes_out = tensors.places, tensors.sizes, len(tensors.expected), bool(tensors.with_out)
    make, tensor_type = _maker(torch, ordinal), torch.Tensor
    ready, lock, launch, told = direct.ready, direct.device.lock, direct.launch_ready, direct.told

    def core(arguments: Sequence[Any], stream: int, given: Any, is_captured: bool) -> Any:
        has_out = takes_out and len(arguments) == count + 1
        if len(arguments) != count and not has_out:
            return fallback(arguments, given)
        if told is not None and any(told):
            direct.raise_failed()
        addresses: list[int] = []
        for argument, (dtype, shape, may_be_negated) in zip(
            arguments, with_out if has_out else expected, strict=True
        ):
            address = argument.data_ptr() if type(argument) is tensor_type else 1
            if (
                address % _ALIGNMENT or argument.dtype is not dtype or argument.shape != shape
                or not argument.is_contiguous() or argument.get_device() != ordinal
                or (may_be_negated and argument.is_neg())
            ):
                return fallback(arguments, given)
            addresses.append(address)
        if has_out:
            value = arguments[count]
        else:
            results: list[Any] = []
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
        for place in [count] if has_out else places:
            mine = addresses[place]
            for other, address in enumerate(addresses[:count]):
                if other != place and mine < address + sizes[other] and address < mine + sizes[place]:
                    return fallback(arguments, given)
        direct(addresses, stream, is_captured)
        return value

    return core


def _expected(library: libraries.Torch, shape: Shape) -> tuple[Any, Any, bool]:
    """The expected dtype and shape of an argument, and whether a lazily negated tensor must be excluded: a contiguous
    tensor of several elements is never one."""
    return library.dtypes[shape.dtype], library.torch.Size(shape.extents), math.prod(shape.extents) < 2


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
