"""Hashes of members, whole and in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pytest

from motet.artifact import Artifact, write_artifact
from motet.artifact.hashes import PIECE, hash_of, hexdigest
from motet.artifact.schema import SCHEMA_VERSION, Manifest, Parameter
from motet.errors import ArtifactError

RANDOM = np.random.default_rng(11)


def cut(data: bytes, length: int) -> Iterator[memoryview]:
    return (memoryview(data)[start : start + length] for start in range(0, len(data), length))


@pytest.mark.parametrize("size", [0, 1, 4097, PIECE - 1, PIECE])
def test_a_small_member_has_the_hash_of_its_content(size):
    data = RANDOM.bytes(size)
    found = hash_of(cut(data, 1 << 20))
    assert (found.size, found.piece) == (size, 0)
    assert found.hexdigest() == hashlib.sha256(data).hexdigest() == hexdigest(memoryview(data), 0)


@pytest.mark.parametrize("size", [PIECE + 1, 2 * PIECE, 3 * PIECE + 777])
@pytest.mark.parametrize("length", [1 << 20, 3_000_001, PIECE, 5 * PIECE])
def test_a_large_one_that_of_the_digests_of_its_pieces(size, length):
    data = RANDOM.bytes(size)
    digests = [hashlib.sha256(data[start : start + PIECE]).digest() for start in range(0, size, PIECE)]
    expected = hashlib.sha256(b"".join(digests)).hexdigest()
    found = hash_of(cut(data, length))
    assert (found.size, found.piece, found.hexdigest()) == (size, PIECE, expected)
    assert hexdigest(memoryview(data), PIECE) == expected
    assert hexdigest(memoryview(data), 0) == hashlib.sha256(data).hexdigest()


def large(tmp_path) -> tuple[Artifact, np.ndarray]:
    weights = RANDOM.standard_normal((1500, 1021)).astype(np.float32)
    manifest = Manifest(SCHEMA_VERSION, "test", [], [], [Parameter("weights", "f32", [1500, 1021])], {})
    return write_artifact(manifest, {}, {"weights": weights}, tmp_path / "a.motet"), weights


def test_parameters_of_several_pieces_are_read_back(tmp_path):
    artifact, weights = large(tmp_path)
    (member,) = artifact.manifest.members.values()
    assert member.piece == PIECE < member.size
    np.testing.assert_array_equal(Artifact.open(tmp_path / "a.motet").parameter(0), weights)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.999])
def test_a_changed_bit_in_any_piece_is_found(tmp_path, part):
    artifact, weights = large(tmp_path)
    data = bytearray(artifact.data)
    data[data.index(weights.tobytes()) + int(part * weights.nbytes)] ^= 4
    with pytest.raises(ArtifactError, match="damaged"):
        Artifact.from_bytes(data).parameter(0)
    begun = Artifact.from_bytes(data)
    begun.begin_check()
    with pytest.raises(ArtifactError, match="damaged"):
        begun.parameter(0)
