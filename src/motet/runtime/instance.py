"""Instances of functions on the host: native commands and their memory, for given values of the symbols."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.artifact.agreement import Agreement
from motet.artifact.schema import Schedule, Signature
from motet.errors import ArtifactError
from motet.runtime.device import Reference, Work
from motet.runtime.drivers.host.fastcall import FastArena, FastInput, FastResult, MoreArenas, make_fast_call
from motet.runtime.drivers.host.loader import NativeCode
from motet.runtime.drivers.host.memory import Allocation, Pool
from motet.runtime.drivers.host.native import NativeCommand, NativeProgram
from motet.runtime.drivers.host.recorded import note_events
from motet.runtime.drivers.host.threads import HostThreads
from motet.runtime.instantiate import Concrete, Shape, make_concrete
from motet.runtime.trace import CallEvents, Traced

_SMALL_COPY = 1 << 16  # bytes; up to this size, one thread copies
_SHORT = 1 << 16  # bytes that a thread processes in some microseconds
_SHORT_SECONDS = 12e-6  # of commands, by the compiler's estimate, which assumes slow CPUs
POOLED = 1 << 20  # results of at least this size are allocated in the pool of huge pages
_KEPT_ARENA = 1 << 20  # larger arenas of dynamic functions return to the pool after each call


@dataclass(frozen=True)
class Binding:
    """The session's resources for schedules: code, the addresses and sizes of parameters, memory."""

    code: NativeCode
    parameters: Sequence[np.ndarray[Any, Any] | None]
    pool: Pool
    threads: HostThreads
    agreement: Agreement

    def parameter_bytes(self, index: int) -> int:
        return self._parameter(index).nbytes

    def parameter_address(self, index: int) -> int:
        return int(self._parameter(index).ctypes.data)

    def _parameter(self, index: int) -> np.ndarray[Any, Any]:
        parameter = self.parameters[index]
        if parameter is None:
            raise ArtifactError(f"parameter {index} was not loaded")
        return parameter


def allocate(shape: Shape, pool: Pool) -> np.ndarray[Any, Any]:
    """Allocate memory for a result; large arrays return to the pool when they are collected."""
    if shape.bytes < POOLED:
        return np.empty(shape.extents, shape.dtype)
    return pool.allocate(shape.bytes).array(shape.dtype, shape.extents)


def _factory(shape: Shape, pool: Pool) -> Callable[[], np.ndarray[Any, Any]] | None:
    return functools.partial(allocate, shape, pool) if shape.bytes >= POOLED else None


class Instance:
    """A function for one combination of symbol values. Several threads may run it concurrently.

    Commands refer to memory as (external, offset). Externals are the inputs, the results and the arena, in this order,
    given for each run; external -1 is address 0, so that constant addresses, such as parameters', are offsets. `parts`
    assigns commands, up to given ends, to separate threads; those after the last end use the binding's threads.
    """

    resident = False

    def __init__(
        self,
        signature: Signature,
        schedule: Schedule,
        symbols: Mapping[str, int],
        binding: Binding,
        where: str,
        parts: Sequence[tuple[HostThreads, int]] = (),
    ) -> None:
        self._binding = binding
        concrete = make_concrete(
            signature, schedule, symbols, binding.parameter_bytes, where, binding.agreement
        )
        self.inputs, self.results, self.arena_bytes = concrete.inputs, concrete.results, concrete.arena
        self.kernels = [command.kernel or command.op for command in schedule.commands]
        self._statuses = concrete.statuses
        self._work = concrete.work
        commands = [_command(work, concrete, binding) for work in concrete.work]
        externals = len(self.inputs) + len(self.results) + 1
        keep = (binding.code, binding.parameters)
        self._programs: list[NativeProgram] = []
        begin = 0
        for threads, part in _split(commands, parts, binding.threads):
            own = concrete.work[begin : begin + len(part)]
            after = [[number - begin for number in work.after if number >= begin] for work in own]
            self._programs.append(NativeProgram(threads, part, externals, concrete.scratch, keep, after))
            begin += len(part)
        self.prepared: Callable[..., Any] | None = None
        self.prepared_for_torch: Callable[..., Any] | None = None  # the same for PyTorch's tensors
        self._prepared_bytes = 0
        self._more = MoreArenas()  # of the native callable
        self._wanted = False  # whether the native callable had too few
        self._given: list[Allocation] = []  # to the native callable
        self._destinations = [spec.destination for spec in signature.results]
        self._arenas: deque[Allocation] = deque()
        self._keeps_arenas = not signature.symbols or self.arena_bytes <= _KEPT_ARENA

    def run(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Run once on the inputs, then the results, in this order. Raises CallError if a check failed."""
        self.run_at(_addresses(arrays))

    def run_at(self, addresses: Sequence[int]) -> None:
        """Like `run`, on contiguous memory at these addresses."""
        arena = self._take_arena()
        places = [*addresses, arena.address if arena else 0]
        for program in self._programs:
            program.run(places)
        self._end(arena)

    def allocate(self, shape: Shape) -> np.ndarray[Any, Any]:
        """Allocate memory for a result."""
        return allocate(shape, self._binding.pool)

    def home(self, result: int) -> None:
        """None: results are in host memory."""
        return

    def run_timed(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[tuple[str, float]]:
        """Like `run`; returns the seconds of each command, in the order of the schedule."""
        arena = self._take_arena()
        addresses = [*_addresses(arrays), arena.address if arena else 0]
        seconds = [taken for program in self._programs for taken in program.run_timed(addresses)]
        self._end(arena)
        return list(zip(self.kernels, seconds, strict=True))

    def run_traced(self, arrays: Sequence[np.ndarray[Any, Any]]) -> CallEvents:
        """Like `run`, with the same concurrency; returns the part of every command that each thread ran, and when."""
        begin = time.perf_counter()
        arena = self._take_arena()
        addresses = [*_addresses(arrays), arena.address if arena else 0]
        logs = [program.run_logged(addresses) for program in self._programs]
        self._end(arena)
        events = note_events(self._work, [own for log in logs for own in log.pieces], 0, begin)
        traced = [Traced("host", event, memory=memory) for event, memory in zip(events, self._memory(), strict=True)]
        return CallEvents(traced, [(log.begin, log.end) for log in logs])

    def _memory(self) -> list[int]:
        """Bytes in use at each command: constants, results, and the live part of the arena."""
        first = len(self.inputs)
        arena = first + len(self.results)
        lives: dict[int, tuple[int, int, int]] = {}  # of a buffer: first use, last use, bytes
        constants: dict[tuple[int, int], int] = {}
        for number, work in enumerate(self._work):
            for reference in work.references:
                if reference.external == arena:
                    begin = lives[id(reference)][0] if id(reference) in lives else number
                    lives[id(reference)] = begin, number, reference.bytes
                elif reference.external > arena:
                    constants[reference.external, reference.offset] = reference.bytes
        kept = sum(constants.values()) + sum(
            shape.bytes for shape, place in zip(self.results, self._destinations, strict=True) if place is None
        )
        return [
            kept + sum(size for begin, end, size in lives.values() if begin <= number <= end)
            for number in range(len(self._work))
        ]

    @property
    def kept_bytes(self) -> int:
        """Bytes of the arenas kept for the next run, including the native callable's."""
        return self._prepared_bytes + sum(arena.bytes for arena in tuple(self._arenas))

    def prepare(self, fallback: Callable[..., Any]) -> Callable[..., Any] | None:
        """A native callable for exactly these shapes, which hands other calls to `fallback`; None if this interpreter
        does not support it, or if it would keep a large arena for a shape that may not occur again."""
        if not self._keeps_arenas or len(self._programs) > 1:
            return None
        first = len(self.inputs)
        arena = self._take_arena()
        self._prepared_bytes = arena.bytes if arena else 0
        pool = self._binding.pool
        return make_fast_call(
            self._programs[0],
            [FastInput(shape.dtype, shape.extents, index) for index, shape in enumerate(self.inputs)],
            [
                FastResult(shape.dtype, shape.extents, first + index, place, _factory(shape, pool))
                for index, (shape, place) in enumerate(zip(self.results, self._destinations, strict=True))
            ],
            fallback,
            arena=FastArena(first + len(self.results), arena.address, self._more, self._statuses) if arena else None,
            release_lock=not self._is_short(),
            keep=(self, arena),
        )

    def _is_short(self) -> bool:
        """Whether a call is so short that releasing the interpreter's lock, for the benefit of other threads, would
        cost more than the call."""
        touched = sum(shape.bytes for shape in (*self.inputs, *self.results)) + self.arena_bytes
        seconds = sum(work.seconds or 0.0 for work in self._work)
        return (
            touched <= _SHORT and seconds <= _SHORT_SECONDS
            and not any(program.parallel for program in self._programs)
        )

    def _take_arena(self) -> Allocation | None:
        arena = self._free_arena()
        if arena is not None and self._statuses is not None:
            self._statuses.clear(arena.address)
        return arena

    def _end(self, arena: Allocation | None) -> None:
        """Return a call's arena. Raises CallError if a check failed."""
        failure = None if arena is None or self._statuses is None else self._statuses.failure(arena.address)
        self._return_arena(arena)
        if failure is not None:
            raise failure

    def _free_arena(self) -> Allocation | None:
        if not self.arena_bytes:
            return None
        if self.prepared is not None and self._more.all_taken:
            self._wanted = True
        try:
            return self._arenas.pop()
        except IndexError:
            return self._binding.pool.allocate(self.arena_bytes)

    def _return_arena(self, arena: Allocation | None) -> None:
        if arena is None or not self._keeps_arenas:
            return
        if self._wanted:
            self._wanted = False
            if self._more.add(arena.address):
                self._given.append(arena)
                self._prepared_bytes += arena.bytes
                return
        self._arenas.append(arena)


def _split(
    commands: Sequence[NativeCommand], parts: Sequence[tuple[HostThreads, int]], rest: HostThreads
) -> list[tuple[HostThreads, list[NativeCommand]]]:
    """The commands by the threads on which they run, in at least one part. Neighbouring commands on the same threads
    form one part; single-task commands, which the caller's thread runs itself, join any part."""
    found: list[tuple[HostThreads, list[NativeCommand]]] = []
    begin = 0
    for threads, end in (*parts, (rest, len(commands))):
        part = list(commands[begin:end])
        begin = end
        if not found:
            found.append((threads, part))
        elif found[-1][0] is threads or not _needs_threads(part):
            found[-1][1].extend(part)
        elif not _needs_threads(found[-1][1]):
            found[-1] = (threads, found[-1][1] + part)
        else:
            found.append((threads, part))
    return found


def _needs_threads(commands: Sequence[NativeCommand]) -> bool:
    return any(command.tasks > 1 or command.bytes > _SMALL_COPY for command in commands)


def _addresses(arrays: Sequence[np.ndarray[Any, Any]]) -> list[int]:
    return [array.__array_interface__["data"][0] for array in arrays]


def _command(work: Work, concrete: Concrete, binding: Binding) -> NativeCommand:
    """Work on externals as a native command; parameters, with constant addresses, are offsets from address 0."""
    first = len(concrete.inputs) + len(concrete.results) + 1

    def place(reference: Reference) -> tuple[int, int]:
        if reference.external < first:
            return reference.external, reference.offset
        return -1, binding.parameter_address(concrete.parameters[reference.external - first]) + reference.offset

    places = tuple(map(place, work.references))
    if work.op == "copy":
        return NativeCommand(0, 0, places, (), work.references[0].bytes, work.seconds)
    return NativeCommand(binding.code.address(work.kernel), work.tasks, places, work.sizes, 0, work.seconds)
