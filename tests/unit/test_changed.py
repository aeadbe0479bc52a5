"""Which tests `checks.changed` chooses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from checks.changed import TOP, changed_files, choose, distances, imports_in
from checks.structure import Module, read_modules

MODULES = [
    Module(name, Path(name), text) for name, text in {
        "motet.a": "", "motet.b": "from motet import a\n", "motet.c": "import motet.b\nimport motet.d\n",
        "motet.d": "def f():\n    from motet.c import x\n", "motet.other": "import os\n",
        "tests.unit.test_c": "from motet.c import x\n", "tests.unit.test_a": "import motet.a\n",
        "tests.unit.test_other": "import motet.other\n",
        "motet.by_text": "", "motet.table": 'X = {"a": "motet.by_text:f"}\n',
        "motet.compiler.passes.registry": "", "motet.compiler.placement.place": "",
    }.items()
]


def test_distances_count_imports() -> None:
    assert distances(["motet.a"], MODULES) == {
        "motet.a": 0, "motet.b": 1, "tests.unit.test_a": 1, "motet.c": 2, "motet.d": 3, "tests.unit.test_c": 3,
    }
    assert distances(["tests.unit.test_c", "no.module"], MODULES) == {"tests.unit.test_c": 0}
    assert distances(["motet.by_text"], MODULES) == {"motet.by_text": 0, "motet.table": 1}
    place, registry = "motet.compiler.placement.place", "motet.compiler.passes.registry"
    assert distances([place], MODULES) == {place: 0, registry: 1}


def test_imports_are_those_that_the_parser_finds() -> None:
    text = "import a.b, c as d  # e\nif x:\n    from f import (g,  # h, i\n        j as k)\n"
    text += 'PROGRAM = """\nimport program\n"""\n'
    assert imports_in(text) == {"a.b", "c", "f", "f.g", "f.j", "program"}
    modules = read_modules(TOP / "checks")
    for module in modules:
        assert module.imports <= imports_in(module.text), module.name


def test_the_nearest_and_quickest_are_chosen_until_the_time_is_used() -> None:
    near = {"changed": 0, "far": 3, "slow": 1, "quick": 1, "unknown": 2}
    seconds = {"changed": 90.0, "slow": 60.0, "quick": 2.5, "far": 1.0}
    assert choose(near, seconds, 200) == ["changed", "quick", "slow", "unknown", "far"]
    assert choose(near, seconds, 100) == ["changed", "quick"]
    assert choose(near, seconds, 10) == ["changed"]  # what was changed runs in any case


def test_a_change_is_compared_with_the_main_branch_that_the_clone_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr("checks.changed.TOP", tmp_path)
    git("init", "-b", "work")
    git("commit", "--allow-empty", "-m", "first")
    (tmp_path / "new.py").write_text("")
    with pytest.raises(SystemExit, match=r"no branch main or origin/main; .* make test-changed BASE=BRANCH"):
        changed_files("")
    with pytest.raises(SystemExit, match="no branch none; give"):
        changed_files("none")
    assert changed_files("work") == ["new.py"]
    git("update-ref", "refs/remotes/origin/main", "work")
    git("add", "new.py")
    git("commit", "-m", "second")
    assert changed_files("") == ["new.py"]
    git("branch", "main")
    assert changed_files("") == []
