"""Tensors of other libraries on a GPU, used in place through DLPack or the CUDA array interface.

The device's streams, not the host, wait for work that the other library has queued on the tensor. Sources:
https://dmlc.github.io/dlpack, https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

from motet.errors import CallError
from motet.runtime.device import DeviceInfo
from motet.runtime.device_array import dtype_of
from motet.runtime.dlpack import Exported, contiguous_strides, export_from, is_contiguous, read_cuda_interface
from motet.runtime.drivers.common.streams import Handle
from motet.runtime.pointer import Pointer

DLPACK_CUDA = 2
_ALIGNMENT = 16  # bytes, the alignment that kernels rely on
LEGACY_STREAM = 1  # the handle of the legacy default stream, the default for waits


class Waiting(Protocol):
    """The GPU of a tensor."""

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def ordinal(self) -> int: ...

    def let_queues_wait_for(self, stream: Handle) -> None: ...


def exported(device: Waiting, tensor: Any) -> Exported:
    """A contiguous, aligned tensor in the memory of a GPU. Raises CallError for any other tensor."""
    ordinal = device.ordinal
    where = f"a {type(tensor).__name__} for {device.info.uri}"
    stream: Any = None
    if type(tensor) is Pointer:
        found = pointed(tensor)
    elif hasattr(tensor, "__dlpack__"):
        kind, number = (int(part) for part in tensor.__dlpack_device__())
        if (kind, number) != (DLPACK_CUDA, ordinal):
            raise CallError(f"{where}: lies on device {number} of kind {kind}; expected {ordinal} of {DLPACK_CUDA}")
        found = export_from(tensor, where, LEGACY_STREAM)
        stream = LEGACY_STREAM
    elif hasattr(tensor, "__cuda_array_interface__"):
        interface = cast(Mapping[str, Any], tensor.__cuda_array_interface__)
        found = read_cuda_interface(interface, tensor, where)
        stream = interface.get("stream")
    else:
        raise CallError(f"{where}: it has neither __dlpack__ nor __cuda_array_interface__")
    _check(found, where)
    if stream is not None:
        device.let_queues_wait_for(int(stream))
    return found


def pointed(pointer: Pointer) -> Exported:
    """A tensor described by the caller. Raises CallError."""
    return Exported(pointer.address, tuple(pointer.shape), None, dtype_of(pointer.dtype), False, pointer)


def _check(found: Exported, where: str) -> None:
    if not is_contiguous(found):
        expected = contiguous_strides(found)
        raise CallError(f"{where}: its strides are {found.strides} bytes; expected a contiguous tensor, {expected}")
    if found.address % _ALIGNMENT:
        raise CallError(f"{where}: it lies at {found.address:#x}; expected a multiple of {_ALIGNMENT}; copy it")
    if found.read_only:
        raise CallError(f"{where}: it is read-only; expected one that may be written")
