"""Parameters that are written before the rest of an artifact is known make the same artifact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motet.artifact.reader import Artifact
from motet.artifact.schema import Manifest
from motet.artifact.writer import EarlyParameters, store_artifact, write_artifact
from motet.errors import ArtifactError

Arrays = dict[str, np.ndarray]


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_file_is_that_of_parameters_that_came_last(
    manifest: Manifest, members: dict[str, bytes], parameters: Arrays, tmp_path: Path
) -> None:
    write_artifact(manifest, members, parameters, tmp_path / "late")
    with EarlyParameters(tmp_path / "writing") as early:
        early.begin(parameters)
        store_artifact(manifest, members, parameters, tmp_path / "soon", early=early)
    assert (tmp_path / "soon").read_bytes() == (tmp_path / "late").read_bytes()
    assert entries(tmp_path) == ["late", "soon"]
    artifact = Artifact.open(tmp_path / "soon")
    artifact.check()
    for index, parameter in enumerate(artifact.manifest.parameters):
        np.testing.assert_array_equal(artifact.parameter(index), parameters[parameter.key])


def test_parameters_that_have_changed_are_written_anew(
    manifest: Manifest, members: dict[str, bytes], parameters: Arrays, tmp_path: Path
) -> None:
    with EarlyParameters(tmp_path / "writing") as early:
        early.begin({**parameters, "weight": parameters["weight"] + 1})
        store_artifact(manifest, members, parameters, tmp_path / "soon", early=early)
        artifact = Artifact.open(tmp_path / "soon")
    index = [parameter.key for parameter in artifact.manifest.parameters].index("weight")
    np.testing.assert_array_equal(artifact.parameter(index), parameters["weight"])
    assert entries(tmp_path) == ["soon"]


def test_nothing_is_left_where_there_is_no_artifact(parameters: Arrays, tmp_path: Path) -> None:
    with pytest.raises(KeyError), EarlyParameters(tmp_path / "writing") as early:
        early.begin(parameters)
        raise KeyError
    assert entries(tmp_path) == []


def test_a_place_that_cannot_be_written_is_one_error(
    manifest: Manifest, members: dict[str, bytes], parameters: Arrays, tmp_path: Path
) -> None:
    with EarlyParameters(tmp_path / "missing" / "writing") as early:
        early.begin(parameters)
        with pytest.raises(ArtifactError, match=r"missing/writing: cannot be written: no such file"):
            store_artifact(manifest, members, parameters, tmp_path / "soon", early=early)
    assert entries(tmp_path) == []
