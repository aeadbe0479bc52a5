"""Area `code`, case by case: numbers of tasks, arguments at their limits, offsets, scratch memory, kinds of floats."""

from __future__ import annotations

import numpy as np

from motet.errors import DeviceError
from motet.runtime.conformance.check import expect_equal, expect_error
from motet.runtime.conformance.kernels import EDGES
from motet.runtime.conformance.listing import each
from motet.runtime.conformance.trial import DeviceTrial, affine_of, bits, finish
from motet.runtime.device import Reference, Work

_GUARD = 5  # elements after those that tasks write


def tasks_run(trial: DeviceTrial, tasks: int) -> None:
    """A launch of {} tasks runs each exactly once and none beyond, however often it is launched."""
    executable, out = trial.load(), trial.upload(np.zeros(tasks + _GUARD, np.int32))
    for lap in range(1, 4):
        finish(trial.launch(executable, "count", [out], tasks, queue=lap % trial.device.queues), "launch")
        expected = np.array([lap] * tasks + [0] * _GUARD, np.int32)
        expect_equal(trial.download(out, expected), expected, f"how often each task ran in {lap} launches")


def sizes_of_bits(trial: DeviceTrial, width: int) -> None:
    """A kernel receives sizes at the limits of {} bits unchanged: none is narrowed or loses its sign."""
    half = 1 << (width - 1)
    values = [half - 1, -half, 1 - half, -1, half >> 1, *((half, 2 * half - 1) if width < 64 else (1, half - 2))]
    assert len(values) == len(EDGES)  # the kernel of some devices has this number of parameters
    out = trial.upload(np.ones(len(values), np.int64))
    finish(trial.launch(trial.load(), "show_sizes", [out], len(values), values), "launch")
    expected = np.array(values, np.int64)
    expect_equal(trial.download(out, expected), expected, "the sizes that the kernel saw")


def at_offset(trial: DeviceTrial, offset: int) -> None:
    """A kernel gets the address of byte {} of a buffer, and changes nothing before or behind its reference."""
    count = 77
    x, mirror = trial.random.integers(-99, 99, count, np.int32), trial.bytes_of(offset + 4 * count + 64)
    given = np.concatenate([trial.bytes_of(offset), bits(x)])
    buffers = [trial.upload(given), trial.upload(mirror)]
    places = (Reference(0, offset, 4 * count), Reference(1, offset, 4 * count))
    recorded = trial.device.record(trial.load(), [Work("launch", places, "affine", count, (3,))], 2, 0)
    finish(trial.device.submit(recorded, buffers), "launch")
    mirror[offset : offset + 4 * count] = bits(affine_of(x, [3]))
    expect_equal(trial.download(buffers[1], mirror), mirror, "the buffer that the kernel wrote")
    expect_equal(trial.download(buffers[0], given), given, "the buffer that it read")


def scratch_of(trial: DeviceTrial, size: int) -> None:
    """Kernels that ask for {} bytes of scratch memory have them, aligned to 64, on every queue at the same time."""
    executable, tasks, words = trial.load(), 41, size // 8
    outs = [trial.upload(np.zeros(tasks, np.int64)) for _ in trial.queues]
    points = [
        trial.launch(executable, "use_scratch", [out], tasks, [words], size, queue=queue)
        for queue, out in enumerate(outs)
    ]
    numbers = np.arange(tasks)
    for queue, (point, out) in enumerate(zip(points, outs, strict=True)):
        finish(point, f"launch on queue {queue}")
        expected = (numbers * words + words * (words - 1) // 2) * 64
        expect_equal(trial.download(out, expected), expected, f"queue {queue}: sums, and the misalignment")


def floats_of(trial: DeviceTrial, kind: str) -> None:
    """Products and sums of 32-bit floats are IEEE 754's: {}."""
    tiny, huge = 2.0**-149, float(np.finfo(np.float32).max)
    values: dict[str, list[float]] = {
        "subnormal": [tiny, -tiny, 3 * tiny, 2.0**-126, 0.5, 2.0, -1.0, 0.0],
        "overflowing": [huge, -huge, huge / 2, 2.0, -2.0, 1.0, 0.0, 1e30],
        "infinite": [np.inf, -np.inf, 0.0, 1.0, -1.0, huge, tiny, 2.0],
        "nan": [np.nan, -np.nan, np.inf, 0.0, 1.0, -1.0, huge, tiny],
        "signed-zero": [0.0, -0.0, 1.0, -1.0, tiny, -tiny, 2.0, -2.0],
        "rounded": [1 + 2**-23, 1 + 2**-12, 1 - 2**-24, 2**24, 2**-24, 1 / 3, -1.5, 16_777_215.0],
    }
    chosen = np.array(values[kind], np.float32)
    a, x, b = (np.ascontiguousarray(axis.ravel()) for axis in np.meshgrid(chosen, chosen, chosen))
    buffers = [trial.upload(array) for array in (a, x, b, np.zeros_like(a))]
    finish(trial.launch(trial.load(), "multiply_add", buffers, a.size), "launch")
    with np.errstate(all="ignore"):
        product = a * x
        expected = product + b
    result = trial.download(buffers[3], expected)
    expect_equal(result, expected, "a * x + b")
    numbers = ~np.isnan(expected)
    expect_equal(np.signbit(result)[numbers], np.signbit(expected)[numbers], "the signs of a * x + b")


def moved_by_kernel(trial: DeviceTrial, size: int) -> None:
    """A kernel that copies and clears {} bytes, which compilers do by memcpy and memset, changes these alone."""
    data, rest, other = (trial.bytes_of(size + 70) for _ in range(3))
    buffers = [trial.upload(array) for array in (data, rest, other)]
    finish(trial.launch(trial.load(), "move", buffers, 1, [size, size, 0xEE]), "launch")
    rest[:size], other[:size] = data[:size], 0xEE
    expect_equal(trial.download(buffers[1], rest), rest, "what was copied to")
    expect_equal(trial.download(buffers[2], other), other, "what was set")


def truncated(trial: DeviceTrial, percent: int) -> None:
    """Loading the first {} % of an object is a DeviceError that names it; the device stays usable."""
    objects, names = trial.code.files("kernels")
    objects[0] = objects[0][: len(objects[0]) * percent // 100]
    expect_error(DeviceError, lambda: trial.device.load(objects, names), "load", names[:1])
    out = trial.upload(np.zeros(3, np.int32))
    finish(trial.launch(trial.load(), "count", [out], 3), "a launch of undamaged code after that")
    expect_equal(trial.download(out, np.ones(3, np.int32)), np.ones(3, np.int32), "what it counted")


CHECKS = (
    each(tasks_run, (0, 1, 2, 7, 31, 33, 63, 65, 127, 129, 257, 1009, 4097, 65_537)),
    each(sizes_of_bits, (8, 16, 32, 33, 53, 64)), each(at_offset, (4, 12, 60, 64, 68, 252, 4092, 65_540)),
    each(scratch_of, (8, 64, 72, 1016, 8192)),
    each(floats_of, ("subnormal", "overflowing", "infinite", "nan", "signed-zero", "rounded")),
    each(moved_by_kernel, (0, 1, 7, 8, 63, 65, 4097)), each(truncated, (0, 10, 50, 90)),
)
