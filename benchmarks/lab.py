"""Searches schedules of the project's kernels: what the heuristics reach, what a search finds, and how soon.

    python -m benchmarks.lab                            measures --trials schedules of each kernel, or takes those known
    python -m benchmarks.lab --trials 1000 --db build/lab.db
    python -m benchmarks.lab --replay                   only replays what the database has
    python -m benchmarks.lab --lists --rows ResNet18    also the sizes of XTC's operator lists, without padding

`trials to 5 %` are the trials, replayed from the records, until a strategy is within 5 % of the best record: the median
and the worst of several seeds; `*` if the worst is more than the goal. With the environment variable XTC_PYTHON, which
names a Python with xtc-tools[tvm,mlir], one text of a schedule is measured by Motet and by XTC's back ends, too, and a
second table has searches of as many trials by XTC's back ends and TVM's MetaSchedule (`lab_peers.py`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks import lab_peers
from benchmarks.xtc_peer import BACKENDS, DIMS, XtcRequest, find_xtc, how_to_get_xtc, run_xtc
from motet.compiler.kernels.loop_names import loop_names, main_stage
from motet.errors import MotetError, OptionError
from motet.lab.derivation import derived_space
from motet.lab.evaluation import evaluate
from motet.lab.language import parse_schedule
from motet.lab.operator_lists import CONVOLUTIONS, PRODUCTS
from motet.lab.operators import parse_operator
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
    "layernorm:512x768", "matmul:21x32x12", "matmul:64x64x64", "matmul:32x32x512", "conv2d:1x8x8x3,3x3x3x16",
    "conv2d:2x13x13x3,7x7x3x32:stride=2",
)
STRATEGIES = ("random", "ranking", "local", "evolutionary", "model", "optuna:TPE", "nevergrad:CMA")
SHARE, WITHIN = 0.05, 64  # the goal: within 5 % of the best record in at most 64 trials
SEEDS = 5  # of each strategy
MOST = 200  # trials of a replay
ROUNDS = 3
SUMS = 128  # of a tile, for 16 registers of 8 lanes


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.lab", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", default="build/lab.db", help="the database of records")
    parser.add_argument("--trials", type=int, default=64, help="the random trials of each kernel")
    parser.add_argument("--rows", nargs="*", default=[], help="only kernels whose names contain one of these")
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES, help="replay these; models take minutes each")
    parser.add_argument("--lists", action="store_true", help="also the sizes of XTC's operator lists")
    parser.add_argument("--replay", action="store_true", help="measure nothing")
    given = parser.parse_args()
    Path(given.db).parent.mkdir(parents=True, exist_ok=True)
    kernels = [text for text, names in (listed_kernels() if given.lists else {each: each for each in KERNELS}).items()
               if not given.rows or any(part in f"{text} {names}" for part in given.rows)]
    rows: list[list[str]] = []
    peers: list[list[str]] = []
    xtc = None if given.replay else find_xtc()
    names = ["kernel", "heuristic", "best", "gain", "records", *(f"{name}: trials to 5 %" for name in given.strategies)]
    names += ["same text, 1 thread: motet", *(f"xtc {name}" for name in BACKENDS)] if xtc is not None else []
    with Database(given.db, create=not given.replay) as database:
        for text in kernels:
            try:
                subject = subject_of(open_program(text))
                if not given.replay:
                    _measure(subject, database, given.trials)
                rows.append(_row(subject, database, xtc, given.strategies))
                if xtc is not None:
                    peers += [_motet_row(rows[-1], given.strategies), *lab_peers.peer_rows(text, xtc, given.trials)]
            except MotetError as error:
                rows.append([text, f"- ({error})", *["-"] * (len(names) - 2)])
    print("\n".join(show_table(names, rows)))
    if xtc is not None:
        print("\n".join(["", *show_table(list(lab_peers.COLUMNS), peers)]))
    elif not given.replay:
        print(f"\n{how_to_get_xtc()}")


def listed_kernels() -> dict[str, str]:
    """`KERNELS` and the sizes of XTC's lists, each with the text that names it. XTC's convolutions read images that are
    padded already, so these do."""
    found = {each: each for each in KERNELS} | {f"matmul:{size}": f"matmul:{name}" for name, size in PRODUCTS.items()}
    for name in CONVOLUTIONS:
        call = parse_operator(f"conv2d:{name}")
        (n, h, w, c), filters = call.shapes
        pad, stride = call.number("pad", 0), call.number("stride", 1)
        text = f"conv2d:{n}x{h + 2 * pad}x{w + 2 * pad}x{c},{'x'.join(map(str, filters))}"
        found[text if stride == 1 else f"{text}:stride={stride}"] = f"conv2d:{name}"
    return found


def _motet_row(row: list[str], strategies: Sequence[str]) -> list[str]:
    """The row of the peers' table for what a row of the first one has."""
    kernel, heuristic, best, gain, records = row[:5]
    strategy = "ranking" if "ranking" in strategies else strategies[0]
    return [kernel, f"motet {strategy}", heuristic, best, gain, records, row[5 + strategies.index(strategy)]]


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


def _row(subject: KernelSubject, database: Database, xtc: str | None, strategies: Sequence[str]) -> list[str]:
    records = [each for each in _records(subject, database) if each.seconds is not None]
    chosen = min((each.seconds for each in records if each.origin == "compiler" and each.seconds), default=None)
    best = min((each.seconds for each in records if each.seconds), default=None)
    peers = _peers(subject, xtc) if xtc is not None else []
    if best is None:
        return [subject.program.text, "- (no records)", *["-"] * (3 + len(strategies)), *peers]
    space = recorded_space(derived_space(subject), records)
    cells = [_trials(space, name, records) for name in strategies]
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
        return "- (not installed)"
    median, worst = (f"> {MOST}" if each > MOST else str(each) for each in (found[len(found) // 2], found[-1]))
    return f"{median} / {worst}{' *' if found[-1] > WITHIN else ''}"


def _peers(subject: KernelSubject, xtc: str) -> list[str]:
    """Seconds of the same schedule, on one thread, by Motet and by XTC's back ends, in turn; or why there are none."""
    call = parse_operator(subject.program.text)
    text = _common_text(subject)
    if call.name not in DIMS or text is None or call.number("pad", 0):
        why = f"XTC has no {call.name}" if call.name not in DIMS else "no common text for these extents"
        return [f"- ({why})", *["-" for _ in BACKENDS]]
    operands = lab_peers.operands_of(call)
    made = parse_schedule(json.dumps(text), subject.kernel)
    found: dict[str, list[float]] = {"motet": [], **{name: [] for name in BACKENDS}}
    errors: dict[str, str] = {}
    for _ in range(ROUNDS):
        found["motet"].append(evaluate(subject, made, threads=1, repeat=3).seconds)
        for backend in BACKENDS:
            request = XtcRequest(call.name, text, backend, call.number("stride", 1), repeat=3)
            result, _ = run_xtc(xtc, request, operands)
            found[backend] += result.seconds
            errors[backend] = result.error
    return [show_seconds(min(seconds)) if seconds else f"- ({errors[name]})" for name, seconds in found.items()]


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
    wide = next((size for size in (32, 16, 8, 4) if sizes[columns] % size == 0 and high * size <= SUMS), None)
    if wide is None:
        return None
    if high > 1:
        loops[f"{rows}#{high}"] = {"unroll": None}
    return {**loops, f"{columns}#{wide}": {"vectorize": None}}


if __name__ == "__main__":
    main()
