"""A campaign: batches of programs one after the other, in as many processes as are asked for."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.fuzz.parent import Child, Finding
from tests.fuzz.plan import BATCH
from tests.fuzz.records import FAILURES, Records, Tally

REPRODUCE = "python -m tests.fuzz minimise"


@dataclass(frozen=True)
class Limits:
    """How long a campaign lasts: seconds, programs; None for no limit."""

    seconds: float | None
    programs: int | None
    jobs: int


def run_campaign(
    start: int, limits: Limits, known: Sequence[str], tally: Tally, records: Records | None,
    say: Callable[[str], None], target: str = "",
) -> Tally:
    """Tries programs from seed `start` on; the sums, added to `tally`."""
    begun = time.monotonic()
    batches = _batches(start, limits.programs)
    taking, telling = threading.Lock(), threading.Lock()
    errors: queue.Queue[BaseException] = queue.Queue()

    def work() -> None:
        child = Child(known, target=target)
        try:
            while limits.seconds is None or time.monotonic() - begun < limits.seconds:
                with taking:
                    seeds = next(batches, None)
                if seeds is None or not errors.empty():
                    return
                findings = child.try_seeds(seeds)
                with telling:
                    tally.add(findings)
                    if records is not None:
                        records.append(findings, REPRODUCE)
                    _tell(findings, tally, begun, say)
        except BaseException as error:
            errors.put(error)
        finally:
            child.close()

    workers = [threading.Thread(target=work, daemon=True) for _ in range(limits.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if not errors.empty():
        raise errors.get()
    return tally


def _batches(start: int, programs: int | None) -> Iterator[Sequence[int]]:
    """Batches begin at multiples of their size, the first may be shorter."""
    end = None if programs is None else start + programs
    first = start
    for _ in itertools.count():
        last = (first // BATCH + 1) * BATCH
        last = last if end is None else min(last, end)
        if last <= first:
            return
        yield range(first, last)
        first = last


def _tell(findings: Sequence[Finding], tally: Tally, begun: float, say: Callable[[str], None]) -> None:
    for finding in findings:
        if finding.kind in FAILURES:
            words = ": ".join(filter(None, (finding.kind, finding.language, finding.text[:400])))
            say(f"seed {finding.seed}: {words}\n  {REPRODUCE} {finding.seed}")
    seconds = time.monotonic() - begun
    failed = sum(tally.failures[kind] for kind in FAILURES)
    say(f"\r{tally.programs:,} programs, {tally.calls:,} calls, {failed} failures, "
        f"{tally.refusals.total():,} refusals, {seconds:.0f} s; next seed {tally.next_seed}")
