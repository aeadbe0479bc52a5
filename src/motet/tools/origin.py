"""When, where and by which command a file was made: for reports and traces."""

from __future__ import annotations

import datetime
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Origin:
    """When, where and by which command something was made."""

    date: str
    machine: str
    threads: str
    command: str


def origin(threads: int | None = None) -> Origin:
    """This process's; `threads` are by default those that a session has."""
    from motet.runtime.drivers.host.threads import thread_count
    from motet.tools.benching.writing import machine

    program = Path(sys.argv[0]).name
    command = shlex.join(["motet" if program == "__main__.py" else program, *sys.argv[1:]])
    date = datetime.datetime.now().astimezone().isoformat(" ", "minutes")
    return Origin(date, machine(), str(threads or thread_count()), command)
