"""The source that an artifact was compiled from, stored in it if requested.

Member `source.json` lists the files of the source and their composition; member `source` has their bytes, except for
tensors that are parameters of the artifact, which are stored once.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import msgspec

from motet.artifact.reader import Artifact
from motet.artifact.schema import Struct
from motet.decoding import decode_json
from motet.errors import ArtifactError

DESCRIPTION, BYTES = "source.json", "source"


class SourcePiece(Struct, frozen=True):
    """A part of a file: the next `size` bytes of member `source`, or the bytes of a parameter, given by its index."""

    size: int
    parameter: int | None = None


class SourceFile(Struct, frozen=True):
    name: str  # relative to the folder of the first file
    pieces: list[SourcePiece]


class KeptSource(Struct, frozen=True):
    """The files of a source, the program first. `format` and `devices` are those of the compilation."""

    files: list[SourceFile]
    format: str = "auto"
    devices: tuple[str, ...] = ()


def read_source(artifact: Artifact) -> KeptSource | None:
    """The description of the source in `artifact`; None if none is stored. Raises ArtifactError if it is invalid."""
    if DESCRIPTION not in artifact.manifest.members:
        return None
    try:
        kept = decode_json(artifact.member(DESCRIPTION), KeptSource)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(f"{artifact.name}: member {DESCRIPTION!r}: {error}") from error
    if not kept.files or not all(_is_below(file.name) for file in kept.files):
        raise ArtifactError(f"{artifact.name}: member {DESCRIPTION!r}: not names of files: "
                            f"{', '.join(repr(file.name) for file in kept.files) or 'none'}")
    return kept


def write_source(artifact: Artifact, kept: KeptSource, folder: Path) -> Path:
    """Writes the files of `kept` to `folder`; returns the program's. Raises ArtifactError if they cannot be
    restored."""
    data, position = artifact.member(BYTES), 0
    for file in kept.files:
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            for piece in file.pieces:
                if piece.parameter is None:
                    part = data[position : position + piece.size]
                    position += piece.size
                elif 0 <= piece.parameter < len(artifact.manifest.parameters):
                    part = memoryview(artifact.parameter(piece.parameter).tobytes())
                else:
                    part = memoryview(b"")
                if len(part) != piece.size or piece.size < 0:
                    raise ArtifactError(f"{artifact.name}: member {DESCRIPTION!r}: file {file.name!r}: {len(part)} "
                                        f"bytes stored, {piece.size} expected")
                stream.write(part)
    return folder / kept.files[0].name




def _is_below(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name
