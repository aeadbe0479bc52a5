"""Reads source files: small ones immediately, large ones in the worker, which maps them."""

from __future__ import annotations

import contextlib
import mmap
import stat
from collections.abc import Generator
from pathlib import Path

from motet.compiler.protobuf import Content
from motet.errors import CompileError, Location

LARGE = 1 << 20  # bytes; larger sources are passed in a file


def large_file(path: str) -> tuple[str, tuple[int, int]]:
    """A file that the worker may read itself, and its state; empty for small files, and if it is not a file."""
    try:
        status = Path(path).stat()
    except OSError:
        return "", (0, 0)  # reading it will report the error
    if not stat.S_ISREG(status.st_mode) or status.st_size < LARGE:
        return "", (0, 0)
    return str(Path(path).absolute()), (status.st_size, status.st_mtime_ns)


def read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CompileError(f"cannot be read: {(error.strerror or str(error)).lower()}", Location(path)) from None


@contextlib.contextmanager
def content_of(path: str, file: str, data: bytes | None) -> Generator[Content]:
    """`data`, or the mapped content of `file`, called `path` in errors."""
    if not file:
        yield data or b""
        return
    try:
        with Path(file).open("rb") as opened:
            content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        raise CompileError("cannot be read", Location(path)) from None
    with content:
        yield content
