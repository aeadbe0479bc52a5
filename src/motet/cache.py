"""Caches results of the compiler and of drivers, by a hash of all that they depend on.

Entries are files in one directory: `MOTET_CACHE_DIR`, or `motet` in `XDG_CACHE_HOME` (default `~/.cache`). An entry is
the SHA-256 of its content followed by the content, or, for content that contains hashes itself, the file as it is. It
is written to a temporary file and renamed, so that processes can share the directory; an entry that does not match its
hash is dropped. If all entries together exceed the limit (`MOTET_CACHE_SIZE`, in bytes or with a suffix K, M, G;
default 2G), the least recently used ones are removed. An unusable directory makes compilations slower, but does not
make them fail.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from motet.errors import OptionError

DEFAULT_LIMIT = 2 << 30
_SUFFIXES = {"": 0, "K": 10, "M": 20, "G": 30}
_HASH_BYTES = 32


class Cache:
    """A cache in `directory` of at most `limit` bytes; both default to the environment's.

    Raises `OptionError` for an invalid `MOTET_CACHE_SIZE`.
    """

    def __init__(self, directory: Path | None = None, limit: int | None = None) -> None:
        self.directory = default_directory() if directory is None else directory
        self.limit = default_limit() if limit is None else limit

    def get(self, key: str) -> bytes | None:
        """The bytes stored under `key`, or None."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        content = data[_HASH_BYTES:]
        if hashlib.sha256(content).digest() != data[:_HASH_BYTES]:
            _remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # mark as used
        return content

    def get_file(self, key: str) -> Path | None:
        """The file stored under `key`, or None. The caller must verify its content."""
        path = self._path(key)
        try:
            os.utime(path)  # mark as used
        except OSError:
            return None
        return path

    def aside(self) -> Path | None:
        """An empty file in the directory, to be written and passed to `put_file`; None if the directory is not
        writable."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.directory, prefix=".writing-")
        except OSError:
            return None
        os.close(handle)
        return Path(name)

    def put_file(self, key: str, file: Path) -> None:
        """Store `file`, created by `aside`, under `key`, without a hash; a file that is too large is left in place."""
        path = self._path(key)
        try:
            if file.stat().st_size > self.limit:
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            file.replace(path)
        except OSError:
            return
        self._shrink()

    def remove(self, key: str) -> None:
        """Remove the entry under `key`."""
        _remove(self._path(key))

    def put(self, key: str, content: bytes) -> None:
        """Store `content` under `key`, if the directory is usable."""
        self.put_all({key: content})

    def put_all(self, contents: Mapping[str, bytes]) -> None:
        """Store each of `contents` under its key."""
        for key, content in contents.items():
            self._write(key, content)
        if contents:
            self._shrink()

    def _write(self, key: str, content: bytes) -> None:
        if _HASH_BYTES + len(content) > self.limit:
            return
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        except OSError:
            return
        aside = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(content).digest())
                file.write(content)
            aside.replace(path)
        except OSError:
            _remove(aside)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.directory / name[:2] / name[2:]

    def _shrink(self) -> None:
        """Remove the least recently used entries until the rest fits."""
        entries: list[tuple[float, int, Path]] = []
        for path in self.directory.glob("??/*"):
            with contextlib.suppress(OSError):  # another process may have removed it
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                return
            _remove(path)
            total -= size


def default_directory() -> Path:
    if chosen := os.environ.get("MOTET_CACHE_DIR"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "motet"


def default_limit() -> int:
    text = os.environ.get("MOTET_CACHE_SIZE")
    if not text:
        return DEFAULT_LIMIT
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip(), re.IGNORECASE)
    if match is None:
        raise OptionError(
            f"MOTET_CACHE_SIZE: expected bytes, or a number with K, M or G; got {text!r}; unset it for 2G"
        )
    return int(match[1]) << _SUFFIXES[match[2].upper()]


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
