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

_OTHERS = 4  # of as many batches one is of another kind than graphs


def reproduce(finding: Finding) -> str:
    """The command that tries a program again."""
    if finding.source:
        return f"python -m tests.fuzz --kind {finding.source} --count 1 --seed {finding.seed}"
    return f"python -m tests.fuzz minimise {finding.seed}"


@dataclass(frozen=True)
class Limits:
    """How long a campaign lasts: seconds, programs; None for no limit."""

    seconds: float | None
    programs: int | None
    jobs: int


def run_campaign(
    start: int, limits: Limits, known: Sequence[str], tally: Tally, records: Records | None,
    say: Callable[[str], None], target: str = "", sources: Sequence[str] = ("",),
) -> Tally:
    """Tries programs from seed `start` on; the sums, added to `tally`. `sources` are kinds of `tests.fuzz.kinds`, and
    "" for graphs."""
    begun = time.monotonic()
    batches = _of_sources(_batches(start, limits.programs), sources)
    taking, telling = threading.Lock(), threading.Lock()
    errors: queue.Queue[BaseException] = queue.Queue()

    def work() -> None:
        child = Child(known, target=target)
        try:
            while limits.seconds is None or time.monotonic() - begun < limits.seconds:
                with taking:
                    source, seeds = next(batches, ("", None))
                if seeds is None or not errors.empty():
                    return
                findings = child.try_seeds(seeds, source)
                with telling:
                    tally.add(findings)
                    if records is not None:
                        records.append(findings, reproduce)
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


def _of_sources(
    batches: Iterator[Sequence[int]], sources: Sequence[str]
) -> Iterator[tuple[str, Sequence[int]]]:
    """Each batch with its source: mostly graphs where these are among the sources, the others in turn."""
    others = itertools.cycle([source for source in sources if source] or [""])
    for number, batch in enumerate(batches):
        yield ("" if "" in sources and number % _OTHERS else next(others)), batch


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
            say(f"{finding.source or 'seed'} {finding.seed}: {words}\n  {reproduce(finding)}")
    seconds = time.monotonic() - begun
    failed = sum(tally.failures[kind] for kind in FAILURES)
    say(f"\r{tally.programs:,} programs, {tally.calls:,} calls, {failed} failures, "
        f"{tally.refusals.total():,} refusals, {seconds:.0f} s; next seed {tally.next_seed}")
