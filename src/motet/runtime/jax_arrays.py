"""Results as arrays of JAX, in place on GPUs, and on the host where their memory is aligned as JAX wants it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from motet.artifact.schema import TensorSpec
from motet.runtime.device_array import DeviceArray
from motet.runtime.dlpack import make_capsule

Array = np.ndarray[Any, Any]
_CPU = (1, 0)  # DLPack's type and number


def jax_of(values: Sequence[Any]) -> Any:
    """The module jax if one of `values` is its array; jax is then loaded."""
    jax = sys.modules.get("jax")
    kind = getattr(jax, "Array", None)  # None while another thread imports it
    if kind is None or not any(isinstance(value, kind) for value in values):
        return None
    return jax


def to_jax(array: Array | DeviceArray, jax: Any) -> Any:
    """`array` as an array of JAX. JAX may change the elements to 32 bits, as it does by default with others."""
    if array.nbytes:
        try:
            return jax.dlpack.from_dlpack(array if isinstance(array, DeviceArray) else _HostTensor(array))
        except (BufferError, RuntimeError):
            pass  # a dtype or a device that DLPack, or JAX, does not pass on
    return jax.numpy.asarray(array.numpy() if isinstance(array, DeviceArray) else array)


def jax_results(
    arguments: Sequence[Any], specs: Sequence[TensorSpec], out: Sequence[Any], returned: Sequence[Any]
) -> list[int]:
    """The results of a call that become arrays of JAX, since an argument is one: those in new memory whose dtype JAX
    keeps. It narrows elements of 64 bits unless `jax_enable_x64` is set."""
    if (jax := jax_of(arguments)) is None:
        return []
    return [index for index, (spec, given, value) in enumerate(zip(specs, out, returned, strict=True))
            if given is None and spec.destination is None and spec.state is None
            and isinstance(value, (np.ndarray, DeviceArray))
            and jax.dtypes.canonicalize_dtype(value.dtype) == value.dtype]


class _HostTensor:
    """An array for consumers of DLPack, with dtypes that numpy does not export."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:
        del stream, dl_device, copy  # the consumer is on the host, too
        array = self._array
        versioned = max_version is not None and max_version >= (1, 0)
        return make_capsule(array.ctypes.data, array.shape, array.dtype, _CPU, array, versioned=versioned)
