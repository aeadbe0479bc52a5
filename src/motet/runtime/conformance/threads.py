"""Area `threads`: every operation may be called from several threads at the same time."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np

from motet.errors import DeviceError
from motet.runtime.conformance.check import Failure, expect, expect_equal
from motet.runtime.conformance.listing import each
from motet.runtime.conformance.operations import KINDS, operation
from motet.runtime.conformance.trial import PATIENCE, DeviceTrial, affine_of, finish, in_threads
from motet.runtime.device import Buffer, Event

THREADS = 6
COUNT = 211
LONG = 0.15  # seconds of work, long enough to detect that submitting waits for it


def allocate_at_once(trial: DeviceTrial) -> None:
    """Threads that allocate and free concurrently never share memory."""
    device = trial.device  # opened once, before the threads start
    held: list[list[Buffer]] = [[] for _ in range(THREADS)]

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        for lap in range(60):
            size = int(random.integers(1, 20_000))
            buffer = device.allocate(size)
            finish(device.fill(buffer, number), "fill")
            held[number].append(buffer)
            if lap % 3 == 0:
                held[number].pop(int(random.integers(0, len(held[number]))))

    in_threads(THREADS, work)
    ranges = sorted((buffer.address, buffer.address + buffer.bytes) for part in held for buffer in part)
    for (_, end), (begin, _) in itertools.pairwise(ranges):
        expect(end <= begin, f"two buffers overlap at {begin:#x}")
    for number, part in enumerate(held):
        for buffer in part:
            data = trial.download(buffer, np.empty(buffer.bytes, np.uint8))
            expect_equal(data, np.full(buffer.bytes, number, np.uint8), f"a buffer of thread {number}")


def move_at_once(trial: DeviceTrial) -> None:
    """Threads that write, copy and read concurrently, on all queues, each get their own bytes."""
    device = trial.device  # opened once, before the threads start

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        for lap in range(30):
            data = random.integers(0, 256, int(random.integers(1, 30_000)), np.uint8)
            queue = (number + lap) % device.queues
            first, second = device.allocate(data.size), device.allocate(data.size)
            target = np.empty_like(data)
            point = device.write(first, data, 0, (), queue)
            point = device.copy(first, second, [point], queue)
            finish(device.read(second, target, 0, [point], queue), "read")
            expect_equal(target, data, f"thread {number}, turn {lap}")

    in_threads(THREADS, work)


def submit_at_once(trial: DeviceTrial) -> None:
    """Threads that submit the same command buffer concurrently, each on its own memory, get their own results."""
    recorded = trial.affine(trial.load(), COUNT, [1, 5, -3])

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        for lap in range(30):
            x = random.integers(-999, 999, COUNT, np.int32)
            buffers = [trial.upload(x), trial.device.allocate(x.nbytes)]
            queue = (number + lap) % trial.device.queues
            finish(trial.device.submit(recorded, buffers, (), queue), "submission")
            result = trial.download(buffers[1], x)
            expect_equal(result, affine_of(x, [1, 5, -3]), f"thread {number}, turn {lap}")

    in_threads(THREADS, work)


def load_at_once(trial: DeviceTrial) -> None:
    """Threads that load and record concurrently do not affect each other."""
    trial.load()  # compile before the threads start

    def work(number: int) -> None:
        x = np.random.default_rng(number).integers(-999, 999, COUNT, np.int32)
        for lap in range(4):
            recorded = trial.affine(trial.load(), COUNT, [number, lap])
            buffers = [trial.upload(x), trial.device.allocate(x.nbytes)]
            finish(trial.device.submit(recorded, buffers), "submission")
            expect_equal(trial.download(buffers[1], x), affine_of(x, [number, lap]), f"thread {number}, turn {lap}")

    in_threads(THREADS, work)


def submit_returns_at_once(trial: DeviceTrial) -> None:
    """`submit` returns before long work has ended, also if the work can start immediately."""
    executable, out = trial.load(), trial.upload(np.zeros(1, np.int64))
    rounds = 10_000
    while True:
        begin = time.perf_counter()
        point = trial.launch(executable, "spin", [out], 1, [rounds])
        submitted = time.perf_counter() - begin
        finish(point, "launch")
        total = time.perf_counter() - begin
        if total > LONG:
            break
        rounds *= 4
        if rounds > 1 << 48:
            raise Failure(f"{rounds // 4:,} rounds took {total * 1e3:.0f} ms: the kernel does not run")
    if submitted > total / 2:
        raise Failure(f"submit took {submitted * 1e3:.0f} ms of the {total * 1e3:.0f} ms that the work took")
    expect_equal(trial.download(out, np.zeros(1, np.int64)), np.array([rounds]), "the rounds")


def close_while_others_submit(trial: DeviceTrial) -> None:
    """Closing a device in use completes submitted work; later submissions raise an error, and no thread hangs."""
    device = trial.open()
    ready = threading.Barrier(3)
    lost: list[str] = []

    def submit() -> None:
        buffer = device.allocate(4096)
        ready.wait()
        for _ in range(100_000):
            try:
                point = device.fill(buffer, 1)
            except Exception as error:
                if "closed" not in str(error) and "close" not in str(error):
                    lost.append(f"{type(error).__name__}: {error}")
                return
            try:
                if not point.wait(10):
                    lost.append("a point that was not reached in 10 s")
                    return
            except Exception:
                return

    threads = [threading.Thread(target=submit, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait()
    time.sleep(0.02)
    device.close()
    for thread in threads:
        thread.join(20)
        expect(not thread.is_alive(), "a thread that submitted while the device was closed hangs")
    expect(not lost, f"a thread that submitted while the device was closed got {lost[0] if lost else ''}")


def kind_at_once(trial: DeviceTrial, kind: str) -> None:
    """Threads that start a {} each, on all queues and again and again, each see its effect and no other's."""
    works = [operation(trial, kind) for _ in range(THREADS)]

    def work(number: int) -> None:
        for lap in range(8):
            finish(works[number].start((), (number + lap) % trial.device.queues), kind)
        works[number].expect_done(f"in thread {number}")

    in_threads(THREADS, work)


def abort_while_others_submit(trial: DeviceTrial) -> None:
    """`abort` while threads submit ends their work in success or a DeviceError; no thread hangs, and the device works
    after it."""
    device = trial.device
    buffers = [device.allocate(256) for _ in range(3)]

    def work(number: int) -> None:
        if number == len(buffers):
            for _ in range(5):
                device.abort()
            return
        for lap in range(50):
            try:
                reached = device.fill(buffers[number], lap, (), lap % device.queues).wait(PATIENCE)
            except DeviceError:
                continue
            expect(reached, f"thread {number}: a point was not reached in {PATIENCE:g} s")

    in_threads(len(buffers) + 1, work)
    trial.check_works(device, "what was read after that")


def profile_at_once(trial: DeviceTrial) -> None:
    """`profile` may be called while threads submit: each of their operations is given once."""
    device, laps = trial.device, 30
    device.profile(True)
    events: list[Event] = []

    def work(number: int) -> None:
        if number == 0:
            for _ in range(20):
                events.extend(device.profile(True))
            return
        buffer = device.allocate(100 + number)
        for lap in range(laps):
            finish(device.fill(buffer, lap), "fill")

    in_threads(3, work)
    events += device.profile(False)
    found = sorted(event.bytes for event in events if event.kind == "fill")
    expect(found == [101] * laps + [102] * laps, f"{len(found)} fills in the events; expected {2 * laps}")


CHECKS = (
    allocate_at_once, move_at_once, submit_at_once, load_at_once, submit_returns_at_once, close_while_others_submit,
    each(kind_at_once, KINDS), abort_while_others_submit, profile_at_once,
)
