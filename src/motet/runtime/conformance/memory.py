"""Area `memory`: allocation, and transfers to, from and within a device, compared with numpy."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable

import numpy as np

from motet.errors import DeviceError, OutOfMemoryError
from motet.runtime.conformance.check import Array, Skip, expect, expect_equal, expect_error
from motet.runtime.conformance.trial import DeviceTrial, bits, finish
from motet.runtime.device import Buffer

ALIGNMENT = 64
SIZES = (0, 1, 2, 3, 7, 63, 64, 65, 127, 1009, 4095, 4096, 4097, 65537, (1 << 20) + 1)


def allocate_sizes(trial: DeviceTrial) -> None:
    """`allocate` returns any number of bytes from 0 on, aligned to 64, disjoint from all other memory."""
    buffers = [trial.device.allocate(size) for size in SIZES for _ in range(2)]
    wanted = [size for size in SIZES for _ in range(2)]
    for buffer, size in zip(buffers, wanted, strict=True):
        expect(buffer.bytes == size, f"allocate({size}) gave {buffer.bytes} bytes")
        misaligned = bool(size) and buffer.address % ALIGNMENT != 0
        expect(not misaligned, f"allocate({size}) is at {buffer.address:#x}; expected a multiple of {ALIGNMENT}")
    ranges = sorted((buffer.address, buffer.address + buffer.bytes) for buffer in buffers if buffer.bytes)
    for (_, end), (begin, _) in itertools.pairwise(ranges):
        expect(end <= begin, f"two buffers overlap at {begin:#x}")


def allocate_negative(trial: DeviceTrial) -> None:
    """A negative size is a DeviceError."""
    expect_error(DeviceError, lambda: trial.device.allocate(-1), "allocate(-1)")


def allocate_too_much(trial: DeviceTrial) -> None:
    """An allocation that is too large is an OutOfMemoryError that states size and device; the device stays usable."""
    device = trial.device
    sizes = [1 << 62]
    if not device.info.host_memory and device.info.memory:
        sizes.append(device.info.memory + 1)
    for size in sizes:
        error = expect_error(OutOfMemoryError, lambda size=size: device.allocate(size), f"allocate({size:,})")
        assert isinstance(error, OutOfMemoryError)
        expect(error.bytes == size, f"the error says {error.bytes:,} bytes; asked for were {size:,}")
        expect(trial.subject.info.family in error.device, f"the error is of device {error.device!r}")
    trial.check_works(device, "what was read after that")


def memory_comes_back(trial: DeviceTrial) -> None:
    """The memory of a buffer is freed when the buffer is collected."""
    device = trial.device
    total = device.info.memory or 1 << 30
    size = min(total // 3, 1 << 28)
    while size > 1 and not _can_allocate(trial, size):  # the device may have been opened with a limit
        size //= 2
    for number in range(min(256, 2 * total // max(size, 1) + 8)):
        try:
            buffer = device.allocate(size)
        except OutOfMemoryError as error:
            expect(False, f"after {number} buffers of {size:,} bytes, each gone before the next: {error}")
            return
        if number % 16 == 0:
            finish(device.write(buffer, np.ones(1, np.uint8)), "write")
        del buffer
    gc.collect()


def _can_allocate(trial: DeviceTrial, size: int) -> bool:
    try:
        trial.device.allocate(size)
    except OutOfMemoryError:
        return False
    return True


def write_and_read(trial: DeviceTrial) -> None:
    """`write` and `read` transfer any number of bytes at any offset, and change no other bytes."""
    device, size = trial.device, 70_001
    mirror = trial.bytes_of(size)
    buffer = trial.upload(mirror)
    for _ in range(40):
        offset = int(trial.random.integers(0, size))
        length = int(trial.random.integers(0, min(size - offset, 5000) + 1))
        piece = trial.bytes_of(length)
        mirror[offset : offset + length] = piece
        finish(device.write(buffer, piece, offset), "write")
        begin = int(trial.random.integers(0, size))
        part = np.empty(int(trial.random.integers(0, size - begin + 1)), np.uint8)
        finish(device.read(buffer, part, begin), "read")
        expect_equal(part, mirror[begin : begin + part.size], f"{part.size} bytes read at {begin}")
    expect_equal(trial.download(buffer, mirror), mirror, "the whole buffer")


def large_transfers(trial: DeviceTrial) -> None:
    """Transfers of millions of bytes are exact."""
    data = trial.random.integers(0, 1 << 60, (3 << 20) + 1, np.int64)[1:]  # at an unaligned address
    try:
        first, second = trial.device.allocate(data.nbytes), trial.device.allocate(data.nbytes)
    except OutOfMemoryError as error:
        raise Skip(str(error)) from None
    result = np.empty_like(data)
    point = trial.device.write(first, data)
    point = trial.device.copy(first, second, [point])
    finish(trial.device.read(second, result, 0, [point], trial.device.queues - 1), "read")
    expect_equal(result, data, "what was written, copied and read")


def place(trial: DeviceTrial) -> None:
    """Arrays placed together each have separate memory with their content, as long as the buffer is held."""
    together = getattr(trial.device, "place", None)
    if together is None:
        raise Skip("it has no `place` method")
    arrays = [trial.bytes_of(size) for size in SIZES]
    arrays += [trial.random.standard_normal((5, 7)), trial.bytes_of((5 << 20) + 3), np.array(3, np.int16)]
    buffers, point = together(arrays)
    finish(point, "place")
    buffer = None
    for buffer, array in zip(buffers, arrays, strict=True):
        expect(buffer.bytes == array.nbytes, f"{array.nbytes} bytes were given {buffer.bytes}")
        expect(not array.nbytes or buffer.address % ALIGNMENT == 0, f"{array.nbytes} bytes lie at {buffer.address:#x}")
        expect_equal(bits(trial.download(buffer, array)), bits(array), f"the {array.nbytes} bytes")
    kept = list(buffers[1::2])
    del buffers, buffer
    gc.collect()
    others = [trial.upload(np.full(array.nbytes, 7, np.uint8)) for array in arrays]
    for other in kept[::2]:
        finish(trial.device.fill(other, 9), "fill")
    for number, (buffer, array) in enumerate(zip(kept, arrays[1::2], strict=True)):
        expected = bits(array) if number % 2 else np.full(array.nbytes, 9, np.uint8)
        expect_equal(bits(trial.download(buffer, array)), expected, f"the {array.nbytes} bytes, others gone or filled")
    del others
    expect_error(DeviceError, lambda: together([trial.bytes_of(100)[::2]]), "place of a strided array")


def arrays_of_any_kind(trial: DeviceTrial) -> None:
    """Arrays of any dtype and rank are transferred exactly, including NaN and infinities, empty and scalar arrays."""
    random = trial.random
    arrays: list[Array] = [
        random.standard_normal((3, 5, 7)), random.standard_normal(31).astype(np.float16),
        np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32), np.array([[True, False, True]]),
        np.array(7, np.int64), np.zeros((0, 4), np.float32), random.integers(-99, 99, (2, 1, 3), np.int16),
        random.standard_normal(5) + 1j * random.standard_normal(5),
    ]
    for array in arrays:
        copy = trial.download(trial.upload(array), array)
        expect_equal(bits(copy), bits(array), f"{array.shape} of {array.dtype}")


def transfers_are_checked(trial: DeviceTrial) -> None:
    """A transfer that does not fit the buffer, or whose array is not contiguous or not writable, is a DeviceError and
    moves no data."""
    device = trial.device
    data = trial.bytes_of(100)
    buffer = trial.upload(data)
    frozen = np.zeros(100, np.uint8)
    frozen.flags.writeable = False
    cases: dict[str, Callable[[], object]] = {
        "write beyond the end": lambda: device.write(buffer, np.zeros(100, np.uint8), 1),
        "write from a negative offset on": lambda: device.write(buffer, np.zeros(4, np.uint8), -1),
        "write of a strided array": lambda: device.write(buffer, np.zeros(100, np.uint8)[::2]),
        "read beyond the end": lambda: device.read(buffer, np.zeros(101, np.uint8)),
        "read from a negative offset on": lambda: device.read(buffer, np.zeros(4, np.uint8), -1),
        "read into a strided array": lambda: device.read(buffer, np.zeros((10, 10), np.uint8).T),
        "read into a read-only array": lambda: device.read(buffer, frozen),
    }
    for what, action in cases.items():
        expect_error(DeviceError, action, what)
    expect_equal(trial.download(buffer, data), data, "the buffer after that")
    expect(not frozen.any(), "the read-only array was written")


def fill(trial: DeviceTrial) -> None:
    """`fill` sets every byte of a buffer and no others; a value that is not a byte is a DeviceError."""
    for size in (0, 1, 3, 64, 65, 4097, 100_003):
        before, buffer, after = (trial.upload(trial.bytes_of(size)) for _ in range(3))
        left, right = (trial.download(other, np.empty(size, np.uint8)) for other in (before, after))
        for byte in (0, 0x5A, 255):
            finish(trial.device.fill(buffer, byte), "fill")
            expected = np.full(size, byte, np.uint8)
            expect_equal(trial.download(buffer, expected), expected, f"{size} bytes filled with {byte}")
        expect_equal(trial.download(before, left), left, "the buffer before")
        expect_equal(trial.download(after, right), right, "the buffer after")
    buffer = trial.device.allocate(4)
    for byte in (-1, 256):
        expect_error(DeviceError, lambda byte=byte: trial.device.fill(buffer, byte), f"fill with {byte}")


def copy(trial: DeviceTrial) -> None:
    """`copy` copies all of a buffer to the beginning of another one, whose rest is unchanged; a target that is too
    small is a DeviceError."""
    for size in (0, 1, 63, 65, 4097, 100_003):
        data, rest = trial.bytes_of(size), trial.bytes_of(size + 77)
        source, target = trial.upload(data), trial.upload(rest)
        finish(trial.device.copy(source, target), "copy")
        expected = np.concatenate([data, rest[size:]])
        expect_equal(trial.download(target, expected), expected, f"the target of a copy of {size} bytes")
        expect_equal(trial.download(source, data), data, f"the source of a copy of {size} bytes")
    large, small = trial.device.allocate(65), trial.device.allocate(64)
    expect_error(DeviceError, lambda: trial.device.copy(large, small), "copy of 65 bytes to 64")


def adopt(trial: DeviceTrial) -> None:
    """An adopted array is memory of both the device and the host, and stays alive as long as the buffer. A device that
    works on host memory adopts arrays; any other may return None."""
    device = trial.device
    array = trial.random.integers(0, 1 << 30, (7, 9), np.int32)
    expected = array.copy()
    buffer = device.adopt(array)
    if buffer is None:
        expect(not device.info.host_memory, "info.host_memory is set, but adopt gave None")
        raise Skip("it adopts no arrays of the host")
    expect(buffer.bytes == array.nbytes, f"{buffer.bytes} bytes; the array has {array.nbytes}")
    expect_equal(trial.download(buffer, expected), expected, "what was read")
    finish(device.fill(buffer, 3), "fill")
    expect_equal(bits(array), np.full(array.nbytes, 3, np.uint8), "the array after a fill")
    watched = weakref.ref(array)
    del array
    gc.collect()
    expect(watched() is not None, "the array is gone, and the buffer is not")
    del buffer
    gc.collect()
    expect(watched() is None, "the buffer is gone, and still holds the array")


def adopt_read_only(trial: DeviceTrial) -> None:
    """A read-only array is read in place or not adopted; it is never written."""
    array = trial.bytes_of(1001)
    expected = array.copy()
    array.flags.writeable = False
    buffer = trial.device.adopt(array)
    if buffer is None:
        raise Skip("it adopts no read-only arrays of the host")
    expect_equal(trial.download(buffer, expected), expected, "what was read")
    other = trial.upload(np.zeros(1001, np.uint8))
    device = trial.device
    expect_error(DeviceError, lambda: device.fill(buffer, 0), "fill of it")
    expect_error(DeviceError, lambda: device.write(buffer, np.zeros(3, np.uint8)), "write to it")
    expect_error(DeviceError, lambda: device.copy(other, buffer), "copy to it")
    expect_equal(array, expected, "the array after that")


def view(trial: DeviceTrial) -> None:
    """`view` is the buffer's own bytes, addressable by the host, or None."""
    data = trial.bytes_of(999)
    buffer = trial.upload(data)
    seen = trial.device.view(buffer)
    if seen is None:
        raise Skip("the host cannot address its memory")
    expect_equal(seen, data, "the view")
    seen[5:10] = 77
    data[5:10] = 77
    expect_equal(trial.download(buffer, data), data, "what was read after the view was written")
    finish(trial.device.fill(buffer, 9), "fill")
    expect_equal(seen, np.full(999, 9, np.uint8), "the view after a fill")


def view_keeps_memory(trial: DeviceTrial) -> None:
    """The memory of a buffer is not reused while a view of it is alive, and is freed after that."""
    buffer = trial.upload(np.full(4096, 5, np.uint8))
    seen = trial.device.view(buffer)
    if seen is None:
        raise Skip("the host cannot address its memory")
    del buffer
    gc.collect()
    others = [trial.upload(np.full(4096, 6, np.uint8)) for _ in range(8)]
    expect_equal(seen, np.full(4096, 5, np.uint8), "the view, once its buffer was dropped and others were made")
    del others


def foreign_buffers(trial: DeviceTrial) -> None:
    """A buffer of another device is a DeviceError in every operation."""
    device, data = trial.device, np.zeros(16, np.uint8)
    own = trial.upload(data)
    foreign = trial.neighbour().allocate(16)
    cases: dict[str, Callable[[], object]] = {
        "write to it": lambda: device.write(foreign, data),
        "read from it": lambda: device.read(foreign, data),
        "copy from it": lambda: device.copy(foreign, own),
        "copy to it": lambda: device.copy(own, foreign),
        "fill of it": lambda: device.fill(foreign, 1),
        "view of it": lambda: device.view(foreign),
    }
    for what, action in cases.items():
        expect_error(DeviceError, action, f"another device's buffer: {what}")


def dropped_in_flight(trial: DeviceTrial) -> None:
    """A device keeps the buffers and arrays of submitted work alive until it has ended."""
    device, gate = trial.device, trial.gate()
    size = 8192
    target = np.zeros(size, np.uint8)
    first, second = device.allocate(size), device.allocate(size)
    written = device.write(first, np.full(size, 42, np.uint8), 0, [gate.point])
    copied = device.copy(first, second, [written])
    read = device.read(second, target, 0, [copied])
    filled = device.fill(device.allocate(size), 1, [gate.point])
    del first, second
    gc.collect()
    others: list[Buffer] = [device.allocate(size) for _ in range(8)]
    gate.open()
    finish(read, "read")
    finish(filled, "fill")
    expect_equal(target, np.full(size, 42, np.uint8), "what was read from buffers that the caller had dropped")
    del others


CHECKS = (
    allocate_sizes, allocate_negative, allocate_too_much, memory_comes_back, write_and_read, large_transfers,
    place, arrays_of_any_kind, transfers_are_checked, fill, copy, adopt, adopt_read_only, view, view_keeps_memory,
    foreign_buffers, dropped_in_flight,
)
