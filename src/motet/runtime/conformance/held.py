"""What this process holds that another could notice: threads, child processes, open files."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

from motet.runtime.conformance.check import Failure

_PROCESS = Path("/proc/self")
_MOMENT = 2.0  # seconds that what ends by itself gets to


class Held:
    """How much of each there is now. Where the system does not tell, only threads are counted."""

    def __init__(self) -> None:
        gc.collect()
        self.counts = _count()

    def expect_same(self, when: str) -> None:
        """Fails if there is more of anything."""
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
    """The processes that this one has started and that are there; none where the system does not tell."""
    found: set[int] = set()
    tasks = list((_PROCESS / "task").iterdir()) if (_PROCESS / "task").is_dir() else []
    for task in tasks:
        try:
            found |= {int(number) for number in (task / "children").read_text().split()}
        except OSError:  # the thread has ended, or the kernel does not tell
            continue
    return found


def _count() -> dict[str, int]:
    counts = {"threads": threading.active_count(), "child processes": len(child_processes())}
    if (_PROCESS / "fd").is_dir():
        counts["open files"] = len(list((_PROCESS / "fd").iterdir()))
    return counts
