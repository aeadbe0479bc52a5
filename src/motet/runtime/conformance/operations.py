"""The operations of a device with one interface: each is started with waits on a queue, and shows whether it ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from motet.runtime.conformance.check import Array, expect_equal
from motet.runtime.conformance.trial import DeviceTrial, affine_of, bits
from motet.runtime.device import Buffer, Reference, Work
from motet.runtime.timeline import Point

COUNT = 103
SIZE = 4 * COUNT
KINDS = ("write", "read", "copy", "fill", "launch", "recorded-copy")
CHANGING = tuple(kind for kind in KINDS if kind != "read")  # those that change a buffer
READING = ("read", "copy", "launch", "recorded-copy")
BYTE = 0xA5
STEP = 5

Start = Callable[[Sequence[Point], int], Point]


@dataclass
class TrialOperation:
    """One operation: `start` submits it, once or several times; `seen` reads the bytes that it changes, which are
    `before` until it runs and `after` then. It holds no buffers except by `start` and `seen`."""

    kind: str
    start: Start
    seen: Callable[[], Array]
    before: Array
    after: Array

    def expect_done(self, when: str) -> None:
        """Fail unless it has run."""
        expect_equal(self.seen(), self.after, f"what {self.kind} changes, {when}")

    def expect_untouched(self, when: str) -> None:
        """Fail if it has run."""
        expect_equal(self.seen(), self.before, f"what {self.kind} changes, {when}")


def operation(trial: DeviceTrial, kind: str) -> TrialOperation:
    """An operation of `kind` on new memory. Skips the check if it needs kernels and there are none."""
    before, given = trial.bytes_of(SIZE), trial.bytes_of(SIZE)
    if kind == "read":
        source, array = trial.upload(given), before.copy()
        return TrialOperation(
            kind, lambda waits, queue: trial.device.read(source, array, 0, waits, queue), lambda: array, before, given)
    target = trial.upload(before)
    start, after = changing(trial, kind, target, given)
    return TrialOperation(kind, start, lambda: trial.download(target, before), before, after)


def changing(trial: DeviceTrial, kind: str, target: Buffer, given: Array) -> tuple[Start, Array]:
    """An operation of `kind` that makes the `SIZE` bytes of `target` from those in `given`, and their values then."""
    device = trial.device
    if kind == "write":
        return lambda waits, queue: device.write(target, given, 0, waits, queue), given
    if kind == "fill":
        return lambda waits, queue: device.fill(target, BYTE, waits, queue), np.full(SIZE, BYTE, np.uint8)
    source = trial.upload(given)
    return moving(trial, kind, source, target), moved(kind, given)


def moving(trial: DeviceTrial, kind: str, source: Buffer, target: Buffer) -> Start:
    """An operation of `kind` (copy, launch, recorded-copy) from one buffer to another."""
    device = trial.device
    if kind == "copy":
        return lambda waits, queue: device.copy(source, target, waits, queue)
    places = (Reference(0, 0, SIZE), Reference(1, 0, SIZE))
    work = Work("launch", places, "affine", COUNT, (STEP,)) if kind == "launch" else Work("copy", places)
    recorded = device.record(trial.load(), [work], 2, 0)
    return lambda waits, queue: device.submit(recorded, [source, target], waits, queue)


def moved(kind: str, data: Array) -> Array:
    """What `moving` leaves in its target, from the bytes of its source."""
    return bits(affine_of(data.view(np.int32), [STEP])) if kind == "launch" else data
