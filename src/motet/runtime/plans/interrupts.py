"""Handles Ctrl-C during the execution of a loop, which may otherwise never end."""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """A context manager that keeps the user's interrupt where it arrives in a finalizer, such as that of an iteration's
    memory: Python prints an exception raised there, drops it and continues. `check` raises it in the next iteration,
    and the end of the context where there is none."""

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
        if error is None:
            self.check()

    def check(self) -> None:
        if self._came:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        assert self._before is not None
        try:
            self._before(number, frame)
        except KeyboardInterrupt:
            self._came = True
            if not any(map(_finalizes, _callers(frame))):
                raise


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _finalizes(frame: FrameType) -> bool:
    return frame.f_code is weakref.finalize.__call__.__code__ or frame.f_code.co_name == "__del__"
