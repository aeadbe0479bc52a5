"""A headless browser that shows pages: their elements when their scripts have run, and what they look like.

It is told what to do by Chrome's DevTools Protocol over pipes, since its window is at least 500 pixels wide, and that
of a phone is not.
"""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

SCREENS = Path(__file__).with_name("report_screens")
WIDTHS = (1600, 900, 480)

needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium (install the package chromium)")

_COMPLAINTS = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")


class _Page:
    """An empty page of a browser, and what it has said. Messages end with a zero byte."""

    def __init__(self, commands: io.BufferedWriter, messages: io.BufferedReader) -> None:
        self._commands, self._messages, self._rest, self._count, self._session = commands, messages, b"", 0, ""
        self.said: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Log", "Page", "Runtime"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        answer = self._wait("id", self._count)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def wait_for(self, event: str) -> None:
        if all(message["method"] != event for message in self.said):
            self._wait("method", event)

    def _wait(self, key: str, value: object) -> dict[str, Any]:
        """The next message whose `key` is `value`; events before it are kept."""
        while True:
            while b"\0" not in self._rest:
                more = self._messages.read1(1 << 16)
                assert more, "the browser ended"
                self._rest += more
            text, _, self._rest = self._rest.partition(b"\0")
            message = json.loads(text)
            if "method" in message:
                self.said.append(message)
            if message.get(key) == value:
                return message


@contextmanager
def _opened(uri: str, profile: Path, width: int, height: int, *features: dict[str, str]) -> Generator[_Page]:
    """The page at `uri` in a window of this size, loaded, for media of these features."""
    assert BROWSER is not None
    (reads, commands), (messages, writes) = os.pipe(), os.pipe()
    # The browser reads from file descriptor 3 and writes to 4.
    start = f'exec "$@" 3<&{reads} 4>&{writes}'
    process = subprocess.Popen(
        ["bash", "-c", start, "bash", BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--remote-debugging-pipe", f"--user-data-dir={profile}"],
        pass_fds=(reads, writes), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    os.close(reads)
    os.close(writes)
    with os.fdopen(commands, "wb") as out, os.fdopen(messages, "rb") as answers:
        try:
            page = _Page(out, answers)
            page.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                     mobile=False)
            page.ask("Emulation.setEmulatedMedia", features=features)
            page.ask("Page.navigate", url=uri)
            page.wait_for("Page.loadEventFired")
            yield page
        finally:
            process.kill()
            process.wait()


def shown(page: Path, profile: Path, width: int = 1200) -> tuple[str, list[str]]:
    """The page's elements as they are when its script has run, and what its console said."""
    with _opened(page.as_uri(), profile, width, 900) as view:
        dom = view.ask("Runtime.evaluate", expression="document.documentElement.outerHTML")["result"]["value"]
        return dom, [json.dumps(message["params"]) for message in view.said if message["method"] in _COMPLAINTS]


def is_as_it_was(page: Path, name: str, width: int, folder: Path) -> None:
    """Fails unless the upper part of the page has the brightness of `report_screens/NAME_THEME_WIDTH.npy` in both
    themes, by a coarse grid, so that fonts may differ. MOTET_WRITE_SCREENS=1 writes what is expected."""
    image = pytest.importorskip("PIL.Image", reason="no pillow")
    means: list[float] = []
    for theme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": theme}
        with _opened(page.as_uri(), folder / "profile", width, 1500, feature) as view:
            data = base64.b64decode(view.ask("Page.captureScreenshot", format="png")["data"])
        (folder / f"{theme}.png").write_bytes(data)
        pixels = np.asarray(image.open(io.BytesIO(data)).convert("L"), np.float64) / 255
        assert pixels.shape[1] == width
        means.append(float(pixels.mean()))
        found, file = _coarse(pixels), SCREENS / f"{name}_{theme}_{width}.npy"
        if os.environ.get("MOTET_WRITE_SCREENS"):
            np.save(file, np.round(255 * found).astype(np.uint8))
        expected = np.load(file) / 255
        assert np.abs(found - expected).mean() < 0.03
        assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.6
    assert means[0] > 0.85 and means[1] < 0.25


def _coarse(pixels: np.ndarray) -> np.ndarray:
    """The mean brightness of 40 rows and 24 columns."""
    rows, columns = (np.linspace(0, extent, count + 1).astype(int)
                     for extent, count in zip(pixels.shape, (40, 24), strict=True))
    sums = np.add.reduceat(np.add.reduceat(pixels, rows[:-1], 0), columns[:-1], 1)
    return sums / np.outer(np.diff(rows), np.diff(columns))
