"""Calls in flight: what overlaps and what follows one another, how many at once, errors, cancelling, and the end."""

from __future__ import annotations

import array
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, Future
from typing import Any

import numpy as np
import pytest

from motet.errors import CallError
from motet.runtime.call_queue import InFlight, Range, ranges_of

PATIENCE = 120


def nothing() -> list[Range]:
    return []


class Gate:
    """A call that says when it has begun and goes on when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        return "done"


def submit(calls: InFlight, call: Any, reads: tuple[Any, ...] = (), writes: tuple[Any, ...] = ()) -> Future[Any]:
    return calls.submit(call, lambda: ranges_of(reads), ranges_of(writes))


def test_calls_overlap_as_many_as_may() -> None:
    calls = InFlight(3)
    gates = [Gate() for _ in range(5)]
    futures = [submit(calls, gate) for gate in gates]
    assert all(gate.begun.wait(PATIENCE) for gate in gates[:3])
    time.sleep(0.05)
    assert not gates[3].begun.is_set() and not gates[4].begun.is_set()
    gates[1].may_end.set()
    assert futures[1].result(PATIENCE) == "done"
    assert gates[3].begun.wait(PATIENCE) and not gates[4].begun.is_set()  # in the order of their submission
    for gate in gates:
        gate.may_end.set()
    assert [future.result(PATIENCE) for future in futures] == ["done"] * 5
    calls.close()


@pytest.mark.parametrize(("first", "second"), [("w", "r"), ("r", "w"), ("w", "w")])
def test_calls_that_meet_in_memory_follow_one_another(first: str, second: str) -> None:
    calls = InFlight(4)
    whole = np.zeros(100, np.float32)
    other = np.zeros(100, np.float32)
    part = whole[10:40:3]
    gate, order = Gate(), []
    before = submit(calls, gate, *(((whole,), ()) if first == "r" else ((other,), (whole,))))
    assert gate.begun.wait(PATIENCE)
    behind = submit(calls, lambda: order.append("behind"), *(((part,), ()) if second == "r" else ((), (part,))))
    beside = submit(calls, lambda: order.append("beside"), (other,), (np.zeros(3),) if first == "r" else ())
    if first == "r":
        beside.result(PATIENCE)
        assert order == ["beside"]
    time.sleep(0.02)
    assert "behind" not in order
    gate.may_end.set()
    behind.result(PATIENCE)
    assert before.result() == "done"
    calls.close()


def test_calls_that_only_read_the_same_memory_overlap() -> None:
    calls = InFlight(2)
    x, results = np.zeros(4), np.zeros((2, 4))
    gates = [Gate(), Gate()]
    futures = [submit(calls, gate, (x,), (out,)) for gate, out in zip(gates, results, strict=True)]
    assert all(gate.begun.wait(PATIENCE) for gate in gates)
    for gate in gates:
        gate.may_end.set()
    for future in futures:
        future.result(PATIENCE)
    calls.close()


@pytest.mark.parametrize("most", [1, 2, 4, 7])
def test_random_calls_give_what_one_after_the_other_gives(most: int) -> None:
    random = np.random.default_rng(most)
    calls = InFlight(most)
    memory, expected = np.arange(32.0), np.arange(32.0)
    futures: list[Future[Any]] = []
    for _ in range(300):
        begin, source = (int(n) for n in random.integers(0, 24, 2))
        count, addend = int(random.integers(1, 8)), float(random.integers(9))
        target, read = memory[begin : begin + count], memory[source : source + count]

        def work(target: np.ndarray = target, read: np.ndarray = read, addend: float = addend) -> None:
            value = read * 0.5 + addend
            time.sleep(1e-4)
            target[...] = value

        futures.append(submit(calls, work, (read,), (target,)))
        expected[begin : begin + count] = expected[source : source + count] * 0.5 + addend
    calls.close()
    assert all(future.done() and future.exception() is None for future in futures)
    np.testing.assert_array_equal(memory, expected)


def test_errors_are_the_futures_and_what_waited_goes_on() -> None:
    calls = InFlight(2)
    x = np.zeros(4)

    def fail() -> None:
        raise CallError("not so")

    bad = submit(calls, fail, (), (x,))
    good = submit(calls, lambda: 7, (x,), ())
    with pytest.raises(CallError, match="not so"):
        bad.result(PATIENCE)
    assert good.result(PATIENCE) == 7
    calls.close()


def test_what_has_not_begun_can_be_cancelled() -> None:
    calls = InFlight(1)
    x = np.zeros(4)
    gate = Gate()
    first = submit(calls, gate, (), (x,))
    assert gate.begun.wait(PATIENCE)
    queued, waiting = submit(calls, lambda: "queued"), submit(calls, lambda: "waiting", (x,))
    last = submit(calls, lambda: "last", (), (x,))
    assert queued.cancel() and waiting.cancel() and not first.cancel()
    gate.may_end.set()
    assert last.result(PATIENCE) == "last"
    with pytest.raises(CancelledError):
        waiting.result(PATIENCE)
    calls.close()


def test_closing_waits_and_then_nothing_can_be_submitted() -> None:
    calls = InFlight(2)
    x = np.zeros(4)
    futures = [submit(calls, lambda: time.sleep(1e-3), (x,), (x,)) for _ in range(30)]
    calls.close()
    calls.close()
    assert all(future.done() and future.exception() is None for future in futures)
    with pytest.raises(CallError, match="the session is closed"):
        submit(calls, nothing)


def test_a_finished_call_is_forgotten() -> None:
    calls = InFlight(2)
    x = np.zeros(4)
    for _ in range(50):
        submit(calls, nothing, (x,), (x,)).result(PATIENCE)
    calls.close()
    assert not calls._entries and calls._writers == 0  # pyright: ignore[reportPrivateUsage]


def test_a_callback_may_submit() -> None:
    calls = InFlight(1)
    x, found = np.zeros(4), []
    done = threading.Event()

    def again(future: Future[Any]) -> None:
        found.append(future.result())
        submit(calls, done.set, (x,), (x,))

    submit(calls, lambda: 1, (), (x,)).add_done_callback(again)
    assert done.wait(PATIENCE) and found == [1]
    calls.close()


def test_where_tensors_lie() -> None:
    x = np.zeros((4, 6), np.float32)
    address = x.ctypes.data
    assert ranges_of([x, x[1:3, 2], None, 3.0, "text"]) == [
        ("addresses", address, address + 96), ("addresses", address + 32, address + 32 + 24 + 4),
    ]
    given = array.array("d", [1.0, 2.0])
    first, count = given.buffer_info()
    assert ranges_of([given]) == [("addresses", first, first + 8 * count)]


def test_tensors_of_torch_lie_where_their_storage_does() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
    t = torch.zeros(10)
    (space, first, last), = ranges_of([t[2:4]])
    assert (space, first, last) == ("addresses", t.data_ptr(), t.data_ptr() + 40)


def test_a_process_that_ends_waits_for_what_was_submitted() -> None:
    text = """
import time, numpy as np
from motet.runtime.call_queue import InFlight, ranges_of
calls, x = InFlight(2), np.zeros(4)
def work():
    time.sleep(0.02)
    print("ended", flush=True)
for _ in range(6):
    calls.submit(work, lambda: ranges_of([x]), ranges_of([x]))
"""
    outcome = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=PATIENCE)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.count("ended") == 6


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_child_of_a_fork_has_calls_of_its_own() -> None:
    calls = InFlight(2)
    gate = Gate()
    first = submit(calls, gate, (), (np.zeros(4),))
    assert gate.begun.wait(PATIENCE)
    child = os.fork()
    if not child:
        ok = submit(calls, lambda: 5).result(PATIENCE) == 5
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    gate.may_end.set()
    assert first.result(PATIENCE) == "done"
    calls.close()
