"""Checks that a schedule whose sizes are known does the same in every order that it allows, and writes its results.

Commands are walked in the order of the list, over a map of each memory into segments that remember who wrote them last
and who has read them since. What a command touches it must come after: a reader after the last writer, a writer after
the readers too, by `after`, and by streams and their waits. Order is transitive, so the last ones are enough. The time
that this takes grows with the segments that commands touch, hardly more than with the commands themselves.

The compiler's `scheduling/checker.py` proves the same in another way, for all values of symbols.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from motet.artifact.schema import Command
from motet.errors import ArtifactError

_CALLER = -1  # who wrote what was there before the first command
_NOBODY = -2


@dataclass(frozen=True, slots=True)
class BufferRange:
    """Bytes `[begin, end)` of memory `base`; `buffer` names them, so that what is written as one buffer is read as
    the same."""

    base: int
    begin: int
    end: int
    buffer: int


@dataclass(slots=True)
class _Segments:
    """Memory in pieces that begin at `begins`: who wrote each last, as which buffer, and who has read it since, as a
    bit set."""

    begins: list[int]
    writers: list[int]
    buffers: list[int]
    readers: list[int] = field(default_factory=lambda: [0])

    def cut(self, at: int) -> int:
        """The number of the piece that begins at `at`."""
        index = bisect_left(self.begins, at)
        if index == len(self.begins) or self.begins[index] != at:
            self.begins.insert(index, at)
            for each in (self.writers, self.buffers, self.readers):
                each.insert(index, each[index - 1])
        return index


@dataclass(frozen=True)
class OrderedMemory:
    """`sizes` are the bytes of each memory; `given` those that hold something before the first command; `results`
    those that must be written from end to end."""

    sizes: Sequence[int]
    given: frozenset[int]
    results: Sequence[tuple[int, str]]


def check_order(
    commands: Sequence[Command], places: Sequence[Sequence[BufferRange]], memory: OrderedMemory, where: str
) -> None:
    """Raises ArtifactError naming `where`, the commands and the memory. `places` are those of each command's buffers,
    in their order."""
    tables = [
        _Segments([0], [_CALLER if base in memory.given else _NOBODY], [_CALLER]) for base in range(len(memory.sizes))
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
        if not writes and (writer == _NOBODY or (foreign and writer != number)):
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
    """One piece of those from `first` to `last`, just written."""
    segments.begins[first:last] = [segments.begins[first]]
    segments.writers[first:last] = [writer]
    segments.buffers[first:last] = [buffer]
    segments.readers[first:last] = [0]


def _closures(commands: Sequence[Command]) -> tuple[list[int], list[int]]:
    """For each command those that have ended when it begins, as bit sets: by `after`, and by streams."""
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
