"""arrangement: arranges commands in program order, and the memory they access, into a schedule.

Free of MLIR: kernels are known here only by what they read and write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from motet.artifact.schema import Command, Expr, Schedule, ScheduleBuffer
from motet.compiler.kernels.kernel import Packing
from motet.compiler.scheduling.concurrency import FILLING, GROWTH, SMALL, ArenaPlan, chain_order, plan_concurrent
from motet.compiler.scheduling.dependences import ByteSpan, CommandAccess, find_dependences
from motet.compiler.scheduling.memory import BufferLifetime
from motet.compiler.scheduling.streams import assign_streams
from motet.graphs.order import bit_set, close_order, members, reduce_order, reverse_order

LAUNCH = 2e-6  # seconds of overhead of a command


@dataclass(eq=False)
class Storage:
    """The memory of one or more values of the function. A result written to an input's memory has the input's storage
    as `over`."""

    kind: str  # input, result, parameter, arena, status
    bytes: Expr
    index: int = 0
    key: str = ""
    shape: tuple[int, ...] = ()
    packing: Packing | None = None
    extents: tuple[Expr, ...] = ()  # of a tensor in the arena
    dtype: str = ""
    over: Storage | None = None
    checks: tuple[str, ...] = ()  # the texts of a status buffer's checks


@dataclass(frozen=True)
class Recorded:
    """A command in program order. It only reads the first `reads` storages. `seconds` is a rough estimate for one
    thread, 0 if it depends on symbols. `updates` are pairs of a read and a written storage, as positions in `storages`,
    that may share memory."""

    command: Command
    storages: Sequence[Storage]
    reads: int
    seconds: float = 0.0
    updates: tuple[tuple[int, int], ...] = ()

    def fills(self, tasks: int) -> bool:
        """Whether the command keeps a machine busy that needs `tasks` tasks for that. A number of tasks that depends
        on symbols counts as large."""
        known = self.command.tasks
        return not tasks or (self.command.op == "dispatch" and not (isinstance(known, int) and known < tasks))


@dataclass(frozen=True)
class ArrangeOptions:
    """`memory_limit` is the user's limit of an arena in bytes; `streams` the largest number of streams for the commands
    of one function; `filling` the number of tasks that keeps a machine busy. `growth` is the largest ratio of an arena
    to its lower bound if there is no limit, unless it has at most `small` bytes. `chained` makes commands that keep a
    machine busy run one after the other. `depth_first` places each command as soon as possible after the ones that it
    reads from."""

    memory_limit: int | None = None
    streams: int = 1
    filling: int = FILLING
    growth: float = GROWTH
    small: int = SMALL
    chained: bool = False
    depth_first: bool = False


def arrange(
    recorded: Sequence[Recorded], parameters: Mapping[Storage, int], scratch: int, options: ArrangeOptions
) -> Schedule:
    """The schedule of `recorded` commands. `parameters` has the index of every parameter's storage.

    Raises: CompileError: no plan of the arena meets the limit.
    """
    recorded = update_in_place(_depth_first(recorded) if options.depth_first else recorded)
    storages = list(dict.fromkeys(storage for entry in recorded for storage in entry.storages))
    arena = [storage for storage in storages if storage.kind == "arena"]
    memory = _plan(recorded, arena, options)
    offsets = dict(zip(arena, memory.plan.offsets, strict=True))
    slots = not isinstance(memory.plan.total, int)
    fills = [entry.fills(options.filling) for entry in recorded]
    order, _ = reduce_order(find_dependences([_access(entry, offsets, slots) for entry in recorded]))
    if options.chained:
        order, _ = reduce_order(chain_order(order, fills))
    streams = assign_streams(order, _times(recorded), fills, options.streams)
    statuses = [storage for storage in storages if storage.kind == "status"]
    for index, storage in enumerate(statuses):
        storage.index = index
    buffers, numbers = _buffers(storages, offsets, parameters)
    commands = [
        Command(
            entry.command.op, [numbers[storage] for storage in entry.storages], entry.command.kernel,
            entry.command.tasks, entry.command.sizes, list(members(order[number])), entry.reads,
            streams.queues[number], streams.waits[number], float(f"{entry.seconds:.1e}"),
            entry.command.source,
        )
        for number, entry in enumerate(recorded)
    ]
    checks = [list(storage.checks) for storage in statuses]
    return Schedule(buffers, commands, memory.plan.total, scratch, memory.least, memory.serial, checks=checks)


def update_in_place(recorded: Sequence[Recorded]) -> list[Recorded]:
    """The commands, with one storage for two where a command may write its result over what it reads, both are in the
    arena and as large, and everything else that uses the latter has to end before anyway."""
    closure = close_order(find_dependences([_access(entry, {}, False) for entry in recorded]))
    uses: dict[Storage, int] = {}
    for number, entry in enumerate(recorded):
        for storage in entry.storages:
            uses[storage] = uses.get(storage, 0) | 1 << number
    place: dict[Storage, Storage] = {}
    for number, entry in enumerate(recorded):
        for read, written in entry.updates:
            old, new = entry.storages[read], entry.storages[written]
            others = uses[old] & ~(1 << number)
            fits = old.kind == new.kind == "arena" and old.bytes == new.bytes and old.dtype == new.dtype
            if fits and new not in place and not others & ~closure[number] and entry.storages.count(old) == 1:
                place[new] = place.get(old, old)
                uses[old] = -1  # already overwritten
    return [replace(entry, storages=[place.get(s, s) for s in entry.storages]) for entry in recorded]


def _depth_first(recorded: Sequence[Recorded]) -> list[Recorded]:
    """The commands in depth-first order: of those that are ready, the one that became so last is next, so that a
    branch runs to its end while its operands are in the caches."""
    before = find_dependences([_access(entry, {}, False) for entry in recorded])
    missing = [earlier.bit_count() for earlier in before]
    after = reverse_order(before)
    ready = [number for number in reversed(range(len(recorded))) if not missing[number]]
    found: list[Recorded] = []
    while ready:
        number = ready.pop()
        found.append(recorded[number])
        for reader in reversed([*members(after[number])]):
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return found


def _plan(recorded: Sequence[Recorded], arena: Sequence[Storage], options: ArrangeOptions) -> ArenaPlan:
    uses: dict[Storage, list[int]] = {storage: [] for storage in arena}
    for number, entry in enumerate(recorded):
        for storage in entry.storages:
            if storage.kind == "arena":
                uses[storage].append(number)
    return plan_concurrent(
        find_dependences([_access(entry, {}, False) for entry in recorded]),
        _times(recorded), [entry.fills(options.filling) for entry in recorded],
        [
            BufferLifetime(storage.bytes, bit_set(uses[storage])) for storage in arena
        ], options.memory_limit, options.growth, options.small,
    )


def _times(recorded: Sequence[Recorded]) -> list[float]:
    return [LAUNCH + entry.seconds for entry in recorded]


def _access(entry: Recorded, offsets: Mapping[Storage, Expr], slots: bool) -> CommandAccess:
    """The ranges that a command reads and writes: bytes of the arena for storages with an offset, else bytes of the
    storage itself. Storages in one slot count as the same bytes."""

    def range_of(storage: Storage) -> ByteSpan:
        if storage not in offsets:
            return ByteSpan(storage.over or storage, storage.bytes)
        if slots:
            return ByteSpan(f"slot at {offsets[storage]}", 1)
        return ByteSpan("arena", storage.bytes, offsets[storage])

    used = [range_of(storage) for storage in entry.storages]
    return CommandAccess(used[: entry.reads], used[entry.reads :])


def _buffers(
    storages: Sequence[Storage], offsets: Mapping[Storage, Expr], parameters: Mapping[Storage, int]
) -> tuple[list[ScheduleBuffer], dict[Storage, int]]:
    """The schedule's buffers, and the number of each storage's buffer; callers' arrays and parameters appear once."""
    numbers: dict[Storage, int] = {}
    table: dict[tuple[str, int, str], int] = {}
    buffers: list[ScheduleBuffer] = []
    for storage in storages:
        buffer = _buffer(storage, offsets, parameters)
        key = (buffer.kind, buffer.index, str(buffer.bytes))
        if buffer.kind == "arena" or key not in table:
            table[key] = len(buffers)
            buffers.append(buffer)
        numbers[storage] = table[key]
    return buffers, numbers


def _buffer(storage: Storage, offsets: Mapping[Storage, Expr], parameters: Mapping[Storage, int]) -> ScheduleBuffer:
    if storage.kind == "parameter":
        return ScheduleBuffer("parameter", storage.bytes, parameters[storage])
    if storage.kind == "arena":
        return ScheduleBuffer("arena", storage.bytes, 0, offsets[storage], list(storage.extents), storage.dtype)
    if storage.kind == "status":
        return ScheduleBuffer("status", storage.bytes, storage.index)
    return ScheduleBuffer("input" if storage.kind == "input" else "result", storage.bytes, storage.index)
