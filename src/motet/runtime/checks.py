"""Reads the checks that failed in a call, such as an index out of bounds, from the end of the call's arena.

Each command that may fail has a status there (`artifact/schema.py`). All statuses are zero when a call starts; a task
whose check fails writes to the status of its command and returns.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence

from motet.artifact.schema import STATUS_BYTES
from motet.errors import CallError

_NAMED = re.compile(r'\w+ ".*"')  # texts of ONNX operators; those of MLIR also contain a dialect
_WORDS = struct.Struct("=3q")


def status_bytes(checks: Sequence[Sequence[str]]) -> int:
    return STATUS_BYTES * len(checks)


class Statuses:
    """The statuses of a call of `where`, `offset` bytes into its arena."""

    def __init__(self, where: str, checks: Sequence[Sequence[str]], offset: int) -> None:
        self.where = where
        self.checks = checks
        self.offset = offset
        self.bytes = status_bytes(checks)
        self.zeros = bytes(self.bytes)

    def clear(self, arena: int) -> None:
        """Zero the statuses in the arena at an address."""
        ctypes.memset(arena + self.offset, 0, self.bytes)

    def failure(self, arena: int) -> CallError | None:
        """The failure of the call with the arena at an address; None if it succeeded."""
        return self.failure_of(ctypes.string_at(arena + self.offset, self.bytes))

    def failure_of(self, data: bytes) -> CallError | None:
        """The failure recorded in the statuses' bytes; if there are several, that of the first command."""
        if data == self.zeros:
            return None
        for texts, begin in zip(self.checks, range(0, self.bytes, STATUS_BYTES), strict=True):
            number, index, extent = _WORDS.unpack_from(data, begin)
            if number:
                text = str(texts[number - 1]) if 0 < number <= len(texts) else "a check failed"
                return CallError(f"{self.where}: {text}{_compared(index, extent, _NAMED.fullmatch(text) is not None)}")
        return None

    def raise_at(self, address: int) -> None:
        """Raise the failure recorded in the statuses at an address; called from native code."""
        failure = self.failure_of(ctypes.string_at(address, self.bytes))
        raise failure or CallError(f"{self.where}: a check failed")


def _compared(index: int, extent: int, named: bool) -> str:
    """Describe index and extent; a negative index of an ONNX operator counts from the end."""
    if extent < 0:
        return ""
    return f": index {index - extent if named and index < 0 else index} is outside of an axis of extent {extent}"
