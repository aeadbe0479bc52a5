"""A description of a kept source that no compiler wrote is an ArtifactError, and no file outside of the folder."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from motet.artifact import write_artifact
from motet.artifact.sources import BYTES, DESCRIPTION, KeptSource, SourceFile, SourcePiece, read_source, write_source
from motet.errors import ArtifactError


@pytest.mark.parametrize("name", ["../x", "/x", "", "a/../../x", "a\0b", "."])
def test_names_outside_of_the_folder_are_refused(manifest, members, parameters, name: str) -> None:
    kept = KeptSource([SourceFile("x", []), SourceFile(name, [])])
    added = {DESCRIPTION: msgspec.json.encode(kept), BYTES: b""}
    artifact = write_artifact(manifest, {**members, **added}, parameters)
    with pytest.raises(ArtifactError, match="not names of files"):
        read_source(artifact)


@pytest.mark.parametrize("text", [b"", b"[]", b'{"files": []}', b'{"files": 1}', b'{"files": [], "more": 1}', b"\xff"])
def test_foreign_descriptions_are_refused(manifest, members, parameters, text: bytes) -> None:
    artifact = write_artifact(manifest, {**members, DESCRIPTION: text, BYTES: b""}, parameters)
    with pytest.raises(ArtifactError, match=r"source\.json"):
        read_source(artifact)


@pytest.mark.parametrize(
    "piece", [SourcePiece(5), SourcePiece(-1), SourcePiece(4, 1000), SourcePiece(4, -1), SourcePiece(1, 0)]
)
def test_pieces_that_there_are_not(manifest, members, parameters, tmp_path: Path, piece: SourcePiece) -> None:
    kept = KeptSource([SourceFile("x", [piece])])
    added = {DESCRIPTION: msgspec.json.encode(kept), BYTES: b"four"}
    artifact = write_artifact(manifest, {**members, **added}, parameters)
    with pytest.raises(ArtifactError, match="bytes stored"):
        write_source(artifact, kept, tmp_path)
