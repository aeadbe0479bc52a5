"""The command line: `motet COMMAND …`.

Exit status: 0 success, 1 the user's error (one line on standard error), 2 a wrong command line,
130 interrupted, 143 told to end (SIGTERM).

What is here runs before anything that takes long to import: interrupts end in one line from the first moment on,
and the compiler is loaded, in a process of its own, while this one finds out what is to be compiled.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from motet.compiler.process.prefork import Standby

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM  # exit statuses, as shells have them


def main() -> None:
    """The entry point of `motet`."""
    signal.signal(signal.SIGTERM, _terminate)
    # No command multiplies with numpy: the threads that it starts for that would take more time than any import.
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


def _compiler() -> Standby | None:
    """What is to compile: loading already where a processor is idle, for it may be needed for nothing: what is asked
    for can be in the cache. None where processes cannot be copied."""
    if sys.platform != "linux":
        return None
    from motet.compiler.service import Standby  # with numpy and all else that both processes need

    worker = Standby()
    if os.getloadavg()[0] + 1 <= len(os.sched_getaffinity(0)):
        worker.start()
    return worker


def _terminate(number: int, frame: object) -> NoReturn:
    """Ends this process by way of everything that cleans up after itself."""
    raise SystemExit(TERMINATED)
