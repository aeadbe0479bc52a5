"""Area `commands`, case by case: recorded copies, references at their limits, random work, memory that callers drop."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import numpy as np

from motet.errors import DeviceError
from motet.runtime.conformance.check import Array, expect, expect_equal, expect_error
from motet.runtime.conformance.listing import each
from motet.runtime.conformance.operations import KINDS, operation
from motet.runtime.conformance.trial import PATIENCE, DeviceTrial, Hazards, affine_of, finish
from motet.runtime.device import Reference, Work
from motet.runtime.timeline import Point


def recorded_copy_of(trial: DeviceTrial, size: int) -> None:
    """A recorded copy of {} bytes, from any offset to any other, between buffers and within one, moves these alone."""
    for source_at, target_at in ((0, 0), (1, 0), (0, 3), (7, 64), (65, 1)):
        mirrors = [trial.bytes_of(size + 80), trial.bytes_of(2 * size + 160)]
        buffers = [trial.upload(mirror) for mirror in mirrors]
        half = size + 80
        work = [
            Work("copy", (Reference(0, source_at, size), Reference(1, target_at, size))),
            Work("copy", (Reference(1, target_at, size), Reference(1, half + source_at, size)), after=(0,)),
        ]
        recorded = trial.device.record(trial.load(), work, 2, 0)
        finish(trial.device.submit(recorded, buffers), "submission")
        piece = mirrors[0][source_at : source_at + size]
        mirrors[1][target_at : target_at + size] = piece
        mirrors[1][half + source_at : half + source_at + size] = piece
        for buffer, mirror in zip(buffers, mirrors, strict=True):
            expect_equal(trial.download(buffer, mirror), mirror, f"a buffer, from {source_at} to {target_at}")


def externals_of(trial: DeviceTrial, count: int) -> None:
    """A submission takes {} buffers, each in its place, in any order and the same one several times."""
    x = trial.random.integers(-99, 99, (count, 9), np.int32)
    work = [Work("launch", (Reference(number, 0, 36),) * 2, "affine", 9, (number,)) for number in range(count)]
    recorded = trial.device.record(trial.load(), work, count, 0)
    expect(recorded.externals == count, f"externals is {recorded.externals}; recorded for {count}")
    buffers = [trial.upload(row) for row in x]
    order = [int(place) for place in trial.random.permutation(count)]
    finish(trial.device.submit(recorded, [buffers[place] for place in order]), "submission")
    for number, place in enumerate(order):
        expected = affine_of(x[place], [number])
        expect_equal(trial.download(buffers[place], expected), expected, f"external {number}")


def commands_of(trial: DeviceTrial, count: int) -> None:
    """{} commands of one command buffer, of which every third waits for the one before it, all run once."""
    out = trial.upload(np.zeros(count, np.int32))
    work = [
        Work("launch", (Reference(0, 4 * (index - (index % 3 == 2)), 4),), "count", 1,
             after=(index - 1,) if index % 3 == 2 else ())
        for index in range(count)
    ]
    recorded = trial.device.record(trial.load(), work, 1, 0)
    finish(trial.device.submit(recorded, [out]), "submission")
    expected = np.zeros(count, np.int32)
    np.add.at(expected, [index - (index % 3 == 2) for index in range(count)], 1)
    expect_equal(trial.download(out, expected), expected, "how often each place was counted")


def random_commands(trial: DeviceTrial, seed: int) -> None:
    """Random launches and copies of ranges of several lengths that overlap, ordered only where they conflict, leave
    what sequential execution does; seed {}."""
    random = np.random.default_rng(1000 + seed)
    unit, units = 16, 40  # bytes, ordered by themselves
    mirror = random.integers(0, 256, (2, unit * units), np.uint8)
    buffers = [trial.upload(row) for row in mirror]
    work, order = list[Work](), Hazards()
    for index in range(60):
        length = int(random.integers(1, 6))
        source, target = (int(number) for number in random.integers(0, units - length + 1, 2))
        first = int(random.integers(0, 2))
        second = 1 - first
        places = (Reference(first, unit * source, unit * length), Reference(second, unit * target, unit * length))
        read = [first * units + source + number for number in range(length)]
        written = [second * units + target + number for number in range(length)]
        after = order.add(index, read, written)
        data = mirror[first, unit * source : unit * (source + length)].copy()
        if random.random() < 0.4:
            work.append(Work("copy", places, after=after))
        else:
            work.append(Work("launch", places, "affine", unit * length // 4, (index,), after))
            data = affine_of(data.view(np.int32), [index]).view(np.uint8)
        mirror[second, unit * target : unit * (target + length)] = data
    finish(trial.device.submit(trial.device.record(trial.load(), work, 2, 0), buffers), "submission")
    for buffer, row in zip(buffers, mirror, strict=True):
        expect_equal(trial.download(buffer, row), row, "a buffer after 60 commands")


def command_refused(trial: DeviceTrial, what: str) -> None:
    """A command that is invalid, here {}, is a DeviceError when it is recorded or submitted, and nothing runs."""
    one, far = Reference(0, 0, 4), 1 << 62
    cases: dict[str, Sequence[Work]] = {
        "far-offset": [Work("launch", (Reference(0, far, 4),), "count")],
        "far-end": [Work("copy", (Reference(0, 0, far), Reference(0, 0, far)))],
        "one-byte-more": [Work("launch", (Reference(0, 0, 65),), "count")],
        "one-byte-behind": [Work("copy", (one, Reference(0, 61, 4)))],
        "negative-external": [Work("launch", (Reference(-1, 0, 4),), "count")],
        "no-kernel": [Work("launch", (one,), "")],
        "copy-of-three": [Work("copy", (one, one, one))],
        "more-tasks-than-numbers": [Work("launch", (one,), "count", far)],
        "behind-a-good-one": [Work("launch", (one,), "count"), Work("launch", (Reference(1, 0, 4),), "count")],
    }
    data = trial.bytes_of(64)
    buffer, executable = trial.upload(data), trial.load()

    def run() -> None:
        trial.device.submit(trial.device.record(executable, cases[what], 1, 0), [buffer])

    expect_error(DeviceError, run, "record and submit")
    expect_equal(trial.download(buffer, data), data, "the buffer after that")


def overlapping_copy(trial: DeviceTrial, shift: int) -> None:
    """A recorded copy onto a range that overlaps its source, {} bytes on, moves it as memmove does; or it is a
    DeviceError, of the call or of the point, and moves nothing."""
    size, begin = 1009, 100
    data = trial.bytes_of(1300)
    buffer = trial.upload(data)
    work = Work("copy", (Reference(0, begin, size), Reference(0, begin + shift, size)))
    try:
        point = trial.device.submit(trial.device.record(trial.load(), [work], 1, 0), [buffer])
        expect(point.wait(PATIENCE), f"its point was not reached in {PATIENCE:g} s")
    except DeviceError:
        pass
    else:
        data[begin + shift : begin + shift + size] = data[begin : begin + size].copy()
    expect_equal(trial.download(buffer, data), data, "the buffer")


def dropped_during(trial: DeviceTrial, kind: str) -> None:
    """The memory of a {} that is under way is kept, though its caller has dropped all of it."""
    device, gate = trial.device, trial.gate()
    point, seen, after = _started(trial, kind, gate.point)  # the source and the recorded work are dropped
    gc.collect()
    reused = [device.allocate(after.nbytes) for _ in range(16)]
    if device.queues > 1:  # queue 0 waits for nothing
        for buffer in reused:
            finish(device.fill(buffer, 0x11), "fill")
    gate.open()
    finish(point, kind)
    expect_equal(seen(), after, f"what {kind} changed")


def _started(trial: DeviceTrial, kind: str, wait: Point) -> tuple[Point, Callable[[], Array], Array]:
    """The point of an operation of `kind`, how to see what it changes, and how that is afterwards."""
    work = operation(trial, kind)
    return work.start([wait], trial.device.queues - 1), work.seen, work.after


CHECKS = (
    each(recorded_copy_of, (1, 7, 63, 65, 257, 4095, 65_537)), each(externals_of, (1, 2, 17, 64)),
    each(commands_of, (1, 3, 10, 1000)), each(random_commands, range(6)),
    each(command_refused, ("far-offset", "far-end", "one-byte-more", "one-byte-behind", "negative-external",
                           "no-kernel", "copy-of-three", "more-tasks-than-numbers", "behind-a-good-one")),
    each(overlapping_copy, (1, 64, -1, -64, 0)), each(dropped_during, KINDS),
)  # fmt: skip
