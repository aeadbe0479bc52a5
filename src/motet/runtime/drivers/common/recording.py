"""Checks of recorded and submitted work that all drivers share.

They raise DeviceError with a message for users before any work is queued.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from motet.errors import DeviceError
from motet.runtime.device import Buffer, Work

MOST_TASKS = 1 << 31
MOST_BYTES = 1 << 48  # no buffer is longer


def check_work(device: str, work: Sequence[Work], kernels: Collection[str], externals: int) -> tuple[int, ...]:
    """Check all commands of `work`; returns the bytes that each external must have."""
    if externals < 0:
        raise DeviceError(f"device {device}: record: {externals} externals; expected 0 or more")
    needed = [0] * externals
    for index, item in enumerate(work):
        where = f"device {device}: command {index}"
        if item.op == "launch":
            _check_launch(where, item, kernels)
        else:
            _check_copy(where, item)
        for dependence in item.after:
            if not 0 <= dependence < index:
                raise DeviceError(f"{where}: after command {dependence}; expected one of those before it")
        for reference in item.references:
            if not 0 <= reference.external < externals:
                raise DeviceError(f"{where}: external {reference.external}; there are {externals}")
            if reference.offset < 0 or reference.bytes < 0:
                raise DeviceError(f"{where}: {reference.bytes} bytes at offset {reference.offset}; expected 0 or more")
            end = reference.offset + reference.bytes
            if end > MOST_BYTES:
                raise DeviceError(f"{where}: bytes {reference.offset:,} to {end:,} of a buffer; expected no more than "
                                  f"{MOST_BYTES:,}")
            needed[reference.external] = max(needed[reference.external], end)
    return tuple(needed)


def _check_launch(where: str, item: Work, kernels: Collection[str]) -> None:
    if item.kernel not in kernels:
        known = ", ".join(sorted(kernels)) or "none"
        raise DeviceError(f"{where}: no kernel {item.kernel!r} in the executable; there are: {known}")
    if not 0 <= item.tasks <= MOST_TASKS:
        raise DeviceError(f"{where}: {item.tasks:,} tasks; expected 0 to {MOST_TASKS:,}")


def _check_copy(where: str, item: Work) -> None:
    sizes = [reference.bytes for reference in item.references]
    if len(sizes) != 2 or sizes[0] != sizes[1]:
        raise DeviceError(f"{where}: copy of {sizes} bytes; expected a source and a target of equal sizes")


def check_buffers(device: str, buffers: Sequence[Buffer], needed: Sequence[int]) -> None:
    """Check that there are as many `buffers` as `needed`, each large enough."""
    if len(buffers) != len(needed):
        raise DeviceError(f"device {device}: submit: {len(buffers)} buffers; expected {len(needed)}")
    for index, (buffer, size) in enumerate(zip(buffers, needed, strict=True)):
        if buffer.bytes < size:
            raise DeviceError(
                f"device {device}: submit: buffer {index} has {buffer.bytes:,} bytes; the work needs {size:,}"
            )


def check_transfer(
    device: str, operation: str, buffer: Buffer, array: np.ndarray[Any, Any], offset: int, *, writes_array: bool
) -> None:
    """Check that `array` is contiguous, fits in `buffer` from byte `offset` on, and is writable if it is written."""
    where = f"device {device}: {operation}"
    check_contiguous(where, array)
    if writes_array and not array.flags.writeable:
        raise DeviceError(f"{where}: the array is read-only; expected one that can be written")
    if offset < 0 or offset + array.nbytes > buffer.bytes:
        raise DeviceError(
            f"{where}: bytes {offset:,} to {offset + array.nbytes:,} of a buffer of {buffer.bytes:,} bytes"
        )


def check_contiguous(where: str, array: np.ndarray[Any, Any]) -> None:
    if not array.flags.c_contiguous:
        raise DeviceError(f"{where}: the array is not contiguous; expected one in C order")


def check_copy(device: str, source: Buffer, target: Buffer) -> None:
    """Check that all of `source` fits in `target`."""
    if source.bytes > target.bytes:
        raise DeviceError(
            f"device {device}: copy: {source.bytes:,} bytes into a buffer of {target.bytes:,} bytes"
        )


def check_byte(device: str, byte: int) -> None:
    if not 0 <= byte <= 255:
        raise DeviceError(f"device {device}: fill: byte {byte}; expected 0 to 255")


def check_scratch(device: str, scratch: int) -> None:
    if scratch < 0:
        raise DeviceError(f"device {device}: record: {scratch} bytes of scratch; expected 0 or more")


def check_open(device: str, closed: bool) -> None:
    if closed:
        raise DeviceError(f"device {device}: it is closed; open it again")


def check_queue(device: str, queue: int, count: int) -> None:
    if not 0 <= queue < count:
        raise DeviceError(f"device {device}: queue {queue}; there are {count}, from 0 on")


def foreign_buffer(device: str) -> DeviceError:
    """The error for a buffer of another device; similarly the next functions."""
    return DeviceError(f"device {device}: a buffer of another device; expected one of its own")


def foreign_executable(device: str) -> DeviceError:
    return DeviceError(f"device {device}: record: the executable is another device's; load its code here")


def foreign_work(device: str) -> DeviceError:
    return DeviceError(f"device {device}: submit: work that was recorded by another device")


def check_size(device: str, size: int) -> None:
    if size < 0:
        raise DeviceError(f"device {device}: allocate: {size} bytes; expected 0 or more")


def offset_of(structure: np.dtype[np.void], name: str) -> int:
    """The offset of a field in bytes."""
    return next(place[1] for field, place in (structure.fields or {}).items() if field == name)


def bytes_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A contiguous array's memory as `u8`, without a copy."""
    return array.reshape(-1).view(np.uint8)
