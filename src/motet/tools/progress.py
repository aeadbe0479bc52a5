"""Progress of long work: a bar on a terminal; no output otherwise."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """A bar on standard error while the context lasts; `update(what, fraction)` moves it."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            # Importing rich takes longer than many compiles, so it is only done on a terminal.
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._title, total=1.0)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, what: str, fraction: float) -> None:
        """Shows the current work, and the completed fraction (0 to 1)."""
        if self._bar is not None:
            self._bar.update(self._task, description=f"{self._title}: {what}", completed=fraction)
