"""The command line: `motet COMMAND …`.

Exit status: 0 success, 1 the user's error (one line on standard error), 2 invalid command line,
130 interrupted, 143 terminated (SIGTERM).

This module runs before any slow import: an interrupt ends in one line from the start, and the compiler is loaded, in a
separate process, while this one determines what to compile.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from motet.compiler.process.prefork import Standby

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM  # exit statuses, as in shells


def main() -> None:
    """The entry point of `motet`."""
    signal.signal(signal.SIGTERM, _terminate)
    if importlib.util.find_spec("typer") is None:
        raise SystemExit(_without_typer(sys.argv[1:]))
    # No command uses numpy's matrix products: starting its thread pool would take longer than any import.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        worker = _compiler() if sys.argv[1:2] == ["compile"] else None
        from motet.tools.app import run_app

        if worker is None:
            run_app(None)
        else:
            with worker:
                run_app(worker)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


def _without_typer(arguments: list[str]) -> int:
    """Runs `motet doctor`, which needs no other package; for other commands, says what is missing."""
    if arguments[:1] == ["doctor"]:
        from motet.tools.doctor import run_doctor

        return run_doctor(arguments[1:])
    print("error: the commands of motet need typer: pip install 'motet[cli]'; motet doctor shows what is installed",
          file=sys.stderr)  # fmt: skip
    return 1


def _compiler() -> Standby | None:
    """A standby compiler, which loads in advance if a processor is idle; it may not be needed if the result is in the
    cache. None if processes cannot be forked."""
    if sys.platform != "linux":
        return None
    from motet.compiler.service import Standby  # imports numpy and other modules that both processes need

    worker = Standby()
    if os.getloadavg()[0] + 1 <= len(os.sched_getaffinity(0)):
        worker.start()
    return worker


def _terminate(number: int, frame: object) -> NoReturn:
    """Ends this process by an exception, so that all clean-up runs."""
    raise SystemExit(TERMINATED)
