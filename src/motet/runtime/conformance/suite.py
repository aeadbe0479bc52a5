"""All checks by area, and their execution: each on newly opened devices and with a time limit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import motet.runtime.conformance.closing as closing
import motet.runtime.conformance.code as code
import motet.runtime.conformance.commands as commands
import motet.runtime.conformance.faults as faults
import motet.runtime.conformance.launching as launching
import motet.runtime.conformance.life as life
import motet.runtime.conformance.memory as memory
import motet.runtime.conformance.profiling as profiling
import motet.runtime.conformance.program as program
import motet.runtime.conformance.recorded as recorded
import motet.runtime.conformance.threads as threads
import motet.runtime.conformance.timelines as timelines
import motet.runtime.conformance.transfers as transfers
import motet.runtime.conformance.waiting as waiting
from motet.errors import DeviceError
from motet.runtime.conformance.check import Failure, Skip
from motet.runtime.conformance.listing import VERDICTS, Check, Outcome, Verdict, checks_of
from motet.runtime.conformance.trial import DeviceTrial, Subject
from motet.runtime.device import open_device

AREAS = {
    "life": (*life.CHECKS, *closing.CHECKS),
    "memory": (*memory.CHECKS, *transfers.CHECKS),
    "timelines": (*timelines.CHECKS, *waiting.CHECKS),
    "code": (*code.CHECKS, *launching.CHECKS),
    "commands": (*commands.CHECKS, *recorded.CHECKS),
    "threads": threads.CHECKS,
    "profile": profiling.CHECKS,
    "faults": faults.CHECKS,
    "program": program.CHECKS,
}
LIMIT = 120.0  # seconds per check


def all_checks() -> list[Check]:
    """All checks, in the order in which they run."""
    return [check for area, functions in AREAS.items() for check in checks_of(area, functions)]


def select(wanted: Collection[str]) -> list[Check]:
    """The checks with a tag in `wanted`: an area, a group or a name; all if none is given. Raises DeviceError for an
    unknown word."""
    checks = all_checks()
    known = {tag for check in checks for tag in check.tags}
    for word in wanted:
        if word not in known:
            raise DeviceError(f"conformance: no area or check {word!r}; areas: {', '.join(AREAS)}")
    return [check for check in checks if not wanted or not set(wanted).isdisjoint(check.tags)]


def run_checks(
    uri: str, wanted: Collection[str] = (), limit: float = LIMIT, begin: Callable[[Check], None] | None = None
) -> Iterator[Outcome]:
    """Run the checks on the device that `uri` names, and yield each outcome.

    `begin` is called before each check. Raises DeviceError or OutOfMemoryError for a device that is not present or
    cannot be opened.
    """
    checks = select(wanted)
    subject = Subject(uri)
    open_device(subject.info).close()
    known = {check.name for check in all_checks()}
    for name in subject.exempt:
        if name not in known:
            raise DeviceError(f"driver of {uri}: it is exempt from {name!r}, which is no check; see --list")
    for check in checks:
        if begin is not None:
            begin(check)
        yield run_check(check, subject, limit)


def run_check(check: Check, subject: Subject, limit: float = LIMIT, *, alone: bool = False) -> Outcome:
    """Run one check in a thread, which is abandoned if it does not end within `limit` seconds; in a separate process if
    it would damage this one, unless `alone`."""
    if check.name in subject.exempt:
        return Outcome(check, "skip", f"exempt: {subject.exempt[check.name]}", 0.0)
    if check.name in subject.in_processes and not alone:
        return _run_in_a_process(check, subject.uri, limit)
    outcome: list[Outcome] = []
    begin = time.perf_counter()

    def run() -> None:
        verdict: Verdict = "pass"
        reason = ""
        try:
            with DeviceTrial(subject) as trial:
                check.run(trial)
        except Skip as skip:
            verdict, reason = "skip", str(skip)
        except Failure as failure:
            verdict, reason = "fail", str(failure)
        except Exception as error:  # any unexpected exception of a driver is its failure
            verdict, reason = "fail", f"{type(error).__name__}: {error}"
        if (expected := subject.failing.get(check.name)) is not None and verdict != "skip":
            verdict, reason = ("expected", f"{expected}: {reason}") if verdict == "fail" else (
                "fail", f"passes; the driver expects a failure: {expected}")
        outcome.append(Outcome(check, verdict, reason, time.perf_counter() - begin))

    thread = threading.Thread(target=run, name=f"conformance {check.name}", daemon=True)
    thread.start()
    thread.join(limit)
    if not outcome:
        return Outcome(check, "fail", f"it did not end within {limit:g} s", time.perf_counter() - begin)
    return outcome[0]


_ALONE = """
import os, sys
from motet.runtime.conformance.suite import run_alone
outcome = run_alone(*sys.argv[1:])
print(outcome.verdict, outcome.reason, flush=True)
os._exit(0)
"""


def run_alone(uri: str, name: str, limit: str) -> Outcome:
    """Run one check, by its name, in this process."""
    return run_check(select([name])[0], Subject(uri), float(limit), alone=True)


def _run_in_a_process(check: Check, uri: str, limit: float) -> Outcome:
    begin = time.perf_counter()
    command = [sys.executable, "-c", _ALONE, uri, check.name, str(limit)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * limit, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(check, "fail", f"its process did not end within {2 * limit:g} s", time.perf_counter() - begin)
    word, _, reason = done.stdout.strip().partition(" ")
    said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
    died = Outcome(check, "fail", f"its process ended with status {done.returncode}, and said: {said}", 0.0)
    told = [Outcome(check, verdict, reason, 0.0) for verdict in VERDICTS if word == verdict]
    return replace((told or [died])[0], seconds=time.perf_counter() - begin)
