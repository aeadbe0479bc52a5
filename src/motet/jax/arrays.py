"""Arrays of JAX as arguments of sessions, and results as arrays of JAX; in place where memory is aligned enough."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from motet.errors import OptionError
from motet.runtime.dlpack import make_capsule

_CPU = (1, 0)  # DLPack's type and number


def import_jax() -> Any:
    """JAX. Raises OptionError if it is not installed."""
    try:
        return importlib.import_module("jax")
    except ImportError:
        raise OptionError("motet.jax: jax is not installed; pip install 'motet[jax]'") from None


def argument_of(value: Any, kind: Any, jax: Any) -> Any:
    """`value` for a session; `kind` is its abstract value. Arrays of JAX are passed in place."""
    if isinstance(value, jax.Array):
        return jax.block_until_ready(value)
    return np.asarray(value, kind.dtype)


def result_of(value: Any, kind: Any, jax: Any) -> Any:
    """A result of a session as an array of JAX of the dtype of `kind`."""
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.dtype != kind.dtype:
        array = array.view(kind.dtype)  # integers without a sign
    if array.size:
        try:
            return jax.dlpack.from_dlpack(_HostTensor(array))
        except (BufferError, RuntimeError):
            pass  # a dtype that DLPack, or JAX, does not pass on
    return jax.numpy.asarray(array)


class _HostTensor:
    """An array for consumers of DLPack, with dtypes that numpy does not export."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
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
