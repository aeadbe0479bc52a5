"""A headless browser that shows pages: their elements when their scripts have run, and what they look like."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium (install the package chromium)")


def shown(page: Path, profile: Path, width: int = 1200) -> tuple[str, list[str]]:
    """The page's elements as they are when its script has run, and what its console said."""
    outcome = _run(page.as_uri(), profile, width, 900, "--dump-dom")
    return outcome.stdout, [line for line in outcome.stderr.splitlines() if "CONSOLE" in line]


def picture(page: Path, profile: Path, width: int, theme: str, file: Path) -> np.ndarray:
    """The upper part of the page as rows of brightness, from 0 to 1."""
    image = pytest.importorskip("PIL.Image", reason="no pillow")
    _run(f"{page.as_uri()}?theme={theme}", profile, width, 1500, f"--screenshot={file}")
    return np.asarray(image.open(io.BytesIO(file.read_bytes())).convert("L"), np.float64) / 255


def _run(uri: str, profile: Path, width: int, height: int, *options: str) -> subprocess.CompletedProcess[str]:
    assert BROWSER is not None
    outcome = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--log-level=0",
         "--hide-scrollbars", f"--user-data-dir={profile}", f"--window-size={width},{height}", *options, uri],
        capture_output=True, text=True, timeout=240,
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome
