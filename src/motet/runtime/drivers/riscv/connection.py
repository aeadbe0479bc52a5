"""Sends batches to a running device and receives their outcomes, over shared memory; the same for every platform.

The thread that runs a batch waits for it. The device runs batches in the order of their numbers.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from motet.errors import DeviceError, DeviceLost
from motet.runtime.drivers.riscv.installing import device_half, mailbox
from motet.runtime.drivers.riscv.memory import RiscvMemory
from motet.runtime.drivers.riscv.options import RiscvOptions
from motet.runtime.drivers.riscv.protocol import BATCH_TYPE, DRAM, RING, SLOTS, TICKS, Status

_LOOKS = 100  # polls of the mailbox before waiting, between which other threads may run


class DeviceLine(Protocol):
    """The connection to a device. `patience` is the seconds to wait for its bell before polling; `stopped` means that
    it is known not to run at the moment."""

    patience: float

    @property
    def stopped(self) -> bool: ...

    def ring(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Batch:
    """`count` commands at `commands`, and one word per 64 of them at `ready`. `private` is memory for each core, at a
    stride of `stride` bytes."""

    commands: int
    count: int
    ready: int
    private: int
    stride: int


@dataclass(frozen=True)
class BatchOutcome:
    """The outcome of a batch. `hart`, `command`, `cause`, `pc` and `value` describe its failure; `begin` and `end` are
    ticks of the device's clock, `heard` is in seconds of this process's `perf_counter`; `limited` means that the time
    limit ended it."""

    status: Status
    hart: int
    command: int
    cause: int
    pc: int
    value: int
    begin: int
    end: int
    heard: float
    limited: bool


class Connection:
    """A running device. After `lose`, all waiting and later calls raise DeviceLost."""

    def __init__(self, memory: RiscvMemory, line: DeviceLine, options: RiscvOptions) -> None:
        box = mailbox(memory)
        self.memory = memory
        self._options = options
        self._device = memory.device
        self._head, self._abort_before = box["head"], box["abort_before"]
        self._completed, self._sleeping, self._box = box["completed"], box["sleeping"], box
        self._told = device_half(memory)
        self._ring = memory.part(DRAM + RING, SLOTS * BATCH_TYPE.itemsize).view(BATCH_TYPE)
        self._changed = threading.Condition()
        self._owner = os.getpid()
        self._line = line
        self._aborted = 0.0  # when work was told to end, by the monotonic clock
        self.aborts = 0  # how often all submitted work was told to end
        self.lost: DeviceLost | None = None

    # -- events from the line ------------------------------------------------------------------------

    def heard(self) -> None:
        """Called when the bell rings or a while has passed."""
        with self._changed:
            self._changed.notify_all()

    def lose(self, reason: str) -> None:
        """Mark the device as lost."""
        with self._changed:
            if self.lost is None:
                self.lost = DeviceLost(self._device, reason)
            self._changed.notify_all()

    # -- batches -------------------------------------------------------------------------------------

    def run(self, batch: Batch, aborts: int) -> BatchOutcome:
        """Run a batch, which was made when work had been aborted `aborts` times, to its end. Raises DeviceLost, or
        DeviceError if it has been aborted before it runs; other failures are in the outcome."""
        self.check()
        limit = self._options.timeout
        number = self._submit(batch, limit, aborts)
        # The device enforces the limit itself, per command, unless its clock counts instructions.
        answer = self._options.answer
        grace = 0.0 if self._options.count else answer
        limited = not self._await(number, limit * batch.count + grace if limit else None)
        if limited:
            self.abort(number + 1)
            if not self._await(number, answer):
                self._give_up(f"it does not answer: a batch had {limit:g} s, and was told to end {answer:g} s ago")
        heard = time.perf_counter()
        self.memory.fetch(self._ring[number % SLOTS :][:1])
        slot = self._ring[number % SLOTS]
        names = ("hart", "command", "cause", "pc", "value", "begin", "end")
        hart, command, cause, pc, value, begin, end = (int(slot[name]) for name in names)
        return BatchOutcome(Status(int(slot["status"])), hart, command, cause, pc, value, begin, end, heard, limited)

    def abort(self, before: int | None = None) -> None:
        """Tell the device to end submitted work, or work with numbers below `before`; what is submitted and does not
        run yet never starts."""
        with self._changed:
            self.aborts += before is None
            bound = int(self._head[0]) if before is None else before
            self._abort_before[0] = max(bound, int(self._abort_before[0]))
            self.memory.send(self._abort_before)
            self._aborted = time.monotonic()
            self._changed.notify_all()
        self._line.ring()

    def check(self) -> None:
        """Raises DeviceError if the device is lost, or belongs to another process."""
        if self.lost is not None:
            raise self.lost
        if self._box["panic"][0]:
            self._give_up(self._panic())
        if os.getpid() != self._owner:
            raise DeviceError(f"device {self._device}: opened before a fork, in the parent; open it in this process")

    def _submit(self, batch: Batch, limit: float, aborts: int) -> int:
        with self._changed:
            if self.aborts != aborts:
                raise DeviceError(f"device {self._device}: aborted")
            number = int(self._head[0])
            slot = self._ring[number % SLOTS]
            self._ring[number % SLOTS] = np.zeros((), BATCH_TYPE)
            slot["commands"], slot["count"] = batch.commands, batch.count
            slot["ready"] = batch.ready
            slot["private"], slot["private_stride"] = batch.private, batch.stride
            slot["limit"] = 0 if self._options.count else round(limit * TICKS)
            self.memory.send(self._ring[number % SLOTS :][:1])
            self._head[0] = number + 1
            self.memory.send(self._head)
        self.memory.fetch(self._told)
        if self._sleeping[0]:  # the lock between the two accesses acts as a fence
            self._line.ring()
        return number

    def _await(self, number: int, limit: float | None) -> bool:
        """Wait until a batch has ended; False after `limit` seconds of running. A device that stops is lost."""
        completed = self._completed
        for _ in range(_LOOKS):
            if completed[0] > number:
                return True
            os.sched_yield()
        line = self._line
        end: float | None = None
        reason = ""
        silence = _Silence(line, self._options.answer)
        with self._changed:
            while completed[0] <= number:
                if self.lost is not None or self._box["panic"][0]:
                    break
                if end is None and limit is not None and completed[0] == number:  # it is at the front of the queue
                    end = time.monotonic() + limit
                elif end is not None and time.monotonic() > end:
                    return False
                told = self._aborted if self._abort_before[0] > number else None
                if completed[0] == number and (reason := silence.reason(told)):
                    break
                self._changed.wait(line.patience)
                self.memory.fetch(self._told)
                if completed[0] <= number and self._sleeping[0]:  # the bell was missed
                    line.ring()
        if completed[0] <= number:
            if reason:
                self._give_up(reason)
            self.check()
        return True

    def _panic(self) -> str:
        hart, cause, pc, value = (int(self._box[f"panic_{name}"][0]) for name in ("hart", "cause", "pc", "value"))
        return f"its firmware failed on core {hart}, cause {cause:#x} at pc {pc:#x}, address {value:#x}"

    def _give_up(self, reason: str) -> None:
        self.lose(reason)
        self._line.stop()
        if self.lost is not None:
            raise self.lost


class _Silence:
    """Measures how long a device has been silent that should respond. Time counts only while this process runs: after a
    stop of this process, the device's state is unknown."""

    def __init__(self, line: DeviceLine, limit: float) -> None:
        self._line = line
        self._limit = limit
        self._longest = 2 * line.patience + 0.05  # between two polls
        self._looked = time.monotonic()
        self._stopped = self._told = 0.0

    def reason(self, told: float | None) -> str:
        """Why the device is lost, if it is; `told` is when it was told to end its work, if it was."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, self._longest), now
        self._stopped = self._stopped + passed if self._line.stopped else 0.0
        self._told = self._told + passed if told is not None else 0.0
        if self._stopped > self._limit:
            return f"it does not answer: its process has been stopped for {self._limit:g} s (answer=SECONDS)"
        if self._told > self._limit:
            return f"it does not answer: it was told to end its work {self._limit:g} s ago (answer=SECONDS)"
        return ""
