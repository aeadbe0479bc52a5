"""The user's interrupt during a loop: raised where it arrives, kept where Python would drop it.

Each check is a process of its own: libraries that other tests have loaded handle signals, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable

import pytest

from motet.runtime.plans.interrupts import Interrupts


class Deleted:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


class Finalized:
    def __init__(self) -> None:
        weakref.finalize(self, signal.raise_signal, signal.SIGINT)


def in_a_finalizer_it_is_raised_in_the_next_iteration(make: Callable[[], object]) -> None:
    iterations = 0
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        while iterations < 5:
            interrupts.check()
            iterations += 1
            made = make()
            del made
    assert iterations == 1


def in_a_finalizer_of_the_last_iteration_it_is_raised_at_the_end(make: Callable[[], object]) -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        made = make()
        del made


def elsewhere_it_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it went on")


def a_handler_that_continues_is_called_and_nothing_is_raised() -> None:
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        interrupts.check()
    assert came == [signal.SIGINT]


CHECKS: dict[str, Callable[[], None]] = {
    "next iteration, __del__": lambda: in_a_finalizer_it_is_raised_in_the_next_iteration(Deleted),
    "next iteration, finalize": lambda: in_a_finalizer_it_is_raised_in_the_next_iteration(Finalized),
    "end, __del__": lambda: in_a_finalizer_of_the_last_iteration_it_is_raised_at_the_end(Deleted),
    "end, finalize": lambda: in_a_finalizer_of_the_last_iteration_it_is_raised_at_the_end(Finalized),
    "at once": elsewhere_it_is_raised_at_once,
    "handler that continues": a_handler_that_continues_is_called_and_nothing_is_raised,
}


@pytest.mark.parametrize("name", CHECKS)
def test_interrupts(name: str) -> None:
    done = subprocess.run(
        [sys.executable, __file__, name], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


if __name__ == "__main__":
    dropped: list[object] = []  # what Python dropped because a finalizer raised it
    sys.unraisablehook = lambda said: dropped.append(said.exc_value)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    CHECKS[sys.argv[1]]()
    assert dropped == []
