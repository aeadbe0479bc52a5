"""dependences: which commands must wait for which, by what they read and write.

    0 writes a    1 reads a, writes b    2 reads a    3 writes a
    → 1 after 0 (read after write), 2 after 0, 3 after 1 and 2 (write after read); 3 after 0 (write after write) follows

A range is bytes of a base, which may be any object that is only equal to itself: a storage without an offset, an arena,
a caller's array. Ranges of different bases never overlap. Offsets may be expressions over symbols; ranges that cannot
be proven disjoint for all values of the symbols count as overlapping.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from motet.artifact.schema import Expr


@dataclass(frozen=True)
class ByteSpan:
    """Bytes `[begin, begin + bytes)` of `base`."""

    base: Hashable
    bytes: Expr
    begin: Expr = 0

    def meets(self, other: ByteSpan) -> bool:
        """Whether the two may overlap."""
        if self.base != other.base or self.bytes == 0 or other.bytes == 0:
            return False
        return not (_ends_by(self, other.begin) or _ends_by(other, self.begin))

    def covers(self, other: ByteSpan) -> bool:
        """Whether this range is known to contain all bytes of `other`."""
        if self.base != other.base:
            return False
        if (self.begin, self.bytes) == (other.begin, other.bytes):
            return True
        extents = (self.begin, self.bytes, other.begin, other.bytes)
        if not all(isinstance(extent, int) for extent in extents):
            return False
        begin, size, other_begin, other_size = (int(str(extent)) for extent in extents)
        return begin <= other_begin and other_begin + other_size <= begin + size


def _ends_by(earlier: ByteSpan, offset: Expr) -> bool:
    """Whether `earlier` is known to end at or before `offset`."""
    if isinstance(earlier.begin, int) and isinstance(earlier.bytes, int) and isinstance(offset, int):
        return earlier.begin + earlier.bytes <= offset
    if earlier.begin == 0:
        return earlier.bytes == offset
    return offset == ["+", earlier.begin, earlier.bytes]


@dataclass(frozen=True)
class CommandAccess:
    """The ranges that a command reads, and those that it writes; updated ranges are in both."""

    reads: Sequence[ByteSpan] = ()
    writes: Sequence[ByteSpan] = ()


@dataclass
class _Piece:
    """A range, the command that wrote it last, and the commands that have read it since."""

    range: ByteSpan
    writers: int = 0
    readers: int = 0


class _Base:
    """The accesses to a base so far: pieces of static extents, adjacent and sorted by `begins`, and those that depend
    on symbols, which may overlap."""

    def __init__(self, base: Hashable) -> None:
        self.base = base
        self.begins: list[int] = []
        self.pieces: list[_Piece] = []
        self.symbolic: list[_Piece] = []

    def read(self, range_: ByteSpan, number: int) -> int:
        waits = 0
        for piece in self._touched(range_):
            waits |= piece.writers
            piece.readers |= 1 << number
        return waits

    def write(self, range_: ByteSpan, number: int) -> int:
        waits = 0
        for piece in self._touched(range_):
            waits |= piece.writers | piece.readers
            if range_.covers(piece.range):  # commands that wait for the piece wait for this one, which waits for all
                piece.writers, piece.readers = 1 << number, 0
            else:
                piece.writers |= 1 << number
        return waits

    def _touched(self, range_: ByteSpan) -> list[_Piece]:
        """The pieces that `range_` overlaps, which together cover it."""
        begin, size = range_.begin, range_.bytes
        if size == 0:
            return []
        if isinstance(begin, int) and isinstance(size, int):
            known = self._cut_out(begin, begin + size)
            return known + [piece for piece in self.symbolic if piece.range.meets(range_)]
        touched = [piece for piece in (*self.pieces, *self.symbolic) if piece.range.meets(range_)]
        if all(piece.range != range_ for piece in touched):
            touched.append(_Piece(range_))
            self.symbolic.append(touched[-1])
        return touched

    def _cut_out(self, begin: int, end: int) -> list[_Piece]:
        """The pieces that form bytes `[begin, end)`; splits pieces at both ends and fills gaps."""
        self._cut(begin)
        self._cut(end)
        first = bisect_left(self.begins, begin)
        last = bisect_left(self.begins, end)
        found: list[_Piece] = []
        at = begin
        for piece in self.pieces[first:last]:
            if at < _begin(piece):
                found.append(_Piece(ByteSpan(self.base, _begin(piece) - at, at)))
            found.append(piece)
            at = _end(piece)
        if at < end:
            found.append(_Piece(ByteSpan(self.base, end - at, at)))
        if len(found) != last - first:
            self.pieces[first:last] = found
            self.begins[first:last] = [_begin(piece) for piece in found]
        return found

    def _cut(self, at: int) -> None:
        place = bisect_left(self.begins, at) - 1
        if place < 0 or _end(self.pieces[place]) <= at:
            return
        piece = self.pieces[place]
        end = _end(piece)
        piece.range = ByteSpan(self.base, at - _begin(piece), _begin(piece))
        self.begins.insert(place + 1, at)
        self.pieces.insert(place + 1, _Piece(ByteSpan(self.base, end - at, at), piece.writers, piece.readers))


def _begin(piece: _Piece) -> int:
    return int(str(piece.range.begin))


def _end(piece: _Piece) -> int:
    return int(str(piece.range.begin)) + int(str(piece.range.bytes))


def find_dependences(accesses: Sequence[CommandAccess]) -> list[int]:
    """For each command, in program order, the set of earlier ones that it must wait for. Pairs implied by others may
    be missing or present; `graphs.order.reduce_order` removes them."""
    bases: dict[Hashable, _Base] = {}
    before: list[int] = []
    for number, access in enumerate(accesses):
        waits = 0
        for range_ in access.reads:
            waits |= bases.setdefault(range_.base, _Base(range_.base)).read(range_, number)
        for range_ in access.writes:
            waits |= bases.setdefault(range_.base, _Base(range_.base)).write(range_, number)
        before.append(waits & ~(1 << number))
    return before
