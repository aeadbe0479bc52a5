"""Checks that a schedule of known sizes computes the same in every order that it allows, and writes its results.

Commands are visited in the order of the list, with a map of each memory into segments that record their last writer and
the readers since. A command must come after: a reader after the last writer, a writer also after the readers, by
`after`, and by streams and their waits. Order is transitive, so that only the last writer and readers matter. The time
grows with the number of segments that commands access, which is nearly linear in the number of commands.

The compiler's `scheduling/checker.py` proves the same in another way, for all values of symbols.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from motet.artifact.schema import Command
from motet.errors import ArtifactError

_CALLER = -1  # the writer of memory that is initialised before the first command
_UNWRITTEN = -2  # the writer of memory that is not initialised


@dataclass(frozen=True, slots=True)
class BufferRange:
    """Bytes `[begin, end)` of memory `base`. `buffer` identifies them: memory must be read as the buffer as which it
    was written."""

    base: int
    begin: int
    end: int
    buffer: int


@dataclass(slots=True)
class _Segments:
    """A memory in pieces that begin at `begins`: the last writer of each, the buffer it was written as, and the readers
    since, as a bit set."""

    begins: list[int]
    writers: list[int]
    buffers: list[int]
    readers: list[int] = field(default_factory=lambda: [0])

    def cut(self, at: int) -> int:
        """Splits the piece that contains `at`; returns the number of the piece that begins there."""
        index = bisect_left(self.begins, at)
        if index == len(self.begins) or self.begins[index] != at:
            self.begins.insert(index, at)
            for each in (self.writers, self.buffers, self.readers):
                each.insert(index, each[index - 1])
        return index


@dataclass(frozen=True)
class OrderedMemory:
    """`sizes` are the sizes of the memories in bytes; `given` those that are initialised before the first command;
    `results` those that must be written completely."""

    sizes: Sequence[int]
    given: frozenset[int]
    results: Sequence[tuple[int, str]]


def check_order(
    commands: Sequence[Command], places: Sequence[Sequence[BufferRange]], memory: OrderedMemory, where: str
) -> None:
    """Raises ArtifactError, with `where`, the commands and the memory. `places` are the ranges of each command's
    buffers, in order."""
    tables = [
        _Segments([0], [_CALLER if base in memory.given else _UNWRITTEN], [_CALLER]) for base in
        range(len(memory.sizes))
    ]
    earlier, by_streams = _closures(commands)
    streams = any(command.stream or command.waits for command in commands)
    for number, command in enumerate(commands):
        awaited = earlier[number] & by_streams[number] if streams else earlier[number]
        reads = command.reads if command.op == "dispatch" else 1
        for position, place in enumerate(places[number]):
            if place.begin < place.end:
                _touch(tables[place.base], place, number, awaited, position >= reads, where)
    for base, name in memory.results:
        for begin, writer in zip(tables[base].begins, tables[base].writers, strict=True):
            if writer < 0 and begin < memory.sizes[base]:
                raise ArtifactError(f"{where}: {name}: no command writes it from byte {begin} on")


def _touch(segments: _Segments, place: BufferRange, number: int, awaited: int, writes: bool, where: str) -> None:
    first = segments.cut(place.begin)
    last = segments.cut(place.end)
    own = 1 << number
    for index in range(first, last):
        writer = segments.writers[index]
        foreign = segments.buffers[index] not in (place.buffer, _CALLER)
        if not writes and (writer == _UNWRITTEN or (foreign and writer != number)):
            raise ArtifactError(f"{where}: command {number} reads buffer {place.buffer} before a command writes it")
        if writer >= 0 and writer != number and not awaited >> writer & 1:
            raise _unordered(writer, number, place, where)
        if writes:
            missing = segments.readers[index] & ~(awaited | own)
            if missing:
                raise _unordered(missing.bit_length() - 1, number, place, where)
        else:
            segments.readers[index] |= own
    if writes and last > first:
        _merge(segments, first, last, number, place.buffer)


def _merge(segments: _Segments, first: int, last: int, writer: int, buffer: int) -> None:
    """Merges the pieces from `first` to `last`, which were just written."""
    segments.begins[first:last] = [segments.begins[first]]
    segments.writers[first:last] = [writer]
    segments.buffers[first:last] = [buffer]
    segments.readers[first:last] = [0]


def _closures(commands: Sequence[Command]) -> tuple[list[int], list[int]]:
    """For each command the commands that end before it begins, as bit sets: by `after`, and by streams."""
    after: list[int] = []
    streams: list[int] = []
    latest: dict[int, int] = {}
    for number, command in enumerate(commands):
        own = 0
        for wait in command.after:
            own |= after[wait] | 1 << wait
        after.append(own)
        own = 0
        for wait in command.waits:
            own |= streams[wait] | 1 << wait
        if (before := latest.get(command.stream)) is not None:
            own |= streams[before] | 1 << before
        streams.append(own)
        latest[command.stream] = number
    return after, streams


def _unordered(first: int, second: int, place: BufferRange, where: str) -> ArtifactError:
    return ArtifactError(
        f"{where}: commands {first} and {second} may run at once, and one writes buffer {place.buffer} while the other "
        "uses the same bytes; expected an order between them"
    )
