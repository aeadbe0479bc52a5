"""What is compiled again comes from the cache, unless what is kept there, or the source, is not what it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import motet
from motet.cache import Cache
from motet.errors import CompileError, OptionError

TEXT = """
func.func @main(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %c = arith.constant dense<WEIGHTS> : tensor<4x5xf32>
  %y = arith.addf %x, %c : tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def source(folder: Path, weight: float, padding: int = 0) -> Path:
    """A program in a file; with padding, of more than a MiB, which the compiler reads by itself."""
    path = folder / "program.mlir"
    path.write_text(TEXT.replace("WEIGHTS", f"{weight:e}") + "// padding\n" * padding)
    return path


def added(artifact: motet.Artifact) -> float:
    return float(motet.load(artifact)(np.zeros((4, 5), np.float32))[0, 0])


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("padding", [0, 100_000])
def test_equal_sources_give_what_was_kept(cache: Path, tmp_path: Path, padding: int) -> None:
    first = motet.compile(source(tmp_path, 2.0, padding))
    (kept,) = entries(cache)
    times = kept.stat().st_ctime_ns, kept.stat().st_ino
    again = motet.compile(source(tmp_path, 2.0, padding))
    assert bytes(first.data) == bytes(again.data) == kept.read_bytes()
    assert kept.stat().st_ino == times[1]
    assert added(again) == 2.0
    assert added(motet.compile(source(tmp_path, 3.0, padding))) == 3.0
    assert len(entries(cache)) == 2


@pytest.mark.parametrize("padding", [0, 100_000])
def test_without_the_cache_the_same_is_compiled(cache: Path, tmp_path: Path, padding: int) -> None:
    path = source(tmp_path, 2.0, padding)
    fresh = motet.compile(path, cache=False)
    assert not entries(cache)
    assert bytes(fresh.data) == bytes(motet.compile(path).data)


def test_what_is_damaged_is_compiled_anew(cache: Path, tmp_path: Path) -> None:
    path = source(tmp_path, 2.0)
    artifact = motet.compile(path)
    content = bytes(artifact.data)
    members = {name: bytes(artifact.member(name)) for name in artifact.manifest.members}
    (kept,) = entries(cache)
    for place in range(0, len(content), len(content) // 7):
        kept.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
        again = motet.compile(path)  # what lies between members may be anything
        assert {name: bytes(again.member(name)) for name in again.manifest.members} == members
    kept.write_bytes(b"")
    assert added(motet.compile(path)) == 2.0
    assert kept.read_bytes() == content


def test_an_artifact_outlives_its_place_in_the_cache(cache: Path, tmp_path: Path) -> None:
    artifact = motet.compile(source(tmp_path, 2.0))
    for path in entries(cache):
        path.unlink()
    artifact.save(tmp_path / "saved.motet")
    assert added(artifact) == added(motet.Artifact.open(tmp_path / "saved.motet")) == 2.0


def test_a_source_that_cannot_be_read_is_one_error(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"missing\.mlir: cannot be read: no such file"):
        motet.compile(tmp_path / "missing.mlir")
    (tmp_path / "empty.mlir").write_bytes(b"")
    with pytest.raises(CompileError, match="empty input"):
        motet.compile(tmp_path / "empty.mlir")


def test_a_cache_that_has_no_room_is_no_error(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder, which it has given a file in, is not there any more when that is written."""

    def aside(self: Cache) -> Path:
        asked.append(tmp_path / "gone" / "file")
        return asked[-1]

    asked: list[Path] = []
    monkeypatch.setattr(Cache, "aside", aside)
    assert added(motet.compile(source(tmp_path, 3.5))) == 3.5
    assert asked
    assert not entries(cache)
