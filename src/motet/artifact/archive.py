"""The container of an artifact: a zip archive of uncompressed members, each page-aligned so that it can be mapped.

Alignment is by padding in the extra field, like Android's zipalign (field 0xD935). Timestamps are fixed and the order
is the caller's, so equal members give an equal file.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO

from motet.artifact.hashes import hash_of
from motet.errors import ArtifactError

PAGE = 4096
_ALIGNMENT_FIELD = 0xD935
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LARGE = 1 << 30  # from this size on, sizes are written as 64 bits, in an extra field
_ZIP64_FIELD = 20
_SIGNATURE = b"PK\x03\x04"
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


@dataclass(frozen=True)
class Content:
    """A member to write. Each call of `pieces` yields its bytes again: once to hash, once to write."""

    name: str
    pieces: Callable[[], Iterable[memoryview]]
    size: int
    sha256: str
    piece: int = 0  # see `hashes.py`


def hashed(name: str, pieces: Callable[[], Iterable[memoryview]]) -> Content:
    """The member `name` with its size and hash."""
    found = hash_of(pieces())
    return Content(name, pieces, found.size, found.hexdigest(), found.piece)


class ArchiveFile:
    """An archive being written to `file`, an empty seekable file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._archive = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)

    def add(self, name: str, pieces: Iterable[memoryview], size: int) -> None:
        """Appends a member of `size` bytes."""
        info = zipfile.ZipInfo(name, _EPOCH)
        info.external_attr = 0o644 << 16
        info.create_system = 3  # for the same bytes on every system
        info.file_size = size
        large = size > _LARGE
        start = self._file.tell() + _LOCAL_HEADER.size + len(name.encode()) + large * _ZIP64_FIELD
        info.extra = _padding(start)
        with self._archive.open(info, "w", force_zip64=large) as member:
            for piece in pieces:
                member.write(piece)
        info.extra = b""  # only the local header has padding, not the directory

    def close(self, first: str = "") -> None:
        """Writes the directory, with member `first` first and the others in order. Must be called once."""
        self._archive.filelist.sort(key=lambda info: info.filename != first)
        self._archive.close()


def write_archive(file: IO[bytes], contents: Sequence[Content], first: str = "") -> None:
    """Writes `contents` in order to `file`, an empty seekable file, whose directory begins with member `first`."""
    archive = ArchiveFile(file)
    for content in contents:
        archive.add(content.name, content.pieces(), content.size)
    archive.close(first)


def _padding(start: int) -> bytes:
    """An extra field of the size that moves data from `start` to a page boundary."""
    length = -start % PAGE
    if length == 0:
        return b""
    if length < 6:
        length += PAGE
    return struct.pack("<HHH", _ALIGNMENT_FIELD, length - 4, PAGE) + bytes(length - 6)


@dataclass(frozen=True)
class Stored:
    """A member of an archive: a view of its bytes, and their expected CRC-32."""

    data: memoryview
    crc: int

    @property
    def is_intact(self) -> bool:
        return zlib.crc32(self.data) == self.crc


def read_archive(data: memoryview, where: str) -> dict[str, Stored]:
    """The members of the archive `data`, as views of it; their contents are not checked.

    Raises ArtifactError, prefixed with `where`, if it is not such an archive or damaged.
    """
    try:
        with zipfile.ZipFile(_MemoryFile(data)) as archive:
            infos = archive.infolist()
    # The errors that the standard library's parser raises for damaged archives.
    except (zipfile.BadZipFile, struct.error, NotImplementedError, ValueError, OverflowError, RuntimeError,
            EOFError, OSError) as error:  # fmt: skip
        if bytes(data[: len(_SIGNATURE)]) != _SIGNATURE:
            raise ArtifactError(f"{where}: not an artifact, which is a zip archive; a program, such as an ONNX model, "
                                "is compiled first: motet compile, motet.compile") from error  # fmt: skip
        reason = str(error) or type(error).__name__
        raise ArtifactError(f"{where}: not an artifact, or damaged: {reason}") from error
    members: dict[str, Stored] = {}
    for info in infos:
        name = f"{where}: member {info.filename!r}"
        if info.filename in members:
            raise ArtifactError(f"{name}: stands in the archive twice")
        members[info.filename] = Stored(_locate(info, data, name), info.CRC)
    return members


def _locate(info: zipfile.ZipInfo, data: memoryview, where: str) -> memoryview:
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.compress_size != info.file_size:
        raise ArtifactError(f"{where}: compressed or encrypted; expected stored")
    at = info.header_offset
    if not 0 <= at <= len(data) - _LOCAL_HEADER.size:
        raise ArtifactError(f"{where}: its header would be at byte {at}; the file has {len(data)}")
    fields = _LOCAL_HEADER.unpack_from(data, at)
    begin = at + _LOCAL_HEADER.size + fields[9] + fields[10]
    if fields[0] != _SIGNATURE or begin + info.file_size > len(data):
        raise ArtifactError(f"{where}: damaged: its header does not fit the archive")
    return data[begin : begin + info.file_size]


class _MemoryFile(io.RawIOBase):
    """A memoryview as a readable file, without the copy that BytesIO makes."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._at, len(self._data))[whence]
        if base + offset < 0:
            raise OSError(f"position {base + offset} before the beginning")
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = len(self._data) if size is None or size < 0 else self._at + size
        piece = bytes(self._data[self._at : end])
        self._at += len(piece)
        return piece
