"""A file that is missing, foreign, newer, cut, flipped or forged is an ArtifactError, never anything else."""

from __future__ import annotations

import io
import json
import os
import random
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.seeds import examples

from motet.artifact import Artifact, write_artifact
from motet.artifact.schema import SCHEMA_VERSION
from motet.errors import ArtifactError


@pytest.fixture
def written(manifest, members, parameters) -> bytes:
    return bytes(write_artifact(manifest, members, parameters).data)


def contents(data: bytes) -> list[bytes]:
    """Everything that can be read from an artifact."""
    artifact = Artifact.from_bytes(data)
    parameters = [artifact.parameter(i).tobytes() for i in range(len(artifact.manifest.parameters))]
    return [bytes(artifact.member(name)) for name in artifact.manifest.members] + parameters


def forged(data: bytes, change) -> bytes:
    """The artifact with `change` applied to its manifest, its checksums made to fit."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "manifest.json":
                tree = json.loads(content)
                change(tree)
                content = json.dumps(tree).encode()
            new.writestr(name, content)
    return target.getvalue()


def test_any_flipped_bits_are_an_error_or_unnoticed(written: bytes):
    before = contents(written)
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    choice = random.Random(seed)
    # Headers, manifest and directory are a small part of it: half of the flips go to the non-zero bytes.
    telling = [at for at, byte in enumerate(written) if byte]
    for round_ in range(1500):
        data = bytearray(written)
        for _ in range(choice.choice((1, 1, 1, 4))):
            at = choice.choice(telling) if round_ % 2 else choice.randrange(len(data))
            data[at] ^= 1 << choice.randrange(8)
        try:
            after = contents(bytes(data))
        except ArtifactError:
            continue
        assert after == before


def test_any_truncation_is_an_error(written: bytes):
    for length in [*range(200), *range(200, len(written), 97), len(written) - 1]:
        with pytest.raises(ArtifactError):
            contents(written[:length])


@given(st.binary(max_size=200))
def test_any_bytes_are_an_error(data: bytes):
    with pytest.raises(ArtifactError, match="not an artifact"):
        Artifact.from_bytes(data)


def paths(tree, prefix=()):
    """Every place in a JSON tree."""
    yield prefix
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from paths(value, (*prefix, key))


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_value_in_the_manifest_is_an_error_or_sound(written: bytes, data):
    def change(tree):
        place = data.draw(st.sampled_from(list(paths(tree))[1:]))
        value = data.draw(
            st.one_of(
                st.integers(-(2**70), 2**70), st.text(max_size=3), st.none(), st.just([]), st.just({}),
                st.sampled_from([["+", "n", 1], ["//", 1, 0], ["^", 1, 2], "n", -1]),
            )
        )  # fmt: skip
        for key in place[:-1]:
            tree = tree[key]
        tree[place[-1]] = value

    try:
        contents(forged(written, change))
    except ArtifactError as error:
        assert "\n" not in str(error)


def edit(*path_and_value):
    *path, last, value = path_and_value

    def change(tree):
        for key in path:
            tree = tree[key]
        tree[last] = value

    return change


SCHEDULE = ("variants", 0, "schedules", "main")
DEFECTS = [
    (edit("schema", 99), f"newer format 99; this version reads format {SCHEMA_VERSION}; update Motet"),
    (edit(*SCHEDULE, "commands", 0, "buffers", [0, 9]), "command 0: buffer 9: there are 6"),
    (edit(*SCHEDULE, "commands", 0, "buffers", [-1]), "command 0: buffer -1"),
    (edit(*SCHEDULE, "commands", 1, "after", [1]), "command 1: after command 1; expected an earlier one"),
    (edit(*SCHEDULE, "commands", 0, "kernel", ""), "command 0: dispatch without a kernel"),
    (edit(*SCHEDULE, "commands", 1, "buffers", [1]), "copy of 1 buffers; expected source and target"),
    (edit(*SCHEDULE, "buffers", 4, "offset", 65), "buffer 4: arena: bytes 65 to 129; there are 128"),
    (edit(*SCHEDULE, "buffers", 2, "index", 4), "buffer 2: parameter 4: there are 4"),
    (edit(*SCHEDULE, "buffers", 0, "bytes", "m"), "buffer 0: bytes: symbol 'm'; there are: n"),
    (edit(*SCHEDULE, "arena", ["+", 1]), r"arena: \['\+', 1\]; expected \[operator, left, right\]"),
    (edit("functions", 0, "inputs", 0, "dtype", "f13"), "input 0: dtype 'f13'; expected one of i1, "),
    (edit("functions", 0, "results", 1, "destination", 2), "result 1: destination 2: no such input"),
    (edit("functions", 0, "results", 1, "destination", 0), "differ from its destination's"),
    (edit("functions", 0, "symbols", 0, "axis", 1), "symbol 'n': not axis 1 of input 0"),
    (edit("functions", 0, "name", "other"), "has schedules for main; expected other"),
    (edit("functions", 0, "name", "a\n\x1b[2J"), r"has schedules for main; expected a\\n\\x1b\[2J"),
    (edit("variants", 0, "objects", ["none.o"]), "object 'none.o': no such member"),
    (edit("members", "executables/main/a.o", "size", 3), "its size is not the manifest's"),
    (edit("members", "x", "sha256", "0"), "member 'x': damaged"),
    (edit("members", "x", "piece", -1), "hashed in pieces of -1 bytes; expected 0, for the whole, or 65536"),
    (edit("members", "x", "piece", 100), "member 'x': hashed in pieces of 100 bytes"),
    (edit("members", "y", {"sha256": "", "size": 0}), "missing: y; not listed: none"),
    (edit("parameters", 0, "shape", [5, 3]), "parameter 'weight': 3x5xf32 stored, 5x3xf32 expected"),
    (edit("external_parameters", "../up"), "not the name of a member"),
    (edit("producer", 3), "producer"),
    (edit("surplus", 3), "surplus"),
]


@pytest.mark.parametrize(("change", "message"), DEFECTS, ids=[message for _, message in DEFECTS])
def test_each_defect_is_named(written: bytes, change, message: str):
    with pytest.raises(ArtifactError, match=message) as caught:
        contents(forged(written, change))
    assert str(caught.value).startswith("artifact: ")


def test_an_endless_expression_is_refused(written: bytes):
    nested: list = ["+", 1, 1]
    for _ in range(400):
        nested = ["+", nested, 1]
    with pytest.raises(ArtifactError, match="deeper"):
        contents(forged(written, edit(*SCHEDULE, "arena", nested)))


def test_a_missing_or_empty_file_and_a_folder_are_named(tmp_path: Path):
    with pytest.raises(ArtifactError, match=r"none\.motet: cannot be read: no such file or directory"):
        Artifact.open(tmp_path / "none.motet")
    (tmp_path / "empty.motet").touch()
    with pytest.raises(ArtifactError, match=r"empty\.motet: not an artifact: the file is empty"):
        Artifact.open(tmp_path / "empty.motet")
    with pytest.raises(ArtifactError, match="is a directory"):
        Artifact.open(tmp_path)


@pytest.mark.parametrize("program", [b"\x08\x0a\x12\x05torch", b"func.func @main() {\n  return\n}\n"])
def test_a_program_under_the_name_of_an_artifact_is_to_be_compiled(tmp_path: Path, program: bytes):
    (tmp_path / "model.motet").write_bytes(program)
    with pytest.raises(ArtifactError, match=r"model\.motet: not an artifact.* is compiled first: motet compile"):
        Artifact.open(tmp_path / "model.motet")
    with pytest.raises(ArtifactError, match=r"not an artifact.* is compiled first: motet compile"):
        Artifact.from_bytes(program)


def test_a_foreign_zip_is_named(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(ArtifactError, match=r"a\.zip: not an artifact: a zip without manifest\.json"):
        Artifact.open(tmp_path / "a.zip")


def test_a_compressed_member_is_refused(written: bytes):
    target = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(written)) as old,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(ArtifactError, match="compressed or encrypted; expected stored"):
        Artifact.from_bytes(target.getvalue())


def test_damage_is_not_looked_for_when_told_so(written: bytes, members):
    at = written.index(members["executables/main/a.o"]) + 100
    damaged = bytearray(written)
    damaged[at] ^= 1
    with pytest.raises(ArtifactError, match="damaged"):
        Artifact.from_bytes(damaged).member("executables/main/a.o")
    assert len(Artifact.from_bytes(damaged, verify=False).member("executables/main/a.o")) > 0


@pytest.mark.parametrize("size", [1000, 3 << 20])
def test_parameters_that_are_checked_meanwhile_are_checked(manifest, members, parameters, size: int):
    grown = {**parameters, "weight": np.arange(size, dtype=np.float32)}
    described = [msgspec.structs.replace(p, shape=[size]) if p.key == "weight" else p for p in manifest.parameters]
    manifest = msgspec.structs.replace(manifest, parameters=described)
    data = bytearray(write_artifact(manifest, members, grown).data)
    index = [parameter.key for parameter in described].index("weight")
    for damage in (False, True):
        if damage:
            place = data.find(grown["weight"][-8:].tobytes())
            data[place + 5] ^= 1
        artifact = Artifact.from_bytes(bytes(data))
        artifact.begin_check()
        artifact.begin_check()
        if not damage:
            assert artifact.unchecked_parameter(index)[-1] == artifact.parameter(index)[-1] == size - 1
            continue
        for _ in range(2):
            with pytest.raises(ArtifactError, match=r"parameters\.safetensors': damaged: its hash is not"):
                artifact.parameter(index)
