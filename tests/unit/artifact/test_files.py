"""Files that are written whole or not at all, and what stands where one is to be written."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from motet.artifact.files import atomic_file, write_atomically
from motet.errors import ArtifactError


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    target, link = tmp_path / "kept" / "real", tmp_path / "link"
    target.write_bytes(b"before")
    link.symlink_to(target)
    write_atomically(link, [memoryview(b"after")])
    assert link.is_symlink()
    assert target.read_bytes() == b"after"
    assert [found.name for found in (tmp_path / "kept").iterdir()] == ["real"]


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, [memoryview(b"one "), memoryview(b"two")])
    reader.join()
    assert found == [b"one two"]
    assert pipe.is_fifo()
    assert [found.name for found in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match="is a directory; expected the name of a file"), atomic_file(Path(name)):
        pytest.fail("nothing can be written there")


def test_what_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), atomic_file(target) as file:
        file.write(b"part")
        raise ZeroDivisionError
    assert target.read_bytes() == b"before"
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
