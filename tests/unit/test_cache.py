"""The cache gives back what was put, drops what is damaged or old, and never stands in the way."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from motet.cache import Cache, default_directory, default_limit
from motet.errors import OptionError


def entries(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_what_was_put_comes_back(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep" / "cache")
    assert cache.get("a") is None
    cache.put("a", b"one")
    cache.put("b", b"")
    cache.put("a", b"two")
    assert Cache(cache.directory).get("a") == b"two"
    assert cache.get("b") == b""
    assert len(entries(tmp_path)) == 2


def test_a_file_is_kept_as_it_is(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", limit=2000)
    assert cache.get_file("a") is None
    for size in (1000, 900):
        written = cache.aside()
        assert written is not None
        written.write_bytes(bytes(size))
        cache.put_file("a", written)
        assert not written.exists()
        kept = cache.get_file("a")
        assert kept is not None and kept.read_bytes() == bytes(size)
    assert len(entries(tmp_path)) == 1
    cache.remove("a")
    assert cache.get_file("a") is None and not entries(tmp_path)


def test_a_file_that_is_too_large_is_left_where_it_is(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=100)
    written = cache.aside()
    assert written is not None
    written.write_bytes(bytes(101))
    cache.put_file("a", written)
    assert cache.get_file("a") is None and written.read_bytes() == bytes(101)


def test_there_is_no_file_to_write_where_the_directory_allows_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert Cache(tmp_path / "file" / "cache").aside() is None


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:20], lambda data: b"",
                                    lambda data: data[:40] + b"x" + data[41:]])
def test_a_damaged_entry_is_dropped(tmp_path: Path, damage) -> None:
    cache = Cache(tmp_path)
    cache.put("a", b"some content")
    (path,) = entries(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get("a") is None
    assert not entries(tmp_path)


def test_the_longest_unused_entries_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=4 * 1032)
    for age, name in enumerate("abcd"):
        cache.put(name, bytes(1000))
        newest = max(entries(tmp_path), key=lambda path: path.stat().st_mtime)
        os.utime(newest, (1000 + age, 1000 + age))
    assert cache.get("a") is not None  # now the most recently used
    cache.put("e", bytes(1000))
    assert cache.get("b") is None
    assert all(cache.get(name) is not None for name in "acde")


def test_what_exceeds_the_limit_alone_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=100)
    cache.put("small", b"x")
    cache.put("large", bytes(100))
    assert cache.get("small") == b"x"
    assert cache.get("large") is None


def test_a_directory_that_cannot_be_used_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "cache")
    cache.put("a", b"one")
    assert cache.get("a") is None


def write_many(directory: Path, seed: int) -> None:
    cache = Cache(directory, limit=20_000)
    for i in range(60):
        cache.put(f"k{i % 7}", bytes([i % 7]) * 3000)
        found = cache.get(f"k{(i + seed) % 7}")
        assert found is None or found == bytes([(i + seed) % 7]) * 3000


def test_processes_share_a_directory(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=write_many, args=(tmp_path, seed)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert sum(path.stat().st_size for path in entries(tmp_path)) <= 20_000


def test_the_environment_says_where_and_how_much(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MOTET_CACHE_DIR", raising=False)
    monkeypatch.delenv("MOTET_CACHE_SIZE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "motet"
    assert default_limit() == 2 << 30
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("MOTET_CACHE_SIZE", "5m")
    assert default_directory() == tmp_path / "mine"
    assert default_limit() == 5 << 20
    monkeypatch.setenv("MOTET_CACHE_SIZE", "lots")
    with pytest.raises(OptionError, match="'lots'"):
        Cache()
