"""Runs the cases of a suite in child processes, so that a crash or a timeout affects a single case."""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from conformance.results import Result, Unavailable, one_line

ROOT = Path(__file__).parent.parent
LIFE = 300  # cases after which a child is replaced, to release its libraries' memory
_LISTING = 600.0  # seconds; suites may generate or download their cases


class Child:
    """A process that runs cases, started at its first command, and again after it ended."""

    def __init__(self, python: str, module: str, suite: str) -> None:
        self._command = [python, "-m", "conformance.child", module, suite]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this lives
        self._done = 0

    def names(self) -> list[str]:
        """The suite's cases. Raises Unavailable if they cannot be listed."""
        answer = self._ask({"list": True}, _LISTING)
        if isinstance(answer, str):
            raise Unavailable(f"its cases cannot be listed: {answer}")
        if "unavailable" in answer:
            raise Unavailable(answer["unavailable"])
        return answer["names"]

    def run(self, case: str, limit: float) -> Result:
        answer = self._ask({"case": case}, limit)
        self._done += 1
        if self._done >= LIFE:
            self.stop()
        return Result(case, "crash", answer) if isinstance(answer, str) else Result(**answer)

    def stop(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _ask(self, command: dict[str, Any], limit: float) -> dict[str, Any] | str:
        """The child's answer, or why there is none."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(command).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # reading reports it
        ready, _, _ = select.select([process.stdout], [], [], limit)
        line = process.stdout.readline() if ready else b""
        if line:
            return json.loads(line)
        how = self._death(process) if ready else f"no result after {limit:.0f} s"
        self.stop()
        return how

    def _start(self) -> subprocess.Popen[bytes]:
        paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self._done = 0
        self._log.truncate(0)
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=ROOT, env=environment,
            start_new_session=True,
        )

    def _death(self, process: subprocess.Popen[bytes]) -> str:
        status = process.wait()
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        self._log.seek(0)
        words = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return one_line(f"the process died with {how}" + (f": {words[-1]}" if words else ""))


def run_cases(
    children: Sequence[Child], cases: Sequence[str], limit: float, done: Callable[[Result], None]
) -> None:
    """Run `cases` on `children`, and call `done` with every result, from one thread at a time."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    lock = threading.Lock()

    def work(child: Child) -> None:
        while True:
            try:
                case = waiting.get_nowait()
            except queue.Empty:
                return
            result = child.run(case, limit)
            with lock:
                done(result)

    threads = [threading.Thread(target=work, args=(child,), daemon=True) for child in children]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def interpreter(packages: Sequence[str], frameworks: Path) -> str | None:
    """The Python with all of `packages`: this one, or that of the environment made by `make frameworks`; else None."""
    for python in (Path(sys.executable), frameworks):
        if python.exists() and _has(python, packages):
            return str(python)
    return None


def _has(python: Path, packages: Sequence[str]) -> bool:
    check = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))"
    return not packages or subprocess.run([python, "-c", check, *packages], check=False).returncode == 0
