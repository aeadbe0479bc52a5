"""Entry points of other distributions, found again after an installation."""

from pathlib import Path

import pytest

from motet.plug_ins import plug_ins

GROUP = "motet.test_plug_ins"


def install(folder: Path, distribution: str, names: list[str]) -> None:
    about = folder / f"{distribution}-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(f"{name} = {distribution}\n" for name in names))


def test_an_installation_is_seen_by_the_process_that_asked_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    monkeypatch.syspath_prepend(str(first))
    assert not plug_ins(GROUP)
    install(first, "one", ["a", "b"])
    assert {name: entry.value for name, entry in plug_ins(GROUP).items()} == {"a": "one", "b": "one"}
    install(second, "two", ["c"])
    assert "c" not in plug_ins(GROUP)
    monkeypatch.syspath_prepend(str(second))
    assert sorted(plug_ins(GROUP)) == ["a", "b", "c"]
    assert plug_ins(GROUP) is plug_ins(GROUP)
    monkeypatch.syspath_prepend(str(tmp_path / "not there"))
    assert sorted(plug_ins(GROUP)) == ["a", "b", "c"]
