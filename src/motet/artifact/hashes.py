"""Hashes of members: SHA-256, of large members in pieces, so that several threads can verify one.

The hash of a member of up to `PIECE` bytes is the SHA-256 of its content. A longer one is split into pieces of `PIECE`
bytes, the last one shorter; its hash is the SHA-256 of the concatenated digests of the pieces.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

PIECE = 4 << 20
_MOST_THREADS = 16


class MemberHash:
    """The hash of a member whose content arrives in parts."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []
        self._piece, self._room = hashlib.sha256(), PIECE

    def update(self, data: memoryview) -> None:
        """Appends bytes."""
        self.size += len(data)
        while len(data):
            if not self._room:
                self._pieces.append(self._piece.digest())
                self._piece, self._room = hashlib.sha256(), PIECE
            part = data[: self._room]
            self._piece.update(part)
            self._room -= len(part)
            data = data[len(part) :]

    def hexdigest(self) -> str:
        return _joined([*self._pieces, self._piece.digest()])

    @property
    def piece(self) -> int:
        """The length of the pieces: `Member.piece`."""
        return PIECE if self._pieces else 0


def hash_of(pieces: Iterable[memoryview]) -> MemberHash:
    """The hash of the concatenation of `pieces`."""
    found = MemberHash()
    for piece in pieces:
        found.update(piece)
    return found


def hexdigest(data: memoryview, piece: int) -> str:
    """The hash of the member `data` in pieces of `piece` bytes, computed by several threads, or of the whole if `piece`
    is 0."""
    if not piece or len(data) <= piece:
        return _whole(data).hex()
    parts = [data[start : start + piece] for start in range(0, len(data), piece)]
    threads = min(_MOST_THREADS, len(parts), os.cpu_count() or 1)
    with ThreadPoolExecutor(threads, "motet check") as pool:
        return _joined(list(pool.map(_whole, parts)))


def _joined(digests: list[bytes]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest() if len(digests) > 1 else digests[0].hex()


def _whole(data: memoryview) -> bytes:
    """SHA-256 of `data`. Pages of a mapped file are released again: most may never be used, such as constants in the
    layout of another processor."""
    digest = hashlib.sha256()
    for start in range(0, len(data), PIECE):
        part = data[start : start + PIECE]
        digest.update(part)
        if len(part) == PIECE:
            _let_go(part)
    return digest.digest()


def _let_go(piece: memoryview) -> None:
    """Lets the system reclaim the memory of `piece` if it is mapped from a file; it is read again when needed."""
    if isinstance(piece.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        offset = _address(piece) - _address(piece.obj)
        first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (offset + len(piece)) // mmap.PAGESIZE * mmap.PAGESIZE
        piece.obj.madvise(mmap.MADV_DONTNEED, first, last - first)


def _address(data: memoryview | mmap.mmap) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)
