"""Counts resources of this process: threads, child processes, open files."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

from motet.runtime.conformance.check import Failure

_PROCESS = Path("/proc/self")
_MOMENT = 2.0  # seconds that resources have to be released


class Held:
    """The numbers of resources in use. On systems without /proc, only threads are counted."""

    def __init__(self) -> None:
        gc.collect()
        self.counts = _count()

    def expect_same(self, when: str) -> None:
        """Fail if any number has grown."""
        end = time.monotonic() + _MOMENT
        while True:
            gc.collect()
            now = _count()
            more = [f"{now[key]} {key}; before {self.counts[key]}" for key in now if now[key] > self.counts[key]]
            if not more:
                return
            if time.monotonic() > end:
                raise Failure(f"{when}: {', '.join(more)}")
            time.sleep(0.02)


def child_processes() -> set[int]:
    """The ids of this process's living child processes; empty if the system does not report them."""
    found: set[int] = set()
    tasks = list((_PROCESS / "task").iterdir()) if (_PROCESS / "task").is_dir() else []
    for task in tasks:
        try:
            found |= {int(number) for number in (task / "children").read_text().split()}
        except OSError:  # the thread has ended, or the kernel does not report it
            continue
    return found


def _count() -> dict[str, int]:
    counts = {"threads": threading.active_count(), "child processes": len(child_processes())}
    if (_PROCESS / "fd").is_dir():
        counts["open files"] = len(list((_PROCESS / "fd").iterdir()))
    return counts
