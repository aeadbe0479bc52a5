"""The process that runs cases: `python -m conformance.child MODULE SUITE`, one command of JSON on each line.

`{"list": true}` is answered by the names of the cases, or by why there are none; `{"case": NAME}` by the case's result.
Answers go to the process's standard output; output of the cases is discarded.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from types import ModuleType
from typing import Any

from conformance.results import Crash, Outcome, Result, Unavailable, Wrong, one_line
from motet.errors import MotetError, WorkerCrash


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    module, suite = importlib.import_module(sys.argv[1]), sys.argv[2]
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        answer = run_case(module, suite, command["case"]).to_line() if "case" in command else _names(module, suite)
        answers.write(answer + "\n")
        answers.flush()
    os._exit(0)  # an orderly exit would spend time on destroying frameworks


def _names(module: ModuleType, suite: str) -> str:
    try:
        return json.dumps({"names": list(module.cases(suite))})
    except Unavailable as reason:
        return json.dumps({"unavailable": one_line(str(reason))})


def run_case(module: ModuleType, suite: str, case: str) -> Result:
    """The result of one case of `suite`."""
    begin = time.perf_counter()
    outcome, reason = _outcome(module, suite, case)
    return Result(case, outcome, one_line(reason), time.perf_counter() - begin)


def _outcome(module: ModuleType, suite: str, case: str) -> tuple[Outcome, str]:
    try:
        note = module.check(suite, case)
    except Wrong as difference:
        return "wrong", str(difference)
    except (Crash, WorkerCrash) as error:
        return "crash", str(error)
    except MotetError as error:
        return "refused", str(error)
    except Exception as error:
        return "crash", f"{type(error).__name__}: {error}{_place(error)}"
    return "ok", note or ""


def _place(error: BaseException) -> str:
    """The place in the code at which an exception was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" (raised in {trace.tb_frame.f_globals.get('__name__')}, line {trace.tb_lineno})"


if __name__ == "__main__":
    main()
