"""Installs a distribution of `examples/` as its users would, into a folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
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
