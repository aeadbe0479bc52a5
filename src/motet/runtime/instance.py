"""A schedule made concrete: for given values of the symbols, native commands and the memory they work in."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.artifact.schema import Buffer, Command, Expr, Schedule, Signature, TensorSpec
from motet.artifact.validation import check_range
from motet.errors import ArtifactError, CallError
from motet.runtime.devices.host.fastcall import FastInput, FastResult, make_fast_call
from motet.runtime.devices.host.loader import Code
from motet.runtime.devices.host.memory import Allocation, Pool
from motet.runtime.devices.host.native import NativeCommand, NativeProgram
from motet.runtime.devices.host.threads import HostThreads
from motet.runtime.expressions import evaluate, evaluate_all

_POOLED = 1 << 20  # results from this size on come from the pool of huge pages
_KEPT_ARENA = 1 << 20  # arenas of dynamic functions larger than this go back to the pool after each call


@dataclass(frozen=True)
class Shape:
    """A tensor's extents, numpy dtype and size."""

    extents: tuple[int, ...]
    dtype: np.dtype[Any]
    bytes: int


def shape_of(spec: TensorSpec, symbols: Mapping[str, int], where: str) -> Shape:
    """The concrete shape of `spec`. Raises CallError if an extent comes out negative or too large."""
    extents = evaluate_all(spec.shape, symbols)
    dtype = DTYPES[spec.dtype]
    size = math.prod(extents) * dtype.itemsize
    if any(extent < 0 for extent in extents) or size >= 1 << 62:
        raise CallError(f"{where}: shape {'x'.join(map(str, extents))} for {dict(symbols)}")
    return Shape(extents, dtype, size)


@dataclass(frozen=True)
class Binding:
    """Where schedules get from what the session has: code, the addresses and sizes of parameters, memory."""

    code: Code
    parameters: Sequence[np.ndarray[Any, Any] | None]
    pool: Pool
    threads: HostThreads


@dataclass(frozen=True)
class Place:
    """A buffer: (external, offset), and its size."""

    reference: tuple[int, int]
    bytes: int


def allocate(shape: Shape, pool: Pool) -> np.ndarray[Any, Any]:
    """Memory for a result: a large one is the pool's again when the array is gone."""
    if shape.bytes < _POOLED:
        return np.empty(shape.extents, shape.dtype)
    return pool.allocate(shape.bytes).array(shape.dtype, shape.extents)


def _factory(shape: Shape, pool: Pool) -> Callable[[], np.ndarray[Any, Any]] | None:
    return functools.partial(allocate, shape, pool) if shape.bytes >= _POOLED else None


def check_constraints(signature: Signature, symbols: Mapping[str, int], where: str) -> None:
    """Raises CallError where extents that the function takes for equal are not, naming their inputs."""
    for left, right in signature.constraints:
        values = evaluate(left, symbols), evaluate(right, symbols)
        if values[0] != values[1]:
            named = [
                f"axis {symbol.axis} of {signature.inputs[symbol.input].name} is {symbols[symbol.name]}"
                for symbol in signature.symbols
                if symbol.name in f"{left} {right}"
            ]
            raise CallError(
                f"{where}: {show_extent(left)} and {show_extent(right)} must be equal, they are {values[0]} and "
                f"{values[1]}; {', '.join(dict.fromkeys(named))}"
            )


def show_extent(extent: Expr) -> str:
    """An expression as people write it."""
    if isinstance(extent, list):
        operator, left, right = extent
        return f"({show_extent(left)} {operator} {show_extent(right)})"
    return str(extent)


class Instance:
    """A function for one combination of symbol values. Safe to run from several threads.

    Commands refer to memory as (external, offset). Externals are the inputs, the results and the arena, in
    this order, given anew in each run; external -1 is address 0, so that parameters, which stay, are offsets.
    """

    def __init__(
        self,
        signature: Signature,
        schedule: Schedule,
        symbols: Mapping[str, int],
        binding: Binding,
        where: str,
    ) -> None:
        self._binding = binding
        check_constraints(signature, symbols, where)
        self.inputs = [shape_of(spec, symbols, f"{where}: {spec.name}") for spec in signature.inputs]
        self.results = [shape_of(spec, symbols, f"{where}: {spec.name}") for spec in signature.results]
        self.arena_bytes = evaluate(schedule.arena, symbols)
        buffers = [
            self._place(buffer, symbols, f"{where}: buffer {index}")
            for index, buffer in enumerate(schedule.buffers)
        ]
        self.kernels = [command.kernel or command.op for command in schedule.commands]
        commands = [
            self._command(command, buffers, symbols, f"{where}: command {index}")
            for index, command in enumerate(schedule.commands)
        ]
        externals = len(self.inputs) + len(self.results) + 1
        self.program = NativeProgram(
            binding.threads, commands, externals, schedule.scratch, (binding.code, binding.parameters)
        )
        self.prepared: Callable[..., Any] | None = None
        self._destinations = [spec.destination for spec in signature.results]
        self._arenas: deque[Allocation] = deque()
        self._keeps_arenas = not signature.symbols or self.arena_bytes <= _KEPT_ARENA

    def run(self, externals: list[int]) -> None:
        """Runs once; `externals` are the addresses of the inputs, then of the results."""
        arena = self._take_arena()
        self.program.run([*externals, arena.address if arena else 0])
        self._return_arena(arena)

    def run_timed(self, externals: list[int]) -> list[tuple[str, float]]:
        """Like `run`, and says how many seconds each command took, in the order of the schedule."""
        arena = self._take_arena()
        seconds = self.program.run_timed([*externals, arena.address if arena else 0])
        self._return_arena(arena)
        return list(zip(self.kernels, seconds, strict=True))

    @property
    def kept_bytes(self) -> int:
        """Bytes of the arenas that wait for the next run."""
        return sum(arena.bytes for arena in tuple(self._arenas))

    def prepare(self, fallback: Callable[..., Any]) -> Callable[..., Any] | None:
        """A native callable for exactly these shapes that hands any other call to `fallback`; None if there is
        none on this interpreter, or if it would hold a large arena for a shape that may not come again."""
        if not self._keeps_arenas:
            return None
        first = len(self.inputs)
        arena = self._take_arena()
        pool = self._binding.pool
        return make_fast_call(
            self.program,
            [FastInput(shape.dtype, shape.extents, index) for index, shape in enumerate(self.inputs)],
            [
                FastResult(shape.dtype, shape.extents, first + index, place, _factory(shape, pool))
                for index, (shape, place) in enumerate(zip(self.results, self._destinations, strict=True))
            ],
            fallback,
            arena=first + len(self.results) if arena else None,
            arenas=[arena.address] if arena else [],
            keep=(self, arena),
        )

    def _take_arena(self) -> Allocation | None:
        if not self.arena_bytes:
            return None
        try:
            return self._arenas.pop()
        except IndexError:
            return self._binding.pool.allocate(self.arena_bytes)

    def _return_arena(self, arena: Allocation | None) -> None:
        if arena is not None and self._keeps_arenas:
            self._arenas.append(arena)

    # -- building --------------------------------------------------------------------------------

    def _place(self, buffer: Buffer, symbols: Mapping[str, int], where: str) -> Place:
        offset, size = evaluate(buffer.offset, symbols), evaluate(buffer.bytes, symbols)
        if buffer.kind == "parameter":
            parameter = self._binding.parameters[buffer.index]
            if parameter is None:
                raise ArtifactError(f"{where}: parameter {buffer.index} was not loaded")
            check_range(offset, size, parameter.nbytes, f"{where}: parameter {buffer.index}")
            return Place((-1, parameter.ctypes.data + offset), size)
        if buffer.kind == "arena":
            external, available = len(self.inputs) + len(self.results), self.arena_bytes
        elif buffer.kind == "result":
            external, available = len(self.inputs) + buffer.index, self.results[buffer.index].bytes
        else:
            external, available = buffer.index, self.inputs[buffer.index].bytes
        check_range(offset, size, available, f"{where}: {buffer.kind} {buffer.index}")
        return Place((external, offset), size)

    def _command(
        self, command: Command, buffers: Sequence[Place], symbols: Mapping[str, int], where: str
    ) -> NativeCommand:
        places = [buffers[index] for index in command.buffers]
        references = tuple(place.reference for place in places)
        if command.op == "copy":
            source, target = places
            if source.bytes != target.bytes:
                raise ArtifactError(f"{where}: copy of {source.bytes} bytes to {target.bytes}")
            return NativeCommand(0, 0, references, (), source.bytes)
        tasks = max(0, evaluate(command.tasks, symbols))
        address = self._binding.code.address(command.kernel)
        return NativeCommand(address, tasks, references, evaluate_all(command.sizes, symbols))
