"""Searches schedules of the project's kernels: what the heuristics reach, what a search finds, and how soon.

    python -m benchmarks.lab                            measures --trials schedules of each kernel, or takes those known
    python -m benchmarks.lab --trials 1000 --db build/lab.db
    python -m benchmarks.lab --replay                   only replays what the database has

`trials to 5 %` are the trials, replayed from the records, until a strategy is within 5 % of the best record. XTC's own
back ends are not measured yet.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from motet.errors import MotetError
from motet.lab.database import Database
from motet.lab.derivation import derived_space
from motet.lab.records import Record
from motet.lab.replay import recorded_space, replay
from motet.lab.search import Budget, Search
from motet.lab.strategies.named import strategy_of
from motet.lab.subject import KernelSubject, open_program, subject_of
from motet.lab.workers import workers_of
from motet.tools.show import show_seconds, show_table

KERNELS = (
    "matmul:512x512x512", "matmul:512x1024x128", "matmul:128x256x91", "conv2d:1x56x56x64,3x3x64x64",
    "conv2d:1x230x230x3,7x7x3x64:stride=2", "depthwise_conv2d:1x58x58x64,3x3x64", "softmax:1024x1000",
    "layernorm:512x768",
)
STRATEGIES = ("random", "ranking", "local", "evolutionary", "model")
SHARE, WITHIN = 0.05, 64  # the goal: within 5 % of the best record in at most 64 trials
SEEDS = 5  # of each strategy, whose median counts


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.lab", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", default="build/lab.db", help="the database of records")
    parser.add_argument("--trials", type=int, default=64, help="the random trials of each kernel")
    parser.add_argument("--rows", nargs="*", default=[], help="only kernels whose names contain one of these")
    parser.add_argument("--replay", action="store_true", help="measure nothing")
    given = parser.parse_args()
    Path(given.db).parent.mkdir(parents=True, exist_ok=True)
    kernels = [each for each in KERNELS if not given.rows or any(text in each for text in given.rows)]
    rows: list[list[str]] = []
    with Database(given.db, create=not given.replay) as database:
        for text in kernels:
            try:
                subject = subject_of(open_program(text))
                if not given.replay:
                    _measure(subject, database, given.trials)
                rows.append(_row(subject, database))
            except MotetError as error:
                rows.append([text, str(error), *[""] * (3 + len(STRATEGIES))])
    print("\n".join(show_table(
        ["kernel", "heuristic", "best", "gain", "records", *(f"{name}: trials to 5 %" for name in STRATEGIES)], rows)))


def _measure(subject: KernelSubject, database: Database, trials: int) -> None:
    """Add random trials until there are `trials` records."""
    missing = trials - len(_records(subject, database))
    if missing < 1:
        return
    space = derived_space(subject)
    with workers_of("local") as workers:
        Search(subject, space, strategy_of("random", space, missing), Budget(missing), workers, "random",
               added=lambda record: _keep(database, record)).run()


def _keep(database: Database, record: Record) -> None:
    database.add([record])


def _records(subject: KernelSubject, database: Database) -> list[Record]:
    return database.query(kernel=subject.listed.key, target=subject.listed.target)


def _row(subject: KernelSubject, database: Database) -> list[str]:
    records = [each for each in _records(subject, database) if each.seconds is not None]
    chosen = min((each.seconds for each in records if each.origin == "compiler" and each.seconds), default=None)
    best = min((each.seconds for each in records if each.seconds), default=None)
    if best is None:
        return [subject.program.text, "no records", *[""] * (3 + len(STRATEGIES))]
    space = recorded_space(derived_space(subject), records)
    cells = [_trials(space, name, records) for name in STRATEGIES]
    shown, gain = ("-", "-") if chosen is None else (show_seconds(chosen), f"{chosen / best:.2f}")
    return [subject.program.text, shown, show_seconds(best), gain, str(len(records)), *cells]


def _trials(space: object, name: str, records: list[Record]) -> str:
    """The median trials of a strategy over some seeds, `-` if most find none."""
    from motet.lab.space import ScheduleSpace

    assert isinstance(space, ScheduleSpace)
    found = sorted(
        replay(space, strategy_of(name, space, seed), records, len(records)).trials_to(SHARE) or 1 << 30
        for seed in range(SEEDS)
    )
    median = found[len(found) // 2]
    return "-" if median == 1 << 30 else f"{median}{' *' if median > WITHIN else ''}"


if __name__ == "__main__":
    main()
