"""The wheels that compile, found again after an installation."""

from __future__ import annotations

from pathlib import Path

import pytest

from motet.compiler import cache_key
from motet.errors import CompileError

NAME = "motet_test_wheel"


def found() -> str:
    return cache_key._wheel("a-wheel", NAME, cache_key.search_path())  # pyright: ignore[reportPrivateUsage]


def test_an_installation_is_seen_by_the_process_that_asked_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CompileError, match="compiling needs a-wheel"):
        found()
    package = tmp_path / NAME
    package.mkdir()
    (package / "__init__.py").touch()
    built = found()  # in place, without metadata
    assert str(package) in built
    (package / "library.so").touch()
    assert found() != built
    (tmp_path / f"{NAME}-1.dist-info").mkdir()
    assert found() == f"{NAME}-1.dist-info"
    (tmp_path / f"{NAME}-1.dist-info").rename(tmp_path / f"{NAME}-2.dist-info")
    assert found() == f"{NAME}-2.dist-info"
