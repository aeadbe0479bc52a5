"""A suite whose cases end in every way that a case can end in."""

from __future__ import annotations

import os
import sys
import time

from conformance.results import Wrong

from motet.errors import CompileError

ENDS = ("passes", "differs", "refused", "raises", "prints", "dies", "hangs")


def cases(suite: str) -> list[str]:
    return list(ENDS)


def check(suite: str, case: str) -> str:
    if case == "differs":
        raise Wrong("result 0: 1 of 2\nelements differ")
    if case == "refused":
        raise CompileError("not supported")
    if case == "raises":
        raise ZeroDivisionError("integer modulo by zero")
    if case == "dies":
        print("the last words", file=sys.stderr, flush=True)
        os.abort()
    if case == "hangs":
        time.sleep(1000)
    if case == "prints":
        os.write(1, b'{"name": "forged", "outcome": "ok"}\n')
        return "a note"
    return ""
