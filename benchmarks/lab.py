"""Searches schedules of the project's kernels: what the heuristics reach, what a search finds, and how soon.

    python -m benchmarks.lab                            measures --trials schedules of each kernel, or takes those known
    python -m benchmarks.lab --trials 1000 --db build/lab.db
    python -m benchmarks.lab --replay                   only replays what the database has

`trials to 5 %` are the trials, replayed from the records, until a strategy is within 5 % of the best record: the median
and the worst of several seeds; `*` if the worst is more than the goal. With the environment variable XTC_PYTHON, which
names a Python with xtc-tools[tvm,mlir], one text of a schedule is measured by Motet and by XTC's back ends, too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.xtc_peer import BACKENDS, DIMS, XtcRequest, find_xtc, run_xtc
from motet.compiler.kernels.loop_names import loop_names, main_stage
from motet.errors import MotetError, OptionError
from motet.lab.derivation import derived_space
from motet.lab.evaluation import evaluate
from motet.lab.language import parse_schedule
from motet.lab.replay import recorded_space, replay
from motet.lab.search import Budget, Search
from motet.lab.space import ScheduleSpace
from motet.lab.strategies.named import strategy_of
from motet.lab.subject import KernelSubject, open_program, subject_of
from motet.lab.workers import workers_of
from motet.records.database import Database
from motet.records.record import Record, canonical, groups_of
from motet.tools.show import show_seconds, show_table

KERNELS = (
    "matmul:512x512x512", "matmul:512x1024x128", "matmul:128x256x91", "conv2d:1x56x56x64,3x3x64x64",
    "conv2d:1x230x230x3,7x7x3x64:stride=2", "depthwise_conv2d:1x58x58x64,3x3x64", "softmax:1024x1000",
    "layernorm:512x768",
)
STRATEGIES = ("random", "ranking", "local", "evolutionary", "model", "optuna:TPE", "nevergrad:CMA")
SHARE, WITHIN = 0.05, 64  # the goal: within 5 % of the best record in at most 64 trials
SEEDS = 5  # of each strategy
MOST = 200  # trials of a replay
ROUNDS = 3


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
    xtc = find_xtc()
    names = ["kernel", "heuristic", "best", "gain", "records", *(f"{name}: trials to 5 %" for name in STRATEGIES)]
    names += ["same text, 1 thread: motet", *(f"xtc {name}" for name in BACKENDS)] if xtc is not None else []
    with Database(given.db, create=not given.replay) as database:
        for text in kernels:
            try:
                subject = subject_of(open_program(text))
                if not given.replay:
                    _measure(subject, database, given.trials)
                rows.append(_row(subject, database, xtc))
            except MotetError as error:
                rows.append([text, str(error), *[""] * (len(names) - 2)])
    print("\n".join(show_table(names, rows)))


def _measure(subject: KernelSubject, database: Database, trials: int) -> None:
    """Add random trials until there are `trials` records."""
    missing = trials - len(_records(subject, database))
    if missing < 1:
        return
    space = derived_space(subject)
    known = {canonical(each.schedule): each for each in _records(subject, database)}
    with workers_of("local") as workers:
        Search(subject, space, strategy_of("random", space, missing), Budget(missing), workers, "random", known,
               added=lambda record: _keep(database, record)).run()


def _keep(database: Database, record: Record) -> None:
    database.add([record])


def _records(subject: KernelSubject, database: Database) -> list[Record]:
    """The records of one machine and version: those of the machine with the most."""
    groups = groups_of(database.query(kernel=subject.listed.key, target=subject.listed.target))
    return max(groups.values(), key=len, default=[])


def _row(subject: KernelSubject, database: Database, xtc: str | None) -> list[str]:
    records = [each for each in _records(subject, database) if each.seconds is not None]
    chosen = min((each.seconds for each in records if each.origin == "compiler" and each.seconds), default=None)
    best = min((each.seconds for each in records if each.seconds), default=None)
    peers = _peers(subject, xtc) if xtc is not None else []
    if best is None:
        return [subject.program.text, "no records", *[""] * (3 + len(STRATEGIES)), *peers]
    space = recorded_space(derived_space(subject), records)
    cells = [_trials(space, name, records) for name in STRATEGIES]
    shown, gain = ("-", "-") if chosen is None else (show_seconds(chosen), f"{chosen / best:.2f}")
    return [subject.program.text, shown, show_seconds(best), gain, str(len(records)), *cells, *peers]


def _trials(space: ScheduleSpace, name: str, records: list[Record]) -> str:
    """The trials of a strategy until it is near the best record: the median of some seeds, and the worst."""
    try:
        found = sorted(
            replay(space, strategy_of(name, space, seed), records, MOST).trials_to(SHARE) or MOST + 1
            for seed in range(SEEDS)
        )
    except OptionError:  # a library that is not installed
        return "n/a"
    median, worst = (f"> {MOST}" if each > MOST else str(each) for each in (found[len(found) // 2], found[-1]))
    return f"{median} / {worst}{' *' if found[-1] > WITHIN else ''}"


def _peers(subject: KernelSubject, xtc: str) -> list[str]:
    """Seconds of the same schedule, on one thread, by Motet and by XTC's back ends, in turn."""
    operator, *rest = subject.program.text.split(":")
    text = _common_text(subject)
    if operator not in DIMS or text is None or any("pad" in each for each in rest):
        return ["", "", ""]
    stride = next((int(each.removeprefix("stride=")) for each in rest if each.startswith("stride=")), 1)
    random = np.random.default_rng(0)
    operands = [random.standard_normal([int(size) for size in value.shape]).astype(np.float32)
                for value in subject.kernel.values if value.role == "argument"]
    made = parse_schedule(json.dumps(text), subject.kernel)
    found: dict[str, list[float]] = {"motet": [], **{name: [] for name in BACKENDS}}
    for _ in range(ROUNDS):
        found["motet"].append(evaluate(subject, made, threads=1, repeat=3).seconds)
        for backend in BACKENDS:
            result, _ = run_xtc(xtc, XtcRequest(operator, text, backend, stride, repeat=3), operands)
            found[backend] += result.seconds
    return [show_seconds(min(seconds)) if seconds else "failed" for seconds in found.values()]


def _common_text(subject: KernelSubject) -> dict[str, dict[str, None]] | None:
    """A schedule that XTC has too: plain loops, with a tile that divides, unrolled and vectorised."""
    main = main_stage(subject.kernel)
    if main is None:
        return None
    stage, names = subject.kernel.stages[main], loop_names(subject.kernel).dims[main]
    sizes = dict(zip(names, (int(size) for size in stage.sizes), strict=True))
    parallel = [name for name, kind in zip(names, stage.iterators, strict=True) if kind == "parallel"]
    if len(parallel) < 2:
        return None
    rows, columns = parallel[-2:]
    loops: dict[str, dict[str, None]] = {name: {} for name in [*parallel, *(n for n in names if n not in parallel)]}
    high = next((size for size in (4, 7, 3, 2) if sizes[rows] % size == 0), 1)
    wide = next((size for size in (32, 16, 8, 4) if sizes[columns] % size == 0), None)
    if wide is None:
        return None
    if high > 1:
        loops[f"{rows}#{high}"] = {"unroll": None}
    return {**loops, f"{columns}#{wide}": {"vectorize": None}}


if __name__ == "__main__":
    main()
