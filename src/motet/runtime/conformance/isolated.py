"""Checks in a child process: one that a fault of the device's code ends is the outcome of the check that ran."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import IO

from motet.errors import DeviceError
from motet.runtime.conformance.listing import Check, Outcome
from motet.runtime.conformance.suite import LIMIT, run_checks, select
from motet.runtime.conformance.trial import Subject

_CHILD = """
import os, sys
from motet.runtime.conformance.isolated import run_child
run_child(*sys.argv[1:])
sys.stdout.flush()
os._exit(0)
"""


def run_isolated(
    uri: str, wanted: Collection[str] = (), limit: float = LIMIT, begin: Callable[[Check], None] | None = None
) -> Iterator[Outcome]:
    """Run the checks as `run_checks` does, in a child process, which is replaced when a check ends it or hangs."""
    left = select(wanted)
    while left:
        done = 0
        for outcome in _run_some(uri, left, limit, begin):
            yield outcome
            done += 1
        left = left[done:]


def run_child(uri: str, limit: str, *names: str) -> None:
    """The child: prints a line for each check that begins, and each outcome."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what drivers print

    def say(*parts: object) -> None:
        print(json.dumps(parts), file=out, flush=True)

    try:
        expected = Subject(uri).failing
        for outcome in run_checks(uri, names, float(limit),
                                  lambda check: say("begin", check.name, expected.get(check.name, ""))):  # fmt: skip
            say("end", outcome.check.name, outcome.verdict, outcome.reason, outcome.seconds)
    except Exception as error:
        say("refused", str(error))


def _run_some(
    uri: str, checks: list[Check], limit: float, begin: Callable[[Check], None] | None
) -> Iterator[Outcome]:
    """The outcomes of one child: of all checks, or up to the one that ended it."""
    by_name = {check.name: check for check in checks}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _CHILD, uri, str(limit), *by_name]
    with tempfile.TemporaryFile() as said, subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=said, text=True
    ) as child:
        assert child.stdout is not None
        lines = _lines(child.stdout)
        running, since, expected = checks[0], time.perf_counter(), ""
        try:
            while True:
                line = lines.get(timeout=2 * limit)
                if line is None:
                    break
                kind, *parts = json.loads(line)
                expected = parts[1] if kind == "begin" else ""
                if kind == "refused":
                    raise DeviceError(parts[0])
                running, since = by_name[parts[0]], time.perf_counter()
                if kind == "begin" and begin is not None:
                    begin(running)
                elif kind == "end":
                    yield Outcome(running, *parts[1:])
                    del by_name[running.name]
        except queue.Empty:
            yield Outcome(running, "fail", f"its process did not end within {2 * limit:g} s", 2 * limit)
            return
        finally:
            child.kill()
        child.wait()
        if by_name:
            reason = f"its process ended {_ending(child.returncode, said)}"
            seconds = time.perf_counter() - since
            yield Outcome(running, "expected", f"{expected}: {reason}", seconds) if expected else Outcome(
                running, "fail", reason, seconds)


def _lines(stream: IO[str]) -> queue.SimpleQueue[str | None]:
    """The lines of a stream as they come, then None."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _ending(status: int, said: IO[bytes]) -> str:
    """How a process ended, with its last words."""
    said.seek(0)
    last = (said.read().decode(errors="replace").strip().splitlines() or ["nothing"])[-1]
    how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
    return f"{how}, and said: {last}"
