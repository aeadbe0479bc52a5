"""The command line of the conformance suite."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from motet.errors import MotetError
from motet.runtime.conformance.isolated import run_isolated
from motet.runtime.conformance.junit import write_junit
from motet.runtime.conformance.listing import VERDICTS, Check, Outcome
from motet.runtime.conformance.suite import AREAS, LIMIT, all_checks, run_checks
from motet.runtime.device import devices

DESCRIPTION = """\
Puts a device through every sentence of the contract in motet/runtime/device.py.

DEVICE is a URI as `motet devices` shows it, with options behind a question mark if it takes any. Each check opens
the device anew, in a process that is replaced when a check ends it, so that one that fails does not spoil the next.
Checks that need code compile it for the device's family, where Motet's compiler is installed and an entry point of
motet.targets describes the family.
"""
EXAMPLES = """\
examples:
  python -m motet.runtime.conformance host
  python -m motet.runtime.conformance 'null?queues=4' --only timelines
  python -m motet.runtime.conformance riscv:qemu --only faults --only close-waits
  python -m motet.runtime.conformance --list

what comes out:
  pass              the device keeps to the sentence
  FAIL … what       it does not, and what was seen instead
  expected … what   it does not, and the driver says so (conformance_expected_failures, checks with reasons)
  skip … why        the check cannot be made: no code for the family, a feature that the device may lack, or the
                    driver is exempt from it (conformance_exempt, a mapping of checks to reasons)

exit status: 0 if nothing failed, 1 if something did or the device cannot be opened, 2 for a wrong command line.
docs/devices.md explains the contract and how to write a driver.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m motet.runtime.conformance", description=DESCRIPTION, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("device", nargs="?", metavar="DEVICE", help="the device's URI")
    parser.add_argument("--list", action="store_true", help="show every check with the sentence it is about")
    parser.add_argument("--only", action="append", default=[], metavar="AREA|GROUP|CHECK",
                        help="run these alone; may be given again; a group is all cases of one check, such as "
                        f"tasks-run. Areas: {', '.join(AREAS)}")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS",
                        help="how long one check may take (default: %(default)g)")
    parser.add_argument("--times", action="store_true", help="show how long each check took")
    parser.add_argument("--junit", metavar="FILE", help="also write the outcomes as a JUnit report")
    parser.add_argument("--one-process", action="store_true",
                        help="run the checks in this process, where a crash ends all of them, for debuggers")
    options = parser.parse_args(arguments)
    if options.list:
        _list()
        return 0
    if options.device is None:
        here = ", ".join(info.uri for info in devices() if info.available)
        parser.error(f"which device? here are: {here}")
    try:
        return _run(options.device, options.only, options.limit, options.times, options.junit, not options.one_process)
    except MotetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _list() -> None:
    for area in AREAS:
        print(f"{area}:")
        for check in all_checks():
            if check.area == area:
                print(f"  {check.name}")
                print(textwrap.fill(check.summary, 110, initial_indent="      ", subsequent_indent="      "))


def _run(uri: str, only: Sequence[str], limit: float, times: bool, junit: str | None, isolated: bool) -> int:
    counts = dict.fromkeys(VERDICTS, 0)
    outcomes: list[Outcome] = []
    for outcome in (run_isolated if isolated else run_checks)(uri, only, limit, _begin):
        counts[outcome.verdict] += 1
        outcomes.append(outcome)
        _end(outcome, times)
    expected = f", {counts['expected']} failed as expected" if counts["expected"] else ""
    print(f"{uri}: {counts['pass']} passed, {counts['fail']} failed{expected}, {counts['skip']} skipped")
    sys.stdout.flush()
    if junit is not None:
        write_junit(Path(junit), uri, outcomes)
    return 1 if counts["fail"] else 0


def _begin(check: Check) -> None:
    """Print the name first, so that the last line names a check that crashes the process."""
    print(f"{check.area + ': ' + check.name:<48}", end=" ", flush=True)


def _end(outcome: Outcome, times: bool) -> None:
    verdict = "FAIL" if outcome.verdict == "fail" else outcome.verdict
    seconds = f" ({outcome.seconds:.2f} s)" if times else ""
    reason = " ".join(outcome.reason.split())
    print(f"{verdict}{seconds} {reason}".rstrip(), flush=True)


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        status = 0  # the reader closed the pipe
    os._exit(status)  # a hanging check leaves a thread in the driver, for which a normal exit would wait
