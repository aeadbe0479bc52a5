"""Installs a distribution of `examples/` as its users would, into a folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path


def install_example(example: Path, folder: Path) -> Path:
    """The folder within `folder` that the distribution in `example` was installed into. Its source is copied first, so
    that building it leaves no files in the tree."""
    shutil.copytree(example, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    outcome = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
         "--disable-pip-version-check", "--target", str(folder / "site"), str(folder / "source")],
        text=True, capture_output=True, timeout=240,
    )
    assert outcome.returncode == 0, outcome.stderr
    return folder / "site"


def as_installed(folder: Path) -> Path:
    """The folder of modules of the distribution in `folder`, in which its entry points are found as those of an
    installed one."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / "src" / f"{project['name'].replace('-', '_')}.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines: list[str] = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder / "src"
