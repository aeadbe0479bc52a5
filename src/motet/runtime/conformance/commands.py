"""Area `commands`: recorded work, its dependences, its reuse, and errors when recording."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence

import numpy as np

from motet.errors import DeviceError
from motet.runtime.conformance.check import expect, expect_equal, expect_error
from motet.runtime.conformance.trial import DeviceTrial, Hazards, affine_of, bits, finish, whole
from motet.runtime.device import CommandBuffer, Reference, Work

COUNT = 103


def externals(trial: DeviceTrial) -> None:
    """A command buffer states how many buffers a submission takes."""
    recorded = trial.device.record(trial.load(), [whole("count", [4])], 3, 0)
    expect(recorded.externals == 3, f"externals is {recorded.externals!r}; recorded for 3")


def empty(trial: DeviceTrial) -> None:
    """Work without commands, and launches without tasks, succeed and change no memory."""
    data = trial.bytes_of(8)
    buffer = trial.upload(data)
    executable = trial.load()
    finish(trial.device.submit(trial.device.record(executable, [], 0, 0), []), "no commands")
    finish(trial.launch(executable, "count", [buffer], 0), "no tasks")
    nothing = Work("copy", (Reference(0, 0, 0), Reference(0, 8, 0)))
    finish(trial.device.submit(trial.device.record(executable, [nothing], 1, 0), [buffer]), "a copy of no bytes")
    expect_equal(trial.download(buffer, data), data, "the buffer after that")


def chain(trial: DeviceTrial) -> None:
    """A command sees all effects of the commands that it comes after: a long chain over one buffer."""
    steps = [int(step) for step in trial.random.integers(-9, 9, 2500)]
    _run_affine(trial, steps)


def diamond(trial: DeviceTrial) -> None:
    """Commands after the same command may run in any order, and a command after both sees both."""
    x = trial.random.integers(-99, 99, COUNT, np.int32)
    size = x.nbytes
    first, left, right, both = (Reference(number, 0, size) for number in range(1, 5))
    work = [
        Work("launch", (Reference(0, 0, size), first), "affine", COUNT, (1,)),
        Work("launch", (first, left), "affine", COUNT, (2,), (0,)),
        Work("launch", (first, right), "affine", COUNT, (3,), (0,)),
        Work("copy", (left, both), after=(1, 2)),
        Work("copy", (Reference(3, 0, 4), Reference(4, 4, 4)), after=(2, 3)),
    ]
    buffers = [trial.upload(x), *(trial.upload(np.zeros_like(x)) for _ in range(4))]
    recorded = trial.device.record(trial.load(), work, 5, 0)
    finish(trial.device.submit(recorded, buffers), "submission")
    expected = affine_of(x, [1, 2])
    expected[1] = affine_of(x, [1, 3])[0]
    expect_equal(trial.download(buffers[4], expected), expected, "what the last commands wrote")


def independent(trial: DeviceTrial) -> None:
    """Commands without dependences all run."""
    count = 50
    out = trial.upload(np.zeros(count, np.int32))
    work = [
        Work("launch", (Reference(0, 4 * index, 4),), "count", 1) for index in range(count) for _ in range(index % 2)
    ]
    recorded = trial.device.record(trial.load(), work, 1, 0)
    finish(trial.device.submit(recorded, [out]), "submission")
    expected = (np.arange(count) % 2).astype(np.int32)
    expect_equal(trial.download(out, expected), expected, "what 25 commands counted")


def copies(trial: DeviceTrial) -> None:
    """Recorded copies move any bytes, within a buffer and between buffers, alternating with launches."""
    data = trial.bytes_of(4001)
    mirror = [data.copy(), np.zeros_like(data)]
    work: list[Work] = []
    for index in range(30):
        size = int(trial.random.integers(0, 300))
        source, target = int(trial.random.integers(0, 2)), index % 2
        begin, to = int(trial.random.integers(0, 1000)), int(trial.random.integers(2000, 3500))
        references = (Reference(source, begin, size), Reference(target, to, size))
        work.append(Work("copy", references, after=(index - 1,) if index else ()))
        mirror[target][to : to + size] = mirror[source][begin : begin + size]
    buffers = [trial.upload(data), trial.upload(np.zeros_like(data))]
    recorded = trial.device.record(trial.load(), work, 2, 0)
    finish(trial.device.submit(recorded, buffers), "submission")
    for buffer, expected in zip(buffers, mirror, strict=True):
        expect_equal(trial.download(buffer, expected), expected, "a buffer after 30 copies")


def random_work(trial: DeviceTrial) -> None:
    """Random launches and copies, each ordered only after those that it conflicts with, give the same result as
    sequential execution."""
    executable, cells, length = trial.load(), 12, 50
    for _ in range(4):
        mirror = trial.random.integers(-99, 99, (cells, length), np.int32)
        buffer = trial.upload(mirror)
        work: list[Work] = []
        order = Hazards()
        for index in range(120):
            source, target = (int(cell) for cell in trial.random.choice(cells, 2, replace=False))
            references = tuple(Reference(0, 4 * length * cell, 4 * length) for cell in (source, target))
            after = order.add(index, [source], [target])
            if trial.random.random() < 0.3:
                work.append(Work("copy", references, after=after))
                mirror[target] = mirror[source]
            else:
                step = int(trial.random.integers(-9, 9))
                work.append(Work("launch", references, "affine", length, (step,), after))
                mirror[target] = affine_of(mirror[source], [step])
        finish(trial.device.submit(trial.device.record(executable, work, 1, 0), [buffer]), "submission")
        expect_equal(trial.download(buffer, mirror), mirror, "memory after 120 commands")


def in_place(trial: DeviceTrial) -> None:
    """One launch may read and write the same external, and a submission may get the same buffer twice."""
    x = trial.random.integers(-99, 99, COUNT, np.int32)
    buffer = trial.upload(x)
    recorded = trial.affine(trial.load(), COUNT, [4])
    finish(trial.device.submit(recorded, [buffer, buffer]), "submission")
    expect_equal(trial.download(buffer, x), affine_of(x, [4]), "a buffer that is input and result")


def reuse(trial: DeviceTrial) -> None:
    """A command buffer can be submitted repeatedly, with other memory each time, including larger buffers."""
    recorded = trial.affine(trial.load(), COUNT, [1, -2])
    for number in range(40):
        x = trial.random.integers(-99, 99, COUNT + number, np.int32)
        buffers = [trial.upload(x), trial.upload(np.zeros_like(x))]
        finish(trial.device.submit(recorded, buffers), f"submission {number}")
        expected = np.concatenate([affine_of(x[:COUNT], [1, -2]), np.zeros(number, np.int32)])
        expect_equal(trial.download(buffers[1], expected), expected, f"the result of submission {number}")


def reuse_in_flight(trial: DeviceTrial) -> None:
    """A command buffer may be submitted again before its previous submission has ended."""
    recorded, gate = trial.affine(trial.load(), COUNT, [3]), trial.gate()
    x = trial.random.integers(-99, 99, COUNT, np.int32)
    buffers = [trial.upload(x)] + [trial.upload(np.zeros_like(x)) for _ in range(12)]
    points = [
        trial.device.submit(recorded, buffers[index : index + 2], [gate.point], index % trial.device.queues)
        for index in range(0, 12, 2)
    ]
    gate.open()
    for point in points:
        finish(point, "submission")
    expect_equal(trial.download(buffers[1], x), affine_of(x, [3]), "the first result")
    for index in range(2, 12, 2):
        expect_equal(trial.download(buffers[index + 1], x), np.full_like(x, 3), f"result {index // 2}")


def outlives(trial: DeviceTrial) -> None:
    """A command buffer keeps its executable alive, and work in flight keeps its command buffer alive."""
    gate = trial.gate()
    recorded: CommandBuffer | None = trial.affine(trial.load(), COUNT, [7, 1])
    x = trial.random.integers(-99, 99, COUNT, np.int32)
    buffers = [trial.upload(x), trial.upload(np.zeros_like(x))]
    point = trial.device.submit(recorded, buffers, [gate.point])
    recorded = None
    trial.load()  # may get the memory of the first
    gate.open()
    finish(point, "submission")
    expect_equal(trial.download(buffers[1], x), affine_of(x, [7, 1]), "the result")


def record_is_checked(trial: DeviceTrial) -> None:
    """Recording an invalid command raises a DeviceError."""
    device, executable = trial.device, trial.load()
    one, two = Reference(0, 0, 4), Reference(0, 4, 4)
    cases: dict[str, Sequence[Work]] = {
        "a kernel that there is not": [Work("launch", (one,), "no_such_kernel")],
        "a command after itself": [Work("launch", (one,), "count", after=(0,))],
        "a command after a later one": [Work("launch", (one,), "count", after=(1,)), Work("launch", (one,), "count")],
        "a command after number -1": [Work("launch", (one,), "count"), Work("launch", (one,), "count", after=(-1,))],
        "an external that there is not": [Work("launch", (Reference(1, 0, 4),), "count")],
        "a negative offset": [Work("launch", (Reference(0, -4, 4),), "count")],
        "a negative size": [Work("launch", (Reference(0, 0, -4),), "count")],
        "a negative number of tasks": [Work("launch", (one,), "count", -1)],
        "a copy of unequal sizes": [Work("copy", (one, Reference(0, 4, 3)))],
        "a copy of one reference": [Work("copy", (one,))],
    }
    for what, work in cases.items():
        expect_error(DeviceError, lambda work=work: device.record(executable, work, 1, 0), what)
    good = [Work("copy", (one, two))]
    expect_error(DeviceError, lambda: device.record(executable, good, -1, 0), "-1 externals")
    expect_error(DeviceError, lambda: device.record(executable, good, 1, -1), "-1 bytes of scratch")
    expect_error(DeviceError, lambda: device.record(_Foreign(), good, 1, 0), "another device's executable")


def submit_is_checked(trial: DeviceTrial) -> None:
    """Submitting unsuitable buffers, to an invalid queue, or foreign work raises a DeviceError, and runs nothing."""
    device, executable = trial.device, trial.load()
    recorded = device.record(executable, [whole("count", [4])], 1, 0)
    data = np.zeros(1, np.int32)
    buffer = trial.upload(data)
    small, foreign = device.allocate(3), trial.neighbour().allocate(64)
    cases: dict[str, Callable[[], object]] = {
        "no buffer where 1 is expected": lambda: device.submit(recorded, []),
        "2 buffers where 1 is expected": lambda: device.submit(recorded, [buffer, buffer]),
        "a buffer that is too small": lambda: device.submit(recorded, [small]),
        "a buffer of another device": lambda: device.submit(recorded, [foreign]),
        "a queue that there is not": lambda: device.submit(recorded, [buffer], (), device.queues),
        "queue -1": lambda: device.submit(recorded, [buffer], (), -1),
        "work of another device": lambda: device.submit(_Foreign(), []),
        "a write on a queue that there is not": lambda: device.write(buffer, data, 0, (), device.queues),
    }
    for what, action in cases.items():
        expect_error(DeviceError, action, what)
    expect_equal(trial.download(buffer, data), data, "the buffer after that")
    finish(device.submit(recorded, [buffer]), "a submission that fits")
    expect_equal(trial.download(buffer, data), np.ones(1, np.int32), "the buffer after a submission that fits")


def keeps_nothing(trial: DeviceTrial) -> None:
    """Work that has ended is released: memory does not grow with the number of submissions."""
    recorded = trial.affine(trial.load(), COUNT, [1])
    x = trial.random.integers(-99, 99, COUNT, np.int32)
    buffers = [trial.upload(x), trial.upload(x)]

    def submit(times: int) -> None:
        for number in range(times):
            queue = number % trial.device.queues
            finish(trial.device.submit(recorded, buffers, (), queue), "submission")
            finish(trial.device.write(buffers[0], bits(x), 0, (), queue), "write")

    submit(50)
    tracemalloc.start()
    try:
        submit(50)
        before = tracemalloc.get_traced_memory()[0]
        submit(400)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    expect(grown < 40_000, f"400 submissions and writes left {grown:,} bytes of Python objects behind")


def _run_affine(trial: DeviceTrial, steps: Sequence[int]) -> None:
    x = trial.random.integers(-99, 99, COUNT, np.int32)
    buffers = [trial.upload(x), trial.upload(np.zeros_like(x))]
    finish(trial.device.submit(trial.affine(trial.load(), COUNT, steps), buffers), "submission")
    expect_equal(trial.download(buffers[1], x), affine_of(x, steps), f"the result of {len(steps)} commands")
    expect_equal(trial.download(buffers[0], x), x, "the input after that")


class _Foreign:
    """An executable and a command buffer that belong to no device."""

    kernels: Sequence[str] = ("count",)
    externals = 0


CHECKS = (
    externals, empty, chain, diamond, independent, copies, random_work, in_place, reuse, reuse_in_flight, outlives,
    record_is_checked, submit_is_checked, keeps_nothing,
)
