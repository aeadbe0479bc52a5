"""Searches a space of schedules: a strategy proposes points, workers compile them at the same time, one process
measures them one after the other, and every evaluation becomes a record.

    strategy.ask → compile (parallel) → measure (alone on the device) → check the results → record, strategy.tell

All results are compared with those of the compiler's choice, which are compared with the oracle's at the beginning; the
best schedule is verified once more at the end, on other inputs, and compared with the choice by alternating samples.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from motet.compiler.kernels.schedule import KernelSchedule, decode_schedule, encode_schedule
from motet.errors import CallError, MotetError, OptionError, WrongResults
from motet.lab.evaluation import (
    assessed,
    code_size,
    compared,
    evaluate,
    expect_possible,
    record_of,
    replace_record,
    validated,
    what,
)
from motet.lab.measuring import MeasurePlan, Measurer, Samples, seconds_of
from motet.lab.space import Point, ScheduleSpace
from motet.lab.strategies.strategy import Strategy
from motet.lab.subject import KernelSubject, compile_with, device_info
from motet.lab.workers import Workers
from motet.measuring.ratios import Ratio
from motet.records.machine import fingerprint
from motet.records.record import Record, canonical

_PLAN = MeasurePlan(repeat=3, min_repeat_ms=5.0, most_seconds=5.0)
_REPEATED = 50  # proposals of known schedules in a row after which a search ends


@dataclass(frozen=True)
class Budget:
    """The most trials and seconds of a search."""

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.trials is not None and self.trials < 1) or (
            self.seconds is not None and not 0 < self.seconds < float("inf")
        ):
            raise OptionError(f"budget: {self.trials if self.trials is not None else self.seconds}: expected at least "
                              "one trial, or a positive number of seconds")


EFFORTS = {"quick": Budget(16), "normal": Budget(64), "full": Budget(1000)}


@dataclass
class SearchState:
    """The progress of a search: its records so far, and the fastest of them."""

    records: list[Record] = field(default_factory=list[Record])
    best: Record | None = None
    chosen: Record | None = None  # of the compiler's choice
    gain: Ratio | None = None  # its time relative to the best schedule's, if the search is over and they differ
    begin: float = field(default_factory=time.perf_counter)

    def add(self, record: Record) -> None:
        self.records.append(record)
        if record.seconds is not None and (
            self.best is None or self.best.seconds is None or record.seconds < self.best.seconds
        ):
            self.best = record


@dataclass
class Search:
    """A search over `space` for `subject`. `known` are records of earlier searches, by their schedules: with them the
    strategy learns without measurements, and they do not count as trials. `added` is called for each new record,
    `progress` after each trial."""

    subject: KernelSubject
    space: ScheduleSpace
    strategy: Strategy
    budget: Budget
    workers: Workers
    origin: str = ""
    known: Mapping[str, Record] = field(default_factory=dict[str, Record])
    added: Callable[[Record], None] = lambda record: None
    progress: Callable[[SearchState], None] = lambda state: None
    plan: MeasurePlan = _PLAN

    def run(self, state: SearchState | None = None) -> SearchState:
        """Search until the budget is spent or the strategy ends. Raises MotetError if the compiler's choice itself
        cannot be measured."""
        found = SearchState() if state is None else state
        info = device_info(self.subject.program)
        self._machine = fingerprint(info)
        with Measurer() as measurer:
            self._begin(measurer, found)
            for batch in self._batches(found):
                compiled = self.workers.compile(self.subject, [schedule for _, schedule in batch])
                for (points, schedule), artifact in zip(batch, compiled, strict=True):
                    record = self._measured(measurer, points[0], schedule, artifact, len(found.records))
                    found.add(record)
                    self._seen[canonical(record.schedule)] = record
                    self.added(record)
                    for point in points:
                        self.strategy.tell(point, record.seconds)
                    self.progress(found)
            self._confirm(measurer, found)
            if found.best is not None and found.chosen is not None and found.best.origin != "compiler":
                found.gain = self._gain(measurer, decode_schedule(found.best.schedule))
        return found

    def _begin(self, measurer: Measurer, state: SearchState) -> None:
        """Measure the compiler's choice, and keep its inputs and verified results for all others."""
        subject = self.subject
        artifact = compile_with(subject, subject.chosen)
        seed = secrets.randbelow(1 << 20)
        plan = MeasurePlan(self.plan.repeat, None, self.plan.min_repeat_ms, self.plan.warmup, seed=seed,
                           most_seconds=self.plan.most_seconds)
        samples = measurer.measure(bytes(artifact.data), what(subject, artifact), plan)
        validated(subject, artifact, samples)
        self._plan = MeasurePlan(self.plan.repeat, None, self.plan.min_repeat_ms, self.plan.warmup, seed=seed,
                                 most_seconds=self.plan.most_seconds, expected=samples.results)
        record = assessed(subject, subject.chosen, samples, artifact).record
        record = replace_record(record, validated=True, origin="compiler")
        state.chosen = record
        state.add(record)
        self.added(record)
        self._seen = {canonical(record.schedule): record, **self.known}
        state.best = min((record, *self.known.values()), key=_seconds_or_infinite)
        self.progress(state)

    def _batches(self, state: SearchState) -> Iterator[list[tuple[list[Point], KernelSchedule]]]:
        """Batches of new schedules, as many as workers, while the budget lasts, each with the points that it was
        proposed by. The strategy is told of known ones."""
        repeated = 0
        trials = self.budget.trials
        while True:
            left = self.workers.count if trials is None else trials - len(state.records)
            if left <= 0 or self._late(state) or repeated > _REPEATED:
                return
            batch: list[tuple[list[Point], KernelSchedule]] = []
            waiting: dict[str, list[Point]] = {}  # the points of the batch, whose seconds are not known
            while len(batch) < min(left, self.workers.count) and repeated <= _REPEATED:
                point = self.strategy.ask()
                schedule = None if point is None else self.space.schedule(point)
                if point is None or schedule is None:
                    repeated = _REPEATED + 1
                    break
                key = canonical(encode_schedule(schedule))
                if key in waiting or key in self._seen:
                    repeated += 1
                    if key in self._seen:
                        self.strategy.tell(point, self._seen[key].seconds)
                    else:
                        waiting[key].append(point)
                    continue
                repeated = 0
                waiting[key] = [point]
                batch.append((waiting[key], schedule))
            if not batch:
                return
            yield batch

    def _late(self, state: SearchState) -> bool:
        return self.budget.seconds is not None and time.perf_counter() - state.begin > self.budget.seconds

    def _measured(
        self, measurer: Measurer, point: Point, schedule: KernelSchedule, artifact: object, trial: int
    ) -> Record:
        """The record of one schedule; failures are records as well."""
        from motet.artifact.reader import Artifact

        record = replace_record(
            record_of(self.subject, schedule, self._machine), origin=self.origin, trial=trial, point=dict(point))
        if not isinstance(artifact, Artifact):
            return replace_record(record, error=str(artifact))
        try:
            samples: Samples = measurer.measure(bytes(artifact.data), what(self.subject, artifact), self._plan)
            if samples.difference:
                raise WrongResults(f"wrong results: {samples.difference}")
            seconds = seconds_of(samples.seconds)
            expect_possible(self.subject, seconds, samples.threads)
        except MotetError as error:
            return replace_record(record, error=str(error), wrong=isinstance(error, WrongResults))
        return replace_record(
            record, seconds=seconds, samples=samples.seconds, validated=True, threads=samples.threads,
            code_size=code_size(artifact),
        )

    def _confirm(self, measurer: Measurer, state: SearchState) -> None:
        """Verify the best schedule against the oracle on fresh inputs, and the next best if it is wrong, until one is
        right. A wrong one, or one that crashes now, is recorded as wrong."""
        while (best := state.best) is not None and best.origin != "compiler":
            try:
                evaluate(self.subject, decode_schedule(best.schedule), repeat=1, number=1, measurer=measurer)
            except (WrongResults, CallError) as error:
                failed = replace_record(best, seconds=None, samples=[], validated=False, wrong=True, error=str(error))
                self.added(failed)
                state.records = [failed if each is best else each for each in state.records]
                self._seen[canonical(best.schedule)] = failed
                measured = (each for each in (*state.records, *self._seen.values()) if each.seconds is not None)
                state.best = min(measured, key=_seconds_or_infinite, default=None)
            except MotetError:  # a figure beyond the limits, of a single call
                return
            else:
                return

    def _gain(self, measurer: Measurer, best: KernelSchedule) -> Ratio | None:
        """The time of the compiler's choice relative to that of `best`, by alternating samples: those of the search
        are from other times, and the best of many figures is one that noise made small. None if one fails now."""
        return compared(measurer, self.subject, (self.subject.chosen, best), self._plan)


def _seconds_or_infinite(record: Record | None) -> float:
    return float("inf") if record is None or record.seconds is None else record.seconds
