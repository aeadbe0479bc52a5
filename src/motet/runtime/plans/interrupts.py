"""Handles Ctrl-C during the execution of a loop, which may otherwise never end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """A context manager that records the user's interrupt. Python drops a KeyboardInterrupt raised in a finalizer, such
    as that of an iteration's memory, and continues; `check` raises it in the next iteration."""

    def __init__(self) -> None:
        self._before: Callable[[int, FrameType | None], Any] | None = None
        self._came = False

    def __enter__(self) -> Interrupts:
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(before):
            self._before = before
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        if self._came:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        assert self._before is not None
        try:
            self._before(number, frame)
        except KeyboardInterrupt:
            self._came = True
            raise
