"""Schedules for fixed extents as native tables, executed by one native call."""

from __future__ import annotations

import ctypes
import functools
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from motet.errors import ArtifactError, OutOfMemoryError
from motet.runtime.device import Piece
from motet.runtime.drivers.host import layout
from motet.runtime.drivers.host.flows import Flow, join_waves
from motet.runtime.drivers.host.threads import HostThreads, support_code
from motet.runtime.drivers.host.waves import plan_waves

Table = np.ndarray[tuple[int], np.dtype[np.int64]]

MOST_TASKS = 1 << 31
_COPY_BLOCK = 256 << 10
_NOTES = 64  # log entries of a thread for one command: it makes fewer claims
_NOTE_WORDS = 6
_FLOW_WORDS = 8  # of a flow before those of its members: keeps waiting threads from disturbing those that take pieces


@dataclass(frozen=True)
class NativeCommand:
    """A call of the kernel at `function` for tasks [0, tasks), or, if `function` is 0, a copy of `bytes` bytes from
    buffers[0] to buffers[1]. A buffer is (external, byte offset); external -1 is address 0. `seconds` is the expected
    time of one thread, if known."""

    function: int
    tasks: int
    buffers: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    bytes: int = 0
    seconds: float | None = None


@dataclass(frozen=True)
class Logged:
    """The log of a run: the parts of every command that each thread ran, in the given order of commands, by threads'
    numbers of the operating system; and when the run began and ended."""

    pieces: list[list[Piece]]
    begin: float
    end: float


class NativeProgram:
    """Commands that run on memory given for each run: each after those in its entry of `after`, or, without `after`, in
    sequence.

    `externals` is the number of addresses of a run; `scratch` is the bytes for each thread. `keep` is kept alive by the
    program: the code and the memory that it refers to.

    Raises: ArtifactError for a task count or a buffer out of range.
    """

    def __init__(
        self, host: HostThreads, commands: Sequence[NativeCommand], externals: int, scratch: int,
        keep: object = None, after: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.host = host
        self.externals = externals
        self.scratch = scratch
        self.keep = keep
        self.count = len(commands)
        copy = support_code().address("motet_copy")
        # A command without tasks is omitted, but keeps its place in the result of run_timed.
        self._places = [i for i, command in enumerate(commands) if _tasks(command, i)]
        present = [_kernel_call(commands[i], copy) for i in self._places]
        for i, command in zip(self._places, present, strict=True):
            if any(not -1 <= index < externals for index, _ in command.buffers):
                raise ArtifactError(
                    f"command {i}: buffers {command.buffers}; expected externals -1 to {externals - 1}"
                )
        self._present = present
        self._waves: list[tuple[list[int], Flow | None]] = [([place], None) for place in range(len(present))]
        if after is not None and host.count > 1:
            ordered = _without_absent(after, self._places)
            tasks, seconds = [command.tasks for command in present], [command.seconds for command in present]
            self._waves = join_waves(
                plan_waves(tasks, ordered, host.count, seconds), tasks, ordered, host.count, seconds
            )
        waves = [_Wave([present[place] for place in wave], flow) for wave, flow in self._waves]
        self.parallel = host.count > 1 and any(_tasks_of(wave, host) > 1 for wave in waves)
        self._table = _build_table(host, waves, scratch, self.parallel)
        self.address = int(self._table.ctypes.data)
        self._timed = self._table if len(waves) == len(present) else None
        self._pack = struct.Struct(f"={externals + 1}Q").pack
        self._run = _entry()

    def run(self, pointers: Sequence[int]) -> None:
        """Run once on memory at the addresses `pointers`. Releases the interpreter's lock; reentrant.

        Raises: ValueError unless there are as many pointers as externals; motet.errors.OutOfMemoryError.
        """
        if len(pointers) != self.externals:
            raise ValueError(f"program: {len(pointers)} pointers; expected {self.externals}")
        if self.parallel and not self.host.started:
            self.host.start()
        if self._run(self.address, self._pack(0, *pointers), None):
            raise OutOfMemoryError(self.scratch, "host")

    def run_logged(self, pointers: Sequence[int]) -> Logged:
        """Like `run`, including concurrency of commands, with a log of what each thread ran."""
        if len(pointers) != self.externals:
            raise ValueError(f"program: {len(pointers)} pointers; expected {self.externals}")
        if self.parallel and not self.host.started:
            self.host.start()
        room = sum(min(command.tasks, _NOTES * self.host.count) for command in self._present)
        log = np.zeros(2 + _NOTE_WORDS * room, np.int64)
        log[1] = room
        waves = [_Wave([self._present[place] for place in wave], flow) for wave, flow in self._waves]
        table = _build_table(self.host, waves, self.scratch, self.parallel, int(log.ctypes.data))
        address, packed = int(table.ctypes.data), self._pack(0, *pointers)
        started = time.perf_counter()
        failed = self._run(address, packed, None)
        ended = time.perf_counter()
        if failed:
            raise OutOfMemoryError(self.scratch, "host")
        pieces: list[list[Piece]] = [[] for _ in range(self.count)]
        order = [place for wave, _ in self._waves for place in wave]
        notes = log[2:].reshape(-1, _NOTE_WORDS)[: min(int(log[0]), room)]
        for number, thread, _, _, begin, end in notes.tolist():
            pieces[self._places[order[number]]].append(Piece(thread, begin * 1e-9, end * 1e-9))
        return Logged(pieces, started, ended)

    def run_timed(self, pointers: Sequence[int]) -> list[float]:
        """Like `run`, but in sequence; returns the seconds of each command in the given order."""
        if len(pointers) != self.externals:
            raise ValueError(f"program: {len(pointers)} pointers; expected {self.externals}")
        if self.parallel and not self.host.started:
            self.host.start()
        if self._timed is None:
            waves = [_Wave([command]) for command in self._present]
            self._timed = _build_table(self.host, waves, self.scratch, self.parallel)
        times = (ctypes.c_int64 * max(1, len(self._places)))()
        if self._run(int(self._timed.ctypes.data), self._pack(0, *pointers), times):
            raise OutOfMemoryError(self.scratch, "host")
        seconds = [0.0] * self.count
        for place, nanoseconds in zip(self._places, times, strict=False):
            seconds[place] = nanoseconds * 1e-9
        return seconds


@functools.cache
def _entry() -> Callable[[int, bytes, object], int]:
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return kind(support_code().address("motet_run_block"))


def _tasks(command: NativeCommand, place: int) -> int:
    tasks = command.tasks if command.function else command.bytes
    if tasks < 0 or (command.function and tasks > MOST_TASKS):
        raise ArtifactError(f"command {place}: {tasks:,} tasks; expected 0 to {MOST_TASKS:,}")
    return tasks


def _kernel_call(command: NativeCommand, copy: int) -> NativeCommand:
    if command.function:
        return command
    block = max(_COPY_BLOCK, -(-command.bytes // MOST_TASKS))
    return NativeCommand(copy, -(-command.bytes // block), command.buffers, (command.bytes, block), 0, command.seconds)


def _without_absent(after: Sequence[Sequence[int]], places: Sequence[int]) -> list[list[int]]:
    """The dependences of the commands at `places`, renumbered; an omitted command is replaced by its dependences."""
    numbers = {place: number for number, place in enumerate(places)}
    waited: list[set[int]] = []
    for earlier in after:
        own = {place for place in earlier if place in numbers}
        waited.append(own.union(*(waited[place] for place in earlier if place not in numbers)))
    return [sorted(numbers[place] for place in waited[place_of]) for place_of in places]


@dataclass(frozen=True)
class _Wave:
    """Commands that the executor runs as one: a single one, several concurrent ones, or a flow."""

    members: Sequence[NativeCommand]
    flow: Flow | None = None


def _tasks_of(wave: _Wave, host: HostThreads) -> int:
    """The tasks of a wave; of a flow, the threads that take its pieces."""
    return host.count if wave.flow is not None else sum(command.tasks for command in wave.members)


def _function_of(wave: _Wave, log: int) -> int:
    if wave.flow is not None:
        return support_code().address("motet_flow")
    if log:
        return support_code().address("motet_wave_logged")
    return wave.members[0].function if len(wave.members) == 1 else support_code().address("motet_wave")


def _buffers_of(wave: _Wave) -> list[tuple[int, int]]:
    """The members' buffers; for a flow, followed by zeroed words, whose addresses are in external -1."""
    buffers = [buffer for command in wave.members for buffer in command.buffers]
    return buffers if wave.flow is None else buffers + [(-1, 0)] * (_FLOW_WORDS + len(wave.members))


def _build_table(host: HostThreads, waves: Sequence[_Wave], scratch: int, parallel: bool, log: int = 0) -> Table:
    """The structures of layout.py in sequence: program, commands, references, sizes. Each wave is one command with the
    tasks of its members. Execution is recorded in the log at the address `log`, unless it is 0."""
    buffers = [_buffers_of(wave) for wave in waves]
    first = layout.ProgramLayout.STRIDE // 8
    words = layout.CommandLayout.STRIDE // 8
    reference_at = first + words * len(waves)
    size_at = reference_at + 2 * sum(map(len, buffers))
    # The lengths do not depend on the addresses.
    length = sum(len(_sizes(wave, 0, log, 0)) for wave in waves)
    table = np.zeros(size_at + length, np.int64)
    base = int(table.ctypes.data)

    def put(at: int, field: int, value: int) -> None:
        table[at + field // 8] = value - (1 << 64) if value >= 1 << 63 else value

    for field, value in (
        (layout.ProgramLayout.POOL, host.address),
        (layout.ProgramLayout.COMMANDS, base + 8 * first),
        (layout.ProgramLayout.COUNT, len(waves)),
        (layout.ProgramLayout.SCRATCH, scratch),
        (layout.ProgramLayout.MOST_BUFFERS, max(map(len, buffers), default=0)),
        (layout.ProgramLayout.PARALLEL, int(parallel)),
    ):
        put(0, field, value)
    member = 0
    for number, (wave, own) in enumerate(zip(waves, buffers, strict=True)):
        at = first + words * number
        put(at, layout.CommandLayout.FUNCTION, _function_of(wave, log))
        put(at, layout.CommandLayout.TASKS, _tasks_of(wave, host))
        put(at, layout.CommandLayout.REFERENCES, base + 8 * reference_at)
        put(at, layout.CommandLayout.COUNT, len(own))
        put(at, layout.CommandLayout.SIZES, base + 8 * size_at)
        for index, offset in own:
            put(reference_at, 0, index)
            put(reference_at, 8, offset)
            reference_at += 2
        for size in _sizes(wave, base + 8 * size_at, log, member):
            put(size_at, 0, size)
            size_at += 1
        member += len(wave.members)
    return table


def _sizes(wave: _Wave, address: int, log: int, member: int) -> list[int]:
    """The sizes of a command at `address`. For several commands, or with a log, the data of `motet_wave`,
    `motet_wave_logged` or `motet_flow` comes first. `member` is the number of the first command."""
    if wave.flow is not None:
        return _flow_sizes(wave.members, wave.flow, address, log, member)
    if len(wave.members) == 1 and not log:
        return list(wave.members[0].sizes)
    words = [log, member, len(wave.members)] if log else [len(wave.members)]
    tasks, buffers, own = 0, 0, address + 8 * (len(words) + 4 * len(wave.members))
    for command in wave.members:
        tasks += command.tasks
        words += [command.function, tasks, buffers, own]
        buffers += len(command.buffers)
        own += 8 * len(command.sizes)
    return words + [size for command in wave.members for size in command.sizes]


def _flow_sizes(
    members: Sequence[NativeCommand], flow: Flow, address: int, log: int, member: int
) -> list[int]:
    pieces = [piece for unit in flow.units for piece in unit]
    units_at = address + 8 * 6
    pieces_at = units_at + 8 * 2 * len(flow.units)
    at = pieces_at + 8 * 3 * len(pieces)
    places: list[int] = []  # of the members
    for needs in flow.needs:
        places.append(at)
        at += 8 * (6 + 2 * len(needs))
    words = [len(flow.units), sum(len(command.buffers) for command in members), units_at, pieces_at, log, member]
    first = 0
    for unit in flow.units:
        words += [first, len(unit)]
        first += len(unit)
    for piece in pieces:
        words += [places[piece.member], piece.begin, piece.end]
    buffers = 0
    for number, (command, needs) in enumerate(zip(members, flow.needs, strict=True)):
        words += [command.function, buffers, at, number, _FLOW_WORDS + number, len(needs)]
        words += [word for need in needs for word in (_FLOW_WORDS + need, flow.counts[need])]
        buffers += len(command.buffers)
        at += 8 * len(command.sizes)
    return words + [size for command in members for size in command.sizes]
