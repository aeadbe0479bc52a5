"""Writes artifacts: one file, deterministic, appearing whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from motet.artifact.archive import Content, hashed, write_archive
from motet.artifact.dtypes import DTYPES
from motet.artifact.files import atomic_file, write_atomically
from motet.artifact.parameters import encode_parameters
from motet.artifact.reader import MANIFEST, PARAMETERS, Artifact
from motet.artifact.schema import Manifest, Member
from motet.artifact.validation import validate
from motet.errors import ArtifactError


def write_artifact(
    manifest: Manifest,
    members: Mapping[str, bytes | bytearray | memoryview],
    parameters: Mapping[str, np.ndarray],
    destination: str | Path | None = None,
    *,
    external_parameters: bool = False,
    durable: bool = True,
) -> Artifact:
    """Writes an artifact to file `destination`, or into memory if None, and opens it.

    `manifest.members` and `manifest.external_parameters` are filled in here. `parameters` maps the keys of
    `manifest.parameters` to arrays of the dtype and shape given there. `external_parameters` puts them in a
    file of their own beside the artifact, named after it; this needs a destination. `durable` waits until the file is
    on the disk.
    Raises ArtifactError if the manifest is unsound or the file cannot be written.
    """
    path = None if destination is None else Path(destination)
    where = "artifact" if path is None else str(path)
    if external_parameters and path is None:
        raise ArtifactError("artifact: external parameters need a file to stand beside; give a destination")
    contents = [hashed(name, partial(_whole, data)) for name, data in members.items()]
    external: Content | None = None
    if parameters:
        if external_parameters and path is not None:
            external = hashed(f"{path.stem}.safetensors", partial(encode_parameters, parameters))
        else:
            contents.append(hashed(PARAMETERS, partial(encode_parameters, parameters)))
    listed = [*contents, external] if external else contents
    manifest = msgspec.structs.replace(
        manifest,
        members={content.name: Member(content.sha256, content.size) for content in listed},
        external_parameters=external.name if external else None,
    )
    validate(manifest, where)
    _check_parameters(manifest, parameters, where)
    contents.insert(0, hashed(MANIFEST, partial(_whole, msgspec.json.encode(manifest))))
    if path is None:
        file = io.BytesIO()
        write_archive(file, contents)
        return Artifact.from_bytes(file.getbuffer())
    if external:
        write_atomically(path.with_name(external.name), external.pieces())
    with atomic_file(path, durable) as file:
        write_archive(file, contents)
    return Artifact.open(path)


def _whole(data: bytes | bytearray | memoryview) -> list[memoryview]:
    return [memoryview(data).cast("B")]


def _check_parameters(manifest: Manifest, parameters: Mapping[str, np.ndarray], where: str) -> None:
    """Raises ArtifactError unless `parameters` are those that the manifest describes."""
    for parameter in manifest.parameters:
        array = parameters.get(parameter.key)
        if array is None or list(array.shape) != parameter.shape or array.dtype != DTYPES[parameter.dtype]:
            given = "none" if array is None else f"{list(array.shape)} {array.dtype}"
            expected = f"{parameter.shape} {parameter.dtype}"
            raise ArtifactError(f"{where}: parameter {parameter.key!r}: {given} given, {expected} expected")
