"""Ends processes of the compiler with the process that requested their work, and ends forks of a process."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def die_with_parent(parent: int) -> None:
    """Make this process die when `parent`, the process that started it, dies in any way. Interrupts from the terminal
    are left to the parent.

    Only Linux supports this; on other systems, a process ends when it finds its connection closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)


def end_with(work: Callable[[], int | None]) -> NoReturn:
    """Run `work` in a fork, and exit with the status that it returns, 0 for None, without the clean-up handlers of the
    original process. An exception is printed, and the status is 1, as where native code calls `exit`: LLVM does for a
    fatal error, and handlers of libraries of the original process may then wait for threads that a fork lacks."""
    if sys.platform == "linux":
        c = ctypes.CDLL(None)
        c.__cxa_atexit(c._exit, ctypes.c_void_p(1), None)  # the last handler to be registered runs first
    status = 1
    try:
        status = work() or 0
        sys.stdout.flush()
    finally:
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        sys.stderr.flush()
        os._exit(status)
