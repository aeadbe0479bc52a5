"""Writes artifacts: one file, deterministic and atomic.

Parameters come first in it, so that a thread can write them while the rest is being generated; its directory begins
with the manifest.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec

from motet.artifact.archive import ArchiveFile, Content, hashed, write_archive
from motet.artifact.dtypes import DTYPES
from motet.artifact.files import atomic_file, unwritable, write_atomically
from motet.artifact.hashes import MemberHash
from motet.artifact.parameters import StoredArray, encode_parameters, encoded_size
from motet.artifact.reader import MANIFEST, PARAMETERS, Artifact
from motet.artifact.schema import Manifest, Member
from motet.artifact.validation import validate
from motet.errors import ArtifactError


def write_artifact(
    manifest: Manifest,
    members: Mapping[str, bytes | bytearray | memoryview],
    parameters: Mapping[str, StoredArray],
    destination: str | Path | None = None,
    *,
    external_parameters: bool = False,
) -> Artifact:
    """Writes an artifact to file `destination`, or into memory if None, by `store_artifact`, and opens it."""
    if destination is None:
        file = io.BytesIO()
        store_artifact(manifest, members, parameters, file, external_parameters=external_parameters)
        return Artifact.from_bytes(file.getbuffer())
    path = Path(destination)
    store_artifact(manifest, members, parameters, path, external_parameters=external_parameters)
    return Artifact.open(path)


def store_artifact(
    manifest: Manifest,
    members: Mapping[str, bytes | bytearray | memoryview],
    parameters: Mapping[str, StoredArray],
    destination: Path | io.BytesIO,
    *,
    external_parameters: bool = False,
    durable: bool = True,
    early: EarlyParameters | None = None,
) -> None:
    """Writes an artifact to a file or into memory.

    This function sets `manifest.members` and `manifest.external_parameters`. `parameters` maps the keys of
    `manifest.parameters` to arrays of the dtype and shape given there. `external_parameters` writes them to a separate
    file next to the artifact, named after it; this needs a destination. `durable` waits until the file is on the disk.
    `early` may already have written the parameters to a file, which then becomes the artifact's. Raises ArtifactError
    if the manifest is invalid or the file cannot be written.
    """
    path = destination if isinstance(destination, Path) else None
    where = "artifact" if path is None else str(path)
    if external_parameters and path is None:
        raise ArtifactError("artifact: external parameters need a file to stand beside; give a destination")
    contents = [hashed(name, partial(_whole, data)) for name, data in members.items()]
    external: Content | None = None
    written = None if early is None or external_parameters else early.result(parameters)
    if written is not None:
        contents.insert(0, written.content)
    elif parameters:
        if external_parameters and path is not None:
            external = hashed(f"{path.stem}.safetensors", partial(encode_parameters, parameters))
        else:
            contents.insert(0, hashed(PARAMETERS, partial(encode_parameters, parameters)))
    listed = [*contents, external] if external else contents
    manifest = msgspec.structs.replace(
        manifest,
        members={content.name: Member(content.sha256, content.size, content.piece) for content in listed},
        external_parameters=external.name if external else None,
    )
    validate(manifest, where)
    _check_parameters(manifest, parameters, where)
    first = 1 if contents and contents[0].name == PARAMETERS else 0
    contents.insert(first, hashed(MANIFEST, partial(_whole, msgspec.json.encode(manifest))))
    if isinstance(destination, io.BytesIO):
        write_archive(destination, contents, MANIFEST)
        return
    if external:
        write_atomically(destination.with_name(external.name), external.pieces())
    if written is not None:
        written.complete(contents[1:], destination, durable)
        return
    with atomic_file(destination, durable) as file:
        write_archive(file, contents, MANIFEST)


class EarlyParameters:
    """Parameters that a thread writes to `file` before the rest of an artifact is known. Leaving the `with` block
    removes the file unless it has become an artifact."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._parameters: dict[str, StoredArray] = {}
        self._written: Future[_Written] | None = None

    def begin(self, parameters: Mapping[str, StoredArray]) -> None:
        """Starts writing them. Must be called once."""
        if parameters and self._written is None:
            self._parameters = dict(parameters)
            thread = ThreadPoolExecutor(1, "motet parameters")
            self._written = thread.submit(_write_parameters, self._file, self._parameters)
            thread.shutdown(wait=False)

    def result(self, parameters: Mapping[str, StoredArray]) -> _Written | None:
        """The file, if it contains `parameters`. Raises ArtifactError if they cannot be written."""
        if self._written is None:
            return None
        try:
            written = self._written.result()
        except OSError as error:
            raise ArtifactError(unwritable(self._file, error)) from error
        same = list(parameters) == list(self._parameters)
        if same and all(parameters[key] is array for key, array in self._parameters.items()):
            return written
        return None

    def __enter__(self) -> EarlyParameters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._written is not None:
            with contextlib.suppress(OSError, ArtifactError):
                self._written.result().close()
        self._file.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Written:
    """The beginning of an artifact: its parameters."""

    content: Content
    file: IO[bytes]
    archive: ArchiveFile

    def complete(self, contents: Sequence[Content], path: Path, durable: bool) -> None:
        """Appends the other members; the file becomes `path`."""
        try:
            for content in contents:
                self.archive.add(content.name, content.pieces(), content.size)
            self.archive.close(MANIFEST)
            self.file.flush()
            if durable:
                os.fsync(self.file.fileno())
            self.file.close()
            Path(self.file.name).replace(path)
        except OSError as error:
            raise ArtifactError(unwritable(path, error)) from error


    def close(self) -> None:
        self.archive.close()
        self.file.close()


def _write_parameters(path: Path, parameters: Mapping[str, StoredArray]) -> _Written:
    found = MemberHash()

    def pieces() -> Iterator[memoryview]:
        for piece in encode_parameters(parameters):
            found.update(piece)
            yield piece

    file = path.open("w+b")
    archive = ArchiveFile(file)
    size = encoded_size(parameters)
    archive.add(PARAMETERS, pieces(), size)
    content = Content(PARAMETERS, partial(encode_parameters, parameters), size, found.hexdigest(), found.piece)
    return _Written(content, file, archive)


def _whole(data: bytes | bytearray | memoryview) -> list[memoryview]:
    return [memoryview(data).cast("B")]


def _check_parameters(manifest: Manifest, parameters: Mapping[str, StoredArray], where: str) -> None:
    """Raises ArtifactError unless `parameters` are those that the manifest describes."""
    for parameter in manifest.parameters:
        array = parameters.get(parameter.key)
        if array is None or list(array.shape) != parameter.shape or array.dtype != DTYPES[parameter.dtype]:
            given = "none" if array is None else f"{list(array.shape)} {array.dtype}"
            expected = f"{parameter.shape} {parameter.dtype}"
            raise ArtifactError(f"{where}: parameter {parameter.key!r}: {given} given, {expected} expected")
