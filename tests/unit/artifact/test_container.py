"""What is written can be read, by Motet and by the ordinary tools of the formats."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from motet.artifact import Artifact, write_artifact
from motet.artifact.parameters import encode_parameters
from motet.artifact.schema import Manifest, Parameter
from motet.errors import ArtifactError


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_every_member_is_read_back(tmp_path: Path, manifest, members, parameters):
    artifact = write_artifact(manifest, members, parameters, tmp_path / "a.motet")
    assert artifact.manifest.functions == manifest.functions
    assert artifact.manifest.variants == manifest.variants
    assert list(artifact.functions) == ["main"]
    for name, data in members.items():
        assert bytes(artifact.member(name)) == data
    for index, described in enumerate(manifest.parameters):
        array = artifact.parameter(index)
        np.testing.assert_array_equal(array, parameters[described.key])
        assert array.dtype == parameters[described.key].dtype
        assert not array.flags.writeable and not array.flags.owndata


def test_the_file_is_a_plain_zip_with_the_manifest_first(tmp_path: Path, manifest, members, parameters):
    path = tmp_path / "a.motet"
    write_artifact(manifest, members, parameters, path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[0] == "manifest.json"
        assert json.loads(archive.read("manifest.json"))["producer"] == "motet test"
        content = path.read_bytes()
        for info in archive.infolist():
            assert info.compress_type == zipfile.ZIP_STORED
            name, extra = struct.unpack_from("<2H", content, info.header_offset + 26)
            assert (info.header_offset + 30 + name + extra) % 4096 == 0


def test_the_parameter_file_reads_with_the_safetensors_library(tmp_path: Path, manifest, members, parameters):
    path = tmp_path / "a.motet"
    write_artifact(manifest, members, parameters, path)
    with zipfile.ZipFile(path) as archive:
        tensors = safetensors.numpy.load(archive.read("parameters.safetensors"))
    for key, array in parameters.items():
        np.testing.assert_array_equal(tensors[key], array)


def test_parameters_stand_on_64_byte_boundaries_of_memory(tmp_path: Path, manifest, members, parameters):
    artifact = write_artifact(manifest, members, parameters, tmp_path / "a.motet")
    for index, parameter in enumerate(manifest.parameters):
        if 0 not in parameter.shape:
            assert artifact.parameter(index).ctypes.data % 64 == 0


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.bool_, np.float64, np.uint16]
)
def test_every_dtype_keeps_its_bits(dtype):
    array = (np.arange(13) % 2).astype(dtype)
    file = b"".join(encode_parameters({"odd": np.ones(3, np.uint8), "array": array.reshape(13, 1)[::2]}))
    stored = dict(safetensors.deserialize(file))["array"]
    assert stored["data"] == np.ascontiguousarray(array[::2]).tobytes()
    assert stored["shape"] == [7, 1]


def test_equal_input_gives_an_equal_file(tmp_path: Path, manifest, members, parameters):
    write_artifact(manifest, members, parameters, tmp_path / "a.motet")
    write_artifact(manifest, members, parameters, tmp_path / "b.motet")
    content = (tmp_path / "a.motet").read_bytes()
    assert content == (tmp_path / "b.motet").read_bytes()
    assert content == bytes(write_artifact(manifest, members, parameters).data)


def test_saving_writes_the_same_bytes(tmp_path: Path, manifest, members, parameters):
    artifact = write_artifact(manifest, members, parameters)
    artifact.save(tmp_path / "a.motet")
    artifact.save(tmp_path / "a.motet")
    assert (tmp_path / "a.motet").read_bytes() == bytes(artifact.data)
    Artifact.open(tmp_path / "a.motet").save(tmp_path / "a.motet")
    assert bytes(Artifact.open(tmp_path / "a.motet").data) == bytes(artifact.data)
    assert listing(tmp_path) == ["a.motet"]


def test_external_parameters_stand_beside_the_file(tmp_path: Path, manifest, members, parameters):
    artifact = write_artifact(manifest, members, parameters, tmp_path / "a.motet", external_parameters=True)
    assert listing(tmp_path) == ["a.motet", "a.safetensors"]
    np.testing.assert_array_equal(artifact.parameter(0), parameters["weight"])
    (tmp_path / "sub").mkdir()
    artifact.save(tmp_path / "sub" / "b.motet")
    np.testing.assert_array_equal(
        Artifact.open(tmp_path / "sub" / "b.motet").parameter(1), parameters["packed"]
    )
    (tmp_path / "a.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"a\.safetensors: cannot be read: no such file"):
        Artifact.open(tmp_path / "a.motet").parameter(0)


def test_external_parameters_need_a_file(manifest, members, parameters):
    with pytest.raises(ArtifactError, match="give a destination"):
        write_artifact(manifest, members, parameters, external_parameters=True)


def test_a_path_that_cannot_be_written_is_one_error_and_leaves_nothing(tmp_path: Path, manifest, members):
    bare = Manifest(manifest.schema, "p", [], [], [], {})
    with pytest.raises(ArtifactError, match=r"none/a\.motet: cannot be written: no such file or directory"):
        write_artifact(bare, members, {}, tmp_path / "none" / "a.motet")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ArtifactError, match="folder: cannot be written: is a directory"):
        write_artifact(bare, members, {}, tmp_path / "folder")
    assert listing(tmp_path) == ["folder"]


def test_a_failing_write_leaves_the_old_file(tmp_path: Path, manifest, members, parameters, monkeypatch):
    path = tmp_path / "a.motet"
    write_artifact(manifest, members, parameters, path)
    before = path.read_bytes()

    def full(self, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "_write_end_record", full)
    with pytest.raises(ArtifactError, match="no space left on device"):
        write_artifact(manifest, members, parameters, path)
    assert path.read_bytes() == before
    assert listing(tmp_path) == ["a.motet"]


def test_parameters_that_are_not_the_described_ones_are_refused(manifest, members, parameters):
    parameters["weight"] = parameters["weight"].T
    with pytest.raises(
        ArtifactError, match=r"parameter 'weight': \[5, 3\] float32 given, \[3, 5\] f32 expected"
    ):
        write_artifact(manifest, members, parameters)


def test_a_dtype_that_cannot_be_stored_is_refused(members):
    manifest = Manifest(1, "p", [], [], [Parameter("c", "f32", [2])], {})
    with pytest.raises(ArtifactError, match="parameter 'c'"):
        write_artifact(manifest, members, {"c": np.zeros(2, np.complex64)})


def test_an_archive_may_be_longer_than_a_window_of_the_directory(manifest):
    members = {f"executables/{i:04}.o": bytes([i % 256]) * i for i in range(300)}
    bare = Manifest(manifest.schema, "p", [], [], [], {})
    artifact = write_artifact(bare, members, {})
    assert all(bytes(artifact.member(name)) == data for name, data in members.items())
    with zipfile.ZipFile(io.BytesIO(bytes(artifact.data))) as archive:
        assert archive.testzip() is None
