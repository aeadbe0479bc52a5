"""Area `code`: loading the compiler's output, and launching single kernels."""

from __future__ import annotations

import numpy as np

from motet.artifact.schema import Variant
from motet.errors import DeviceError
from motet.runtime.conformance.check import expect, expect_equal, expect_error
from motet.runtime.conformance.kernels import EDGES, GATHERED, KERNELS
from motet.runtime.conformance.trial import DeviceTrial, affine_of, finish
from motet.runtime.device import Reference, Work


def obstacles(trial: DeviceTrial) -> None:
    """`obstacle` is None for code that the device runs, and a reason for another family's code and for code that needs
    a feature which the device lacks."""
    device = trial.device
    reason = device.obstacle(Variant("no-such-family", "none", "none-none-none", [], [], {}))
    expect(isinstance(reason, str) and bool(reason), f"code of another family: {reason!r}; expected a reason")
    own = device.obstacle(trial.variant())
    expect(own is None, f"its own code: {own!r}; expected None")
    reason = device.obstacle(trial.variant("no-such-feature"))
    expect(isinstance(reason, str) and "no-such-feature" in reason, f"code that needs no-such-feature: {reason!r}; "
           "expected a reason that names it")


def load_lists_kernels(trial: DeviceTrial) -> None:
    """An executable lists the kernels of all its objects."""
    found = trial.load(None, "many").kernels
    missing = [name for name in KERNELS if name not in found]
    expect(not missing, f"{', '.join(missing)} not in the kernels: {', '.join(found) or 'none'}")


def load_garbage(trial: DeviceTrial) -> None:
    """Loading data that is not code, or is truncated, raises a DeviceError; the device stays usable."""
    expect_error(DeviceError, lambda: trial.device.load([b"no code at all"], ["no.o"]), "load of garbage", ["no.o"])
    objects, names = trial.code.files("kernels")
    objects[0] = objects[0][:200]
    expect_error(DeviceError, lambda: trial.device.load(objects, names), "load of a part of an object", names[:1])
    trial.check_works(trial.device, "what was read after that")


def load_unresolved(trial: DeviceTrial) -> None:
    """Loading code that calls an undefined symbol raises a DeviceError that names the symbol."""
    files = trial.code.files("unresolved")
    expect_error(DeviceError, lambda: trial.device.load(*files), "load", ["motet_conformance_missing"])


def load_objects_together(trial: DeviceTrial) -> None:
    """Objects that are loaded together see each other's symbols."""
    out = trial.upload(np.zeros(101, np.int64))
    finish(trial.launch(trial.load(), "call_helper", [out], 101), "launch")
    numbers = np.arange(101)
    expect_equal(trial.download(out, numbers), 7 - numbers * numbers, "what a function of another object gave")


def load_many(trial: DeviceTrial) -> None:
    """Many executables can be loaded at the same time, and freeing one does not affect the others."""
    x = trial.random.integers(-99, 99, 13, np.int32)
    kept = trial.load()
    for number in range(20):
        executable = trial.load()
        buffers = [trial.upload(x), trial.upload(np.zeros_like(x))]
        finish(trial.launch(executable, "affine", buffers, 13, [number]), "launch")
        expect_equal(trial.download(buffers[1], x), affine_of(x, [number]), f"the {number + 1}. executable's result")
        del executable
    buffers = [trial.upload(x), trial.upload(np.zeros_like(x))]
    finish(trial.launch(kept, "affine", buffers, 13, [5]), "launch")
    expect_equal(trial.download(buffers[1], x), affine_of(x, [5]), "the first executable's result")


def tasks_run_once(trial: DeviceTrial) -> None:
    """A launch runs each of its tasks exactly once, however many there are."""
    executable = trial.load()
    for tasks in (0, 1, 2, 7, 64, 1009, 100_003):
        out = trial.upload(np.zeros(tasks + 3, np.int32))
        finish(trial.launch(executable, "count", [out], tasks), f"launch of {tasks} tasks")
        expected = np.array([1] * tasks + [0] * 3, np.int32)
        expect_equal(trial.download(out, expected), expected, f"how often each of {tasks} tasks ran, and 3 beyond")


def sizes_arrive(trial: DeviceTrial) -> None:
    """A kernel receives the sizes of its launch unchanged, as signed 64-bit integers."""
    out = trial.upload(np.ones(len(EDGES), np.int64))
    finish(trial.launch(trial.load(), "show_sizes", [out], len(EDGES), EDGES), "launch")
    expected = np.array(EDGES, np.int64)
    expect_equal(trial.download(out, expected), expected, "the sizes that the kernel saw")


def references_have_offsets(trial: DeviceTrial) -> None:
    """A kernel receives the address of each reference, at any offset of its external, in order."""
    data = trial.bytes_of(10_007)
    places = [int(place) for place in trial.random.integers(0, data.size, GATHERED)]
    source, out = trial.upload(data), trial.upload(np.zeros(GATHERED + 4, np.uint8))
    references = [Reference(1, 3, len(places)), *(Reference(0, place, 1) for place in places)]
    work = Work("launch", tuple(references), "gather", len(places))
    recorded = trial.device.record(trial.load(None, "many"), [work], 2, 0)
    finish(trial.device.submit(recorded, [source, out]), "launch")
    expected = np.zeros(GATHERED + 4, np.uint8)
    expected[3:-1] = data[places]
    expect_equal(trial.download(out, expected), expected, "a byte from behind each address")


def many_buffers(trial: DeviceTrial) -> None:
    """A launch may refer to hundreds of buffers."""
    data = trial.bytes_of(GATHERED)
    pieces = [trial.upload(data[index : index + 1]) for index in range(GATHERED)]
    out = trial.upload(np.zeros(GATHERED, np.uint8))
    finish(trial.launch(trial.load(None, "many"), "gather", [out, *pieces], GATHERED), "launch")
    expect_equal(trial.download(out, data), data, f"a byte of each of {GATHERED} buffers")


def scratch_is_private(trial: DeviceTrial) -> None:
    """A kernel has the requested scratch memory, aligned to 64 bytes, which no other thread uses at the same time."""
    executable, tasks = trial.load(), 777
    for words in (0, 1, 9, 1021, 16_384):
        out = trial.upload(np.zeros(tasks, np.int64))
        finish(trial.launch(executable, "use_scratch", [out], tasks, [words], 8 * words), "launch")
        result = trial.download(out, np.zeros(tasks, np.int64))
        if words:
            expect(not (result % 64).any(), f"scratch of {8 * words} bytes is not aligned to 64")
        expected = np.arange(tasks) * words + words * (words - 1) // 2
        expect_equal(result // 64, expected, f"sums over {8 * words} bytes of scratch")


def floats_are_exact(trial: DeviceTrial) -> None:
    """Products and sums of 32-bit floats follow IEEE 754, including NaN, infinities, zeros and denormals."""
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 3.4e38, 1.0, -1.5], np.float32)
    ordinary = trial.random.standard_normal((3, 1013)).astype(np.float32)
    a, x, b = (np.concatenate([trial.random.permutation(special), row]) for row in ordinary)
    buffers = [trial.upload(array) for array in (a, x, b, np.zeros_like(a))]
    finish(trial.launch(trial.load(), "multiply_add", buffers, a.size), "launch")
    with np.errstate(all="ignore"):
        expected = a * x + b
    result = trial.download(buffers[3], expected)
    expect_equal(result, expected, "a * x + b")
    numbers = ~np.isnan(expected)
    expect_equal(np.signbit(result)[numbers], np.signbit(expected)[numbers], "signs of a * x + b")


def library_calls(trial: DeviceTrial) -> None:
    """Kernels may call memcpy and memset, which compilers insert."""
    data, other = trial.bytes_of(5003), trial.bytes_of(400)
    buffers = [trial.upload(array) for array in (data, np.zeros_like(data), other)]
    finish(trial.launch(trial.load(), "move", buffers, 1, [4999, 333, 7]), "launch")
    moved = np.concatenate([data[:4999], np.zeros(4, np.uint8)])
    expect_equal(trial.download(buffers[1], moved), moved, "what memcpy moved")
    other[:333] = 7
    expect_equal(trial.download(buffers[2], other), other, "what memset set")


CHECKS = (
    obstacles, load_lists_kernels, load_garbage, load_unresolved, load_objects_together, load_many, tasks_run_once,
    sizes_arrive, references_have_offsets, many_buffers, scratch_is_private, floats_are_exact, library_calls,
)
