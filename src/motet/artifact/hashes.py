"""What members are checked by: SHA-256, of large members in pieces, so that several threads can check one.

A member of up to `PIECE` bytes has the SHA-256 of its content. Of a longer one every piece of `PIECE` bytes, the last
one shorter, is hashed by itself, and the member's hash is the SHA-256 of these digests, one after the other.
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
    """The hash of a member that is not there in one piece."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []
        self._piece, self._room = hashlib.sha256(), PIECE

    def update(self, data: memoryview) -> None:
        """Adds bytes behind those that were given before."""
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
        """How long the pieces are: `Member.piece`."""
        return PIECE if self._pieces else 0


def hash_of(pieces: Iterable[memoryview]) -> MemberHash:
    """The hash of the bytes of `pieces`, one after the other."""
    found = MemberHash()
    for piece in pieces:
        found.update(piece)
    return found


def hexdigest(data: memoryview, piece: int) -> str:
    """The hash of the member `data`, in pieces of `piece` bytes, or of the whole where that is 0, by several threads
    where there are several pieces."""
    if not piece or len(data) <= piece:
        return _whole(data).hex()
    parts = [data[start : start + piece] for start in range(0, len(data), piece)]
    threads = min(_MOST_THREADS, len(parts), os.cpu_count() or 1)
    with ThreadPoolExecutor(threads, "motet check") as pool:
        return _joined(list(pool.map(_whole, parts)))


def _joined(digests: list[bytes]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest() if len(digests) > 1 else digests[0].hex()


def _whole(data: memoryview) -> bytes:
    """SHA-256 of `data`. What is read of a mapped file does not stay: most of it may never be used, such as constants
    in the layout of another processor."""
    digest = hashlib.sha256()
    for start in range(0, len(data), PIECE):
        part = data[start : start + PIECE]
        digest.update(part)
        if len(part) == PIECE:
            _let_go(part)
    return digest.digest()


def _let_go(piece: memoryview) -> None:
    """Let the system take back the memory of `piece` where it is a mapped file's; it is read again when needed."""
    if isinstance(piece.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        offset = _address(piece) - _address(piece.obj)
        first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (offset + len(piece)) // mmap.PAGESIZE * mmap.PAGESIZE
        piece.obj.madvise(mmap.MADV_DONTNEED, first, last - first)


def _address(data: memoryview | mmap.mmap) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)
