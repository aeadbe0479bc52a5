"""Fast calls with PyTorch's tensors on the host, by address.

A fast call is created for a function after calls with the same extents. It accepts contiguous tensors of these shapes
and dtypes in host memory that do not require gradients. Other arguments go to `fallback`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from motet.runtime.instance import POOLED
from motet.runtime.instantiate import Shape
from motet.runtime.tensors import to_torch, torch_dtype


class Addressed(Protocol):
    """The operations of a function's instance that are needed."""

    inputs: list[Shape]
    results: list[Shape]

    def run_at(self, addresses: Sequence[int]) -> None: ...

    def allocate(self, shape: Shape) -> np.ndarray[Any, Any]: ...


def torch_call(torch: ModuleType, instance: Addressed, fallback: Callable[..., Any]) -> Callable[..., Any] | None:
    """`call(*arguments)` for a function without destinations; None if PyTorch lacks a dtype."""
    if any(torch_dtype(shape.dtype, torch) is None for shape in (*instance.inputs, *instance.results)):
        return None
    inputs = [
        (torch_dtype(shape.dtype, torch), torch.Size(shape.extents), shape.dtype.itemsize) for shape in instance.inputs
    ]
    make = [_maker(torch, instance, shape) for shape in instance.results]
    count, run, tensor_type, strided = len(inputs), instance.run_at, torch.Tensor, torch.strided
    is_single = len(make) == 1

    def call(*arguments: Any) -> Any:
        if len(arguments) != count:
            return fallback(*arguments)
        addresses: list[int] = []
        for argument, (dtype, shape, size) in zip(arguments, inputs, strict=True):
            if (
                type(argument) is not tensor_type or argument.dtype is not dtype or argument.shape != shape
                or not argument.is_cpu or argument.layout is not strided or not argument.is_contiguous()
                or argument.requires_grad or argument.is_neg()
            ):
                return fallback(*arguments)
            address = argument.data_ptr()
            if address % size:
                return fallback(*arguments)
            addresses.append(address)
        if is_single:
            result = make[0]()
            addresses.append(result.data_ptr())
            run(addresses)
            return result
        results = tuple([one() for one in make])
        addresses += [result.data_ptr() for result in results]
        run(addresses)
        return results or None

    return call


def _maker(torch: ModuleType, instance: Addressed, shape: Shape) -> Callable[[], Any]:
    """A function that creates a result tensor, by the cheapest way available."""
    dtype = torch_dtype(shape.dtype, torch)
    if shape.bytes >= POOLED:
        return lambda: to_torch(instance.allocate(shape), torch)
    strides = tuple(math.prod(shape.extents[axis + 1 :]) for axis in range(len(shape.extents)))
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, "_empty_strided_cpu", None)  # called by code of PyTorch's own compiler
    if quick is not None:
        return partial(quick, shape.extents, strides, dtype)
    return partial(torch.empty_strided, shape.extents, strides, dtype=dtype, device="cpu")
