"""Area `memory`, case by case: the sizes, offsets, alignments and dtypes at which transfers go wrong, one a check."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from motet.errors import DeviceError, OutOfMemoryError
from motet.runtime.conformance.check import Array, Skip, expect, expect_equal, expect_error
from motet.runtime.conformance.listing import each
from motet.runtime.conformance.operations import KINDS, operation
from motet.runtime.conformance.trial import DeviceTrial, bits, finish
from motet.runtime.device import Buffer

# Nothing, one, a prime, and around what is moved at once: words, vectors, cache lines, pages.
SIZES = (0, 1, 7, 8, 9, 63, 65, 257, 1009, 4095, 4097, 65_537)
OFFSETS = (0, 1, 2, 3, 4, 7, 8, 31, 63, 64, 65)
DTYPES = ("bool", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64",
          "complex128", ">i4", ">f8")  # fmt: skip
_MOST_EXHAUSTED = 1 << 30  # bytes of a device whose memory is used up


def write_at(trial: DeviceTrial, size: int) -> None:
    """A write of {} bytes at any offset changes these bytes, and none before or after them."""
    mirror = trial.bytes_of(size + 2 * max(OFFSETS))
    buffer = trial.upload(mirror)
    for offset in OFFSETS:
        piece = trial.bytes_of(size)
        mirror[offset : offset + size] = piece
        finish(trial.device.write(buffer, piece, offset), "write")
        expect_equal(trial.download(buffer, mirror), mirror, f"the buffer after a write at {offset}")


def read_at(trial: DeviceTrial, size: int) -> None:
    """A read of {} bytes at any offset gives these bytes, and changes no memory of the host around its array."""
    data = trial.bytes_of(size + max(OFFSETS))
    buffer = trial.upload(data)
    for offset in OFFSETS:
        around = np.full(size + 128, 0xEE, np.uint8)
        finish(trial.device.read(buffer, around[64 : 64 + size], offset), "read")
        expected = np.full(size + 128, 0xEE, np.uint8)
        expected[64 : 64 + size] = data[offset : offset + size]
        expect_equal(around, expected, f"the host's memory after a read at {offset}")


def copy_of(trial: DeviceTrial, size: int) -> None:
    """A copy of {} bytes moves them all, to a buffer of the same size and to a larger one whose rest it leaves."""
    data = trial.bytes_of(size)
    source = trial.upload(data)
    for more in (0, 1, 64):
        rest = trial.bytes_of(size + more)
        target = trial.upload(rest)
        finish(trial.device.copy(source, target), "copy")
        expected = np.concatenate([data, rest[size:]])
        expect_equal(trial.download(target, expected), expected, f"a target with {more} bytes more")
    expect_equal(trial.download(source, data), data, "the source")


def fill_of(trial: DeviceTrial, size: int) -> None:
    """A fill of {} bytes sets them all, and none of the buffers allocated around it."""
    guards = [trial.bytes_of(64) for _ in range(2)]
    first = trial.upload(guards[0])
    buffer = trial.upload(trial.bytes_of(size))
    second = trial.upload(guards[1])
    for byte in (0, 1, 0x80, 0xFF):
        finish(trial.device.fill(buffer, byte), "fill")
        expected = np.full(size, byte, np.uint8)
        expect_equal(trial.download(buffer, expected), expected, f"filled with {byte}")
    for guard, expected in zip((first, second), guards, strict=True):
        expect_equal(trial.download(guard, expected), expected, "a buffer next to it")


def dtype(trial: DeviceTrial, name: str) -> None:
    """Arrays of dtype {} arrive bit for bit, with any number of elements and axes."""
    kind = np.dtype(name)
    for shape in ((0,), (1,), (63,), (65,), (3, 0, 2), (7, 11), (2, 3, 1, 5), ()):
        count = int(np.prod(shape))
        raw = trial.random.integers(0, 2 if name == "bool" else 256, count * kind.itemsize, np.uint8)
        array = raw.view(kind).reshape(shape)
        buffer = trial.upload(array)
        expect(buffer.bytes == array.nbytes, f"{shape} has {buffer.bytes} bytes; expected {array.nbytes}")
        expect_equal(bits(trial.download(buffer, array)), bits(array), f"the bytes of {shape}")


def host_alignment(trial: DeviceTrial, shift: int) -> None:
    """Arrays of the host whose address is {} bytes beyond a multiple of 64 are written and read like others."""
    for size in (1, 64, 1009, 70_001):
        room = np.zeros(size + 192, np.uint8)
        begin = (-room.ctypes.data % 64) + shift
        data = trial.bytes_of(size)
        room[begin : begin + size] = data
        buffer = trial.device.allocate(size)
        finish(trial.device.write(buffer, room[begin : begin + size]), "write")
        room[:] = 0
        finish(trial.device.read(buffer, room[begin : begin + size]), "read")
        expected = np.zeros_like(room)
        expected[begin : begin + size] = data
        expect_equal(room, expected, f"the host's memory after {size} bytes were written and read back")


def offset_refused(trial: DeviceTrial, offset: int) -> None:
    """A transfer to or from byte {} of a buffer of 100 bytes does not fit: a DeviceError, and no byte is moved."""
    device, data = trial.device, trial.bytes_of(100)
    buffer, target = trial.upload(data), np.zeros(1, np.uint8)
    expect_error(DeviceError, lambda: device.write(buffer, np.zeros(1, np.uint8), offset), "write of 1 byte")
    expect_error(DeviceError, lambda: device.read(buffer, target, offset), "read of 1 byte")
    expect_equal(trial.download(buffer, data), data, "the buffer after that")


def nothing_at_the_end(trial: DeviceTrial) -> None:
    """A transfer of no bytes at the end of a buffer, or of an empty one, succeeds."""
    device, nothing = trial.device, np.zeros(0, np.uint8)
    for size in (0, 1, 64):
        data = trial.bytes_of(size)
        buffer = trial.upload(data)
        finish(device.write(buffer, nothing, size), "write")
        finish(device.read(buffer, nothing.copy(), size), "read")
        finish(device.copy(device.allocate(0), buffer), "copy of an empty buffer")
        expect_equal(trial.download(buffer, data), data, f"the buffer of {size} bytes after that")


def strided_refused(trial: DeviceTrial, layout: str) -> None:
    """A write from and a read into an array whose elements are {} in memory raise a DeviceError; nothing is moved."""
    device, square = trial.device, np.zeros((8, 8), np.uint8)
    arrays: dict[str, Array] = {
        "apart": np.zeros(128, np.uint8)[::2], "reversed": np.zeros(64, np.uint8)[::-1], "transposed": square.T,
        "a-column": square[:, 2:3], "repeated": np.broadcast_to(np.zeros(1, np.uint8), (64,)),
    }
    data = trial.bytes_of(64) | 1
    buffer = trial.upload(data)
    expect_error(DeviceError, lambda: device.write(buffer, arrays[layout]), "write")
    expect_error(DeviceError, lambda: device.read(buffer, arrays[layout]), "read")
    expect(not arrays[layout].any(), "the array was written")
    expect_equal(trial.download(buffer, data), data, "the buffer after that")


def write_from_read_only(trial: DeviceTrial) -> None:
    """`write` takes arrays that cannot be written: constants of a program are mapped from its file."""
    data = trial.bytes_of(5003)
    frozen = data.copy()
    frozen.flags.writeable = False
    expect_equal(trial.download(trial.upload(frozen), data), data, "what was read")


def queue_refused(trial: DeviceTrial, kind: str) -> None:
    """A {} on a queue that the device does not have is a DeviceError, and does not run."""
    done = operation(trial, kind)
    for queue in (-1, trial.device.queues, trial.device.queues + 100, 1 << 40):
        expect_error(DeviceError, lambda queue=queue: done.start((), queue), f"queue {queue}")
    done.expect_untouched("after that")
    finish(done.start((), trial.device.queues - 1), "the same on a queue that there is")
    done.expect_done("after that")


def copy_onto_itself(trial: DeviceTrial) -> None:
    """A copy of a buffer onto itself leaves it unchanged, or is a DeviceError."""
    data = trial.bytes_of(4099)
    buffer = trial.upload(data)
    try:
        point = trial.device.copy(buffer, buffer)
    except DeviceError:
        point = None
    if point is not None:
        finish(point, "copy")
    expect_equal(trial.download(buffer, data), data, "the buffer")


def buffers_alive(trial: DeviceTrial, count: int) -> None:
    """{} buffers at the same time keep their contents while every second one is freed and its memory used again."""
    sizes = [int(size) for size in trial.random.integers(0, 300, count)]
    contents = [trial.bytes_of(size) for size in sizes]
    buffers: list[Buffer] = [trial.upload(data) for data in contents]
    for number in range(0, count, 2):
        contents[number] = trial.bytes_of(int(trial.random.integers(0, 300)))
        buffers[number] = trial.upload(contents[number])
    for number, (buffer, data) in enumerate(zip(buffers, contents, strict=True)):
        expect_equal(trial.download(buffer, data), data, f"buffer {number}")


def exhausted_and_freed(trial: DeviceTrial) -> None:
    """Memory can be used up: the next allocation is an OutOfMemoryError, work continues, and once buffers are freed
    there is room for as much again."""
    device = trial.device
    if device.info.host_memory or not 0 < device.info.memory <= _MOST_EXHAUSTED:
        raise Skip("it does not report between 1 byte and 1 GiB of memory, apart from the host's")
    size = max(64, device.info.memory // 16)

    def fill_up() -> list[Buffer]:
        held: list[Buffer] = []
        try:
            while len(held) <= 17:
                held.append(device.allocate(size))
        except OutOfMemoryError:
            return held
        expect(False, f"{len(held)} buffers of {size:,} bytes fit in {device.info.memory:,} bytes")
        return held

    held = fill_up()
    most = len(held)
    expect(most > 0, f"no buffer of {size:,} bytes, a sixteenth of the memory, could be allocated")
    finish(device.fill(held[0], 3), "fill, with all memory used up")
    for lap in range(3):
        held.clear()
        held = fill_up()
        expect(len(held) == most, f"time {lap + 2}: {len(held)} buffers; the first time there was room for {most}")
    held.clear()
    trial.check_works(device, "what was read after that")


def adopt_aligned(trial: DeviceTrial, shift: int) -> None:
    """A host array whose address is {} bytes beyond a multiple of 64 is adopted in place, or not at all."""
    room = np.zeros(1200, np.uint8)
    begin = (-room.ctypes.data % 64) + shift
    array = room[begin : begin + 1009]
    array[:] = trial.bytes_of(1009)
    expected = room.copy()
    buffer = trial.device.adopt(array)
    if buffer is None:
        raise Skip("it does not adopt such arrays of the host")
    expect_equal(trial.download(buffer, array), expected[begin : begin + 1009], "what was read")
    finish(trial.device.fill(buffer, 7), "fill")
    expected[begin : begin + 1009] = 7
    expect_equal(room, expected, "the host's memory after a fill")


def foreign_refused(trial: DeviceTrial) -> None:
    """What is no buffer of the device in any way (None, an array, bytes) is a DeviceError in every operation."""
    device, data = trial.device, np.zeros(16, np.uint8)
    own = trial.upload(data)
    for thing in (None, data, b"0123456789abcdef"):
        cases: dict[str, Callable[[], object]] = {
            "write to": lambda thing=thing: device.write(thing, data),  # type: ignore[arg-type]
            "read from": lambda thing=thing: device.read(thing, data),  # type: ignore[arg-type]
            "copy to": lambda thing=thing: device.copy(own, thing),  # type: ignore[arg-type]
            "fill of": lambda thing=thing: device.fill(thing, 1),  # type: ignore[arg-type]
        }
        for what, action in cases.items():
            expect_error(DeviceError, action, f"{what} an object of type {type(thing).__name__}")
    expect_equal(trial.download(own, data), data, "a buffer after that")


CHECKS = (
    each(write_at, SIZES), each(read_at, SIZES), each(copy_of, SIZES), each(fill_of, SIZES), each(dtype, DTYPES),
    each(host_alignment, (1, 2, 4, 8, 32)), each(offset_refused, (-1, 100, 1 << 31, 1 << 32, 1 << 63)),
    nothing_at_the_end, each(strided_refused, ("apart", "reversed", "transposed", "a-column", "repeated")),
    write_from_read_only, each(queue_refused, KINDS), copy_onto_itself, each(buffers_alive, (100, 1000)),
    exhausted_and_freed, each(adopt_aligned, (0, 1, 4, 32)), foreign_refused,
)
