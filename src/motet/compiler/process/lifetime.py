"""Lifetimes of the compiler's processes: none outlives the one that requested its work; how forks end."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def die_with_parent(parent: int) -> None:
    """Makes this process end when `parent`, the process that started it, ends in any way. Interrupts from the terminal
    are left to the parent.

    On systems other than Linux, which has no such facility, a process ends when its connection is closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the call above
            os._exit(1)


def end_with(work: Callable[[], int | None]) -> NoReturn:
    """Runs `work` in a fork, and ends the fork with the returned status (0 for None), without the clean-up handlers of
    the parent process. An exception is printed, and the status is 1."""
    status = 1
    try:
        status = work() or 0
        sys.stdout.flush()
    finally:
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        sys.stderr.flush()
        os._exit(status)
