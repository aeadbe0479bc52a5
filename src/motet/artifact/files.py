"""Atomic file writes, and reads of files that a user names."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import IO

from motet.errors import ArtifactError, OptionError


@contextlib.contextmanager
def atomic_file(path: Path, durable: bool = True) -> Generator[IO[bytes]]:
    """A file to write, which becomes `path` when the block ends, and is removed if the block raises. `durable` waits
    until it is on the disk. If `path` is a symbolic link, its target is written; special files (/dev/null, /dev/stdout,
    pipes) are written directly.

    Raises ArtifactError, with the path and the reason, if it cannot be written.
    """
    temporary: Path | None = None
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a directory; expected the name of a file")
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        with temporary.open("xb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(target)
    except (OSError, ValueError) as error:
        raise ArtifactError(unwritable(path, error)) from error
    finally:
        # Exists only if an operation above failed; removing an impossible name fails too.
        if temporary is not None:
            with contextlib.suppress(OSError, ValueError):
                temporary.unlink()


def write_atomically(path: Path, pieces: Iterable[memoryview]) -> None:
    """Writes the concatenation of `pieces` to `path`."""
    with atomic_file(path) as file:
        for piece in pieces:
            file.write(piece)


def unwritable(path: Path, error: Exception) -> str:
    return f"{path}: cannot be written: {_reason(error)}"


def unreadable(path: Path, error: Exception) -> str:
    return f"{path}: cannot be read: {_reason(error)}"


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]


def read_named(path: str | Path, where: str) -> bytes:
    """The bytes of a file that an option names. Raises OptionError, prefixed with `where`, if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"{where}: cannot be read: {(error.strerror or str(error)).lower()}") from None
