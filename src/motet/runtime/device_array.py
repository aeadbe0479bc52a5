"""Tensors that stay on a device of a session between calls, so that calls do not move them.

    weights = session.put(array, "gpu")         # copied there once
    y = session(x, weights)                     # regions on @gpu read it in place
    out = session.empty((4, 16), np.float32, "gpu")
    session(x, weights, out=out)                # the result stays there
    out.numpy()                                 # copied back
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from motet.argument_kinds import extents_of
from motet.artifact.dtypes import DTYPES, spelling
from motet.errors import CallError
from motet.runtime.device import Buffer, Device
from motet.runtime.dlpack import ARRAY_INTERFACES, make_capsule

Array = np.ndarray[Any, Any]


class Exporter(Protocol):
    """A device whose tensors other libraries may use in place."""

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's type and number of the device."""
        ...

    def let_consumer_wait(self, buffer: Buffer, stream: Any) -> None:
        """Make later work on `stream`, in the encoding of `__dlpack__`, run after all work on the buffer."""
        ...

    def array_interface(self, array: DeviceArray, name: str) -> Mapping[str, Any] | None:
        """The description of `array` by a protocol of `dlpack.ARRAY_INTERFACES`; None if it does not support `name`."""
        ...


class DeviceArray:
    """A contiguous tensor of `shape` and numpy `dtype` in the memory of `device`. It may be an argument of any function
    of its session and, as `out`, take a result; calls do not copy it if they use it on its device."""

    def __init__(self, device: Device, buffer: Buffer, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.device = device
        self.buffer = buffer
        self.shape = tuple(shape)
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.buffer.bytes

    def view(self) -> Array | None:
        """The elements in place, if this process can address them."""
        data = self.device.view(self.buffer) if self.device.info.host_memory else None
        return None if data is None else data[: self.nbytes].view(self.dtype).reshape(self.shape)

    def numpy(self) -> Array:
        """A copy of the elements. Raises DeviceError."""
        array = np.empty(self.shape, self.dtype)
        self.device.read(self.buffer, array).wait()
        return array

    def write(self, array: Array) -> None:
        """Replace the elements. Raises CallError for an array of another shape or dtype, and DeviceError."""
        if array.shape != self.shape or array.dtype != self.dtype:
            given = f"{'x'.join(map(str, array.shape))} {array.dtype}"
            raise CallError(f"{self!r}: {given} given; expected an array of its shape and dtype")
        self.device.write(self.buffer, np.ascontiguousarray(array)).wait()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError(f"{self!r}: its elements are not in this process's memory without a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    @property
    def _exporter(self) -> Exporter | None:
        device: Any = self.device
        return device if hasattr(device, "dlpack_device") else None

    def __getattr__(self, name: str) -> Any:
        """Array interfaces, for libraries that use the memory in place while this object is alive, after the last
        stream that used it. A device supports those of its family, for numpy's dtypes."""
        if name in ARRAY_INTERFACES and (exporter := self._exporter) is not None:
            interface = exporter.array_interface(self, name)
            if interface is not None:
                return interface
        raise AttributeError(f"{self!r}: it has no {name}" if name in ARRAY_INTERFACES else name)

    def __dlpack_device__(self) -> tuple[int, int]:
        if (exporter := self._exporter) is None:
            raise BufferError(f"{self!r}: DLPack defines no type for its device")
        return exporter.dlpack_device

    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:
        """Export to other libraries, in place, for all dtypes; `stream` is the consumer's stream. Raises BufferError
        for a copy or another device."""
        here = self.__dlpack_device__()
        if copy or dl_device not in (None, here):
            raise BufferError(f"{self!r}: exported in place, without a copy; expected device {here}")
        if (exporter := self._exporter) is not None:
            exporter.let_consumer_wait(self.buffer, stream)
        address = self.buffer.address if self.nbytes else 0
        versioned = max_version is not None and max_version >= (1, 0)
        return make_capsule(address, self.shape, self.dtype, here, self, versioned=versioned)

    def __repr__(self) -> str:
        extents = "".join(f"{extent}x" for extent in self.shape)
        return f"<DeviceArray {extents}{spelling(self.dtype)} on {self.device.info.uri}>"


def dtype_of(dtype: Any) -> np.dtype[Any]:
    """The numpy dtype for MLIR's spelling, or for anything that numpy accepts. Raises CallError."""
    try:
        if isinstance(dtype, str) and dtype in DTYPES:
            return DTYPES[dtype]
        kind = np.dtype(dtype)
    except (KeyError, TypeError, ValueError):
        kind = None
    if kind is None or kind.newbyteorder("=") not in DTYPES.values():
        raise CallError(f"dtype {dtype!r}: unknown; expected one of {', '.join(DTYPES)}")
    return kind


def allocate_on(device: Device, shape: Sequence[int], dtype: Any) -> DeviceArray:
    """Allocate memory for a tensor, uninitialised. `dtype` is MLIR's spelling or anything that numpy accepts. Raises
    CallError for an invalid shape or dtype, and OutOfMemoryError."""
    kind, shape = dtype_of(dtype), extents_of("shape", shape)
    buffer = device.allocate(math.prod(shape) * kind.itemsize)
    return DeviceArray(device, buffer, shape, kind)
