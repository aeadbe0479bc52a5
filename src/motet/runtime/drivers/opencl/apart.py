"""Runs Python in another process, so that a platform that aborts or does not answer ends that process only.

Such a process ends itself with the status `ANSWERED`. Any other end is the platform's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from motet.errors import DeviceError, OptionError

INSIDE = "MOTET_OPENCL_PROBING"  # set in such a process
ANSWERED = 83  # no status with which libraries end a process
_LIMIT, _SECONDS = "MOTET_OPENCL_SECONDS", 60.0


def time_limit() -> float:
    """The seconds that a platform has for an answer: those of `MOTET_OPENCL_SECONDS`, by default 60. Raises
    OptionError."""
    given = os.environ.get(_LIMIT, "")
    try:
        seconds = float(given or _SECONDS)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise OptionError(f"{_LIMIT}={given}: expected a number of seconds, such as {_SECONDS:.0f}")
    return seconds


def run_apart(arguments: Sequence[str], seconds: float, variables: Mapping[str, str] | None = None) -> str:
    """Run this Python with `arguments`, and with `variables` in its environment. Returns how the platform ended the
    process, with the first error that it printed; empty if it answered. Raises DeviceError if no process can be
    started, or if another one killed it."""
    environment = {**os.environ, INSIDE: "1", "PYTHONPATH": os.pathsep.join(sys.path), **(variables or {})}
    with tempfile.TemporaryFile() as printed:  # no pipe: processes that a compiler leaves behind would hold it open
        try:
            process = subprocess.Popen(
                [sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=printed,
                env=environment, start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(f"no process can be started for OpenCL's platforms: {error}") from error
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"had not ended after {seconds:.0f} seconds"
        finally:
            if process.returncode is None:
                _kill(process)
        printed.seek(0)
        text = first_error(printed.read().decode(errors="replace"), "")
    if status == ANSWERED:
        return ""
    if status == -signal.SIGKILL:
        raise DeviceError("the process for OpenCL's platforms was killed (SIGKILL), perhaps for want of memory")
    how = f"died ({signal.Signals(-status).name})" if status < 0 else f"ended its process without an answer ({status})"
    return f"{how}: {text}" if text else how


def first_error(log: str, nothing: str = "no log") -> str:
    """The first error in a compiler's log; one that ends in a colon with the line that follows."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    place = next((number for number, line in enumerate(lines) if "error" in line.lower()), 0)
    return " ".join(lines[place : place + (2 if lines[place].endswith(":") else 1)]) if lines else nothing


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process with those that the platform's compiler started in it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
