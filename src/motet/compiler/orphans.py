"""No process of the compiler outlives the one that asked for its work."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def die_with_parent(parent: int) -> None:
    """Make this process die when `parent`, the process that started it, does, however that dies; an interrupt
    from the terminal is the parent's to handle.

    Where the system has no such wish (it is Linux's), a process ends when it finds its connection closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the wish was made
            os._exit(1)
