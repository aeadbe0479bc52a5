"""motet lab explore: searches schedules of a program's kernels."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from motet.errors import DeviceError, OptionError
from motet.tools.lab import arguments

if TYPE_CHECKING:
    from motet.compiler.kernels.schedule import KernelSchedule
    from motet.lab.search import Budget, SearchState
    from motet.lab.space import ScheduleSpace
    from motet.lab.subject import KernelSubject
    from motet.lab.workers import Workers
    from motet.measuring.ratios import Ratio
    from motet.records.database import Database
    from motet.records.record import Record

HELP = """Search the schedules of a kernel for the fastest, and keep all evaluations in a database.

Strategies: exhaustive, random, ranking (the compiler's choice and neighbours of the fastest), local, evolutionary,
model (a learned cost model), optuna:NAME and nevergrad:NAME (any optimiser of these packages).

\b
Examples:
  motet lab explore matmul:512x512x512xf32 --trials 64 --db lab.db
  motet lab explore conv2d:1x56x56x64,3x3x64x64 --strategy random --trials 1000 --workers local:2 --resume --db lab.db
  motet lab explore matmul:512x512x512xf32 --schedule '{"i": {"parallelize"}, "j": {}, "k": {}, "i#$ti": {"unroll"}, \
"j#$tj": {"vectorize"}}' --hole ti=2,4,6 --hole tj=16,32 --strategy exhaustive
  motet lab explore matmul:512x512x512xf32 --replay --strategy local --db lab.db     without measurements
"""


_SEEDS = 5  # searches of a replay, which differ in their random choices
_SHARE = 0.05  # of the best record, within which a search has succeeded


# The parameters of this function are the options of `motet lab explore`, read by typer.
def explore_schedules(
    program: arguments.LabProgramArgument,
    strategy: Annotated[str, typer.Option("--strategy", metavar="NAME", help="The search strategy.")] = "ranking",
    trials: Annotated[int | None, typer.Option(
        "--trials", metavar="N", show_default=False, help="The most schedules to measure.",
    )] = None,
    seconds: Annotated[float | None, typer.Option(
        "--seconds", metavar="S", show_default=False, help="The most seconds to search.",
    )] = None,
    effort: Annotated[str, typer.Option(
        "--effort", metavar="quick|normal|full", help="The budget if neither --trials nor --seconds is given: 16, 64 "
        "or 1000 trials.",
    )] = "normal",
    db: Annotated[str, typer.Option("--db", metavar="FILE", help="The database.")] = "lab.db",
    resume: Annotated[bool, typer.Option(
        "--resume", help="Count the records of this kernel on this machine as trials, and learn from them.",
    )] = False,
    workers: Annotated[str, typer.Option(
        "--workers", metavar="local:N|ADDRESS", help="Processes that compile at the same time, here or in Dask.",
    )] = "local",
    schedule: arguments.ScheduleText = "",
    hole: Annotated[list[str] | None, typer.Option(
        "--hole", metavar="NAME=V,V,…", show_default=False, help="The values of $NAME in --schedule.",
    )] = None,
    microkernel: arguments.Microkernels = None,
    classes: Annotated[str, typer.Option(
        "--classes", metavar="NAME,…", show_default=False,
        help="The classes of schedules to search; by default the compiler's choice and nests.",
    )] = "",
    kernel: Annotated[str, typer.Option(
        "--kernel", metavar="NAME|all", show_default=False,
        help="The kernel, by its name or key, or all; by default the one with the most work.",
    )] = "",
    device: arguments.LabDevice = "host",
    replay: Annotated[bool, typer.Option(
        "--replay", help="Search among the records of the database, without measurements.",
    )] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The seed of random choices.")] = 0,
) -> None:
    from motet.lab.subject import open_program, subject_of, subjects_of
    from motet.lab.workers import workers_of
    from motet.records.database import Database

    budget = _budget(trials, seconds, effort)
    opened = open_program(program, device)
    subjects = subjects_of(opened) if kernel == "all" else [subject_of(opened, kernel)]
    names = [name.strip() for name in classes.split(",") if name.strip()]
    with Database(db, create=not replay) as database, workers_of(workers) as pool:
        for subject in subjects:
            space = _space(subject, schedule, hole or [], names, microkernel or [])
            job = _Exploration(subject, space, strategy, budget, database, seed)
            job.replay() if replay else job.run(pool, resume)


def _budget(trials: int | None, seconds: float | None, effort: str) -> Budget:
    from motet.lab.search import EFFORTS, Budget

    if effort not in EFFORTS:
        raise OptionError(f"--effort {effort}: expected one of {', '.join(EFFORTS)}")
    return EFFORTS[effort] if trials is None and seconds is None else Budget(trials, seconds)


def _space(
    subject: KernelSubject, schedule: str, holes: list[str], classes: list[str], microkernels: list[str]
) -> ScheduleSpace:
    from motet.lab.derivation import derived_space
    from motet.lab.space import ScheduleSpace, parse_holes

    if not schedule:
        if holes:
            raise OptionError(f"--hole {holes[0]}: expected it with --schedule, in which $NAME stands for the values")
        return derived_space(subject, classes)
    text, values = arguments.read_text(schedule), parse_holes(holes)
    known = arguments.read_microkernels(microkernels, subject)
    space = ScheduleSpace.of_text(
        text, subject.kernel, values, subject.reasons, lambda filled: subject.parse(filled, known)
    )
    if next(space.points(), None) is None:
        raise OptionError(f"--schedule: legal with none of the values of its holes: {space.why(space.first)}")
    return space


class _Exploration:
    """The search for one kernel."""

    # The parameters are those of a search, as in the command.
    def __init__(
        self, subject: KernelSubject, space: ScheduleSpace, strategy: str, budget: Budget, database: Database, seed: int
    ) -> None:
        self.subject, self.space, self.strategy, self.budget = subject, space, strategy, budget
        self.database, self.seed = database, seed

    def run(self, pool: Workers, resume: bool) -> None:
        from motet.lab.points import PointFinder, seeded
        from motet.lab.search import Budget, Search, SearchState
        from motet.lab.strategies.named import strategy_of
        from motet.lab.subject import device_info
        from motet.records.machine import fingerprint
        from motet.records.record import canonical
        from motet.version import VERSION

        listed = self.subject.listed
        machine = fingerprint(device_info(self.subject.program))
        own = self.database.query(kernel=listed.key, target=listed.target, machine=machine, motet=VERSION)
        known = {canonical(each.schedule): each for each in own} if resume else {}
        space = seeded(self.space, _starting_points(self.subject, self.database))
        strategy = strategy_of(self.strategy, space, self.seed + len(known))
        finder = PointFinder(space)
        for each in known.values():
            if (point := finder.of_record(each)) is not None:
                strategy.tell(point, each.seconds)
        budget = self.budget
        if known and budget.trials is not None:
            if len(known) >= budget.trials:
                typer.echo(f"{listed.name}: {len(known)} trials are recorded in {self.database.path}, as many as asked")
                return
            budget = Budget(budget.trials - len(known), budget.seconds)
        search = Search(self.subject, space, strategy, budget, pool, self.strategy, known,
                        lambda record: self._kept(record), _line if sys.stderr.isatty() else _quiet)
        state = SearchState()
        try:
            search.run(state)
        except KeyboardInterrupt:
            _clear()
            typer.echo(f"interrupted after {len(state.records)} trials; they are kept in {self.database.path}, and "
                       "--resume goes on", err=True)
            raise typer.Exit(130) from None
        _clear()
        typer.echo("\n".join(state_lines(self.subject, state, len(known), strategy)))

    def _kept(self, record: Record) -> None:
        self.database.add([record])

    def replay(self) -> None:
        from motet.lab.replay import recorded_space, replay
        from motet.lab.strategies.named import strategy_of
        from motet.tools.show import show_seconds

        listed = self.subject.listed
        records = self._comparable()
        space = recorded_space(self.space, records)
        most = self.budget.trials or len(records)
        runs = [replay(space, strategy_of(self.strategy, space, self.seed + n), records, most) for n in range(_SEEDS)]
        runs = [each for each in runs if each.seconds]
        if not runs:
            raise OptionError(f"replay: {self.strategy} proposed none of the {len(records)} recorded schedules")
        reached = sorted(each.trials_to(_SHARE) or 1 << 30 for each in runs)
        median, worst = ("never" if each == 1 << 30 else f"after {each} trials"
                         for each in (reached[len(reached) // 2], reached[-1]))
        slowest = max(min(each.seconds) for each in runs)
        typer.echo(f"{listed.name}: replayed {len(runs)} searches of at most {most} trials by {self.strategy} on "
                   f"{len(space.listed)} records: best of all records {show_seconds(runs[0].best)}, found in the worst "
                   f"search {show_seconds(slowest)}; within {_SHARE * 100:.0f} % {median} (median), {worst} (worst)")

    def _comparable(self) -> list[Record]:
        """The records of one machine and one version of Motet: of this machine if it has some, else of that with the
        most. Figures of several machines cannot be compared."""
        from motet.lab.subject import device_info
        from motet.records.machine import fingerprint
        from motet.records.record import groups_of

        listed = self.subject.listed
        groups = groups_of(self.database.query(kernel=listed.key, target=listed.target))
        if not groups:
            raise OptionError(f"{self.database.path}: no record of kernel {listed.name} for {listed.target}; explore "
                              "it first, without --replay")
        try:
            here = fingerprint(device_info(self.subject.program))
        except DeviceError:
            here = ""
        (machine, version), found = max(groups.items(), key=lambda each: (each[0][0] == here, len(each[1])))
        if len(groups) > 1:
            typer.echo(f"{listed.name}: {len(groups)} machines and versions of Motet have records; replaying those of "
                       f"{machine} by Motet {version}", err=True)
        return found


def _starting_points(subject: KernelSubject, database: Database) -> list[KernelSchedule]:
    """Schedules of this kernel on other machines, and of kernels that differ in their extents."""
    from motet.compiler.kernels.kernel_facts import extents_of, form_of
    from motet.compiler.kernels.schedule import decode_schedule

    near = database.near(form_of(subject.kernel), subject.listed.target, extents_of(subject.kernel), 4)
    found: list[KernelSchedule] = []
    for record in near:
        try:
            schedule = decode_schedule(record.schedule)
        except ValueError:
            continue
        if not subject.reasons(schedule):
            found.append(schedule)
    return found


def _line(state: SearchState) -> None:
    """A line of progress, on a terminal."""
    from motet.tools.show import show_seconds

    best, chosen = state.best, state.chosen
    text = f"trial {len(state.records)}"
    if best is not None and best.seconds is not None and chosen is not None and chosen.seconds is not None:
        text += f": best {show_seconds(best.seconds)}, {chosen.seconds / best.seconds:.2f} times the compiler's choice"
    failed = sum(each.seconds is None for each in state.records)
    print(f"\r\033[K{text}; {failed} failed", end="", file=sys.stderr, flush=True)


def _quiet(state: SearchState) -> None:
    """No progress where standard error is a file."""


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _gain(gain: Ratio | None) -> str:
    """How much faster the best schedule is than the compiler's choice."""
    if gain is None:
        return ""
    noise = "; no difference beyond noise" if gain.is_noise else ""
    return f", {gain.median:.2f} times as fast{gain.span}{noise}"


def state_lines(subject: KernelSubject, state: SearchState, known: int, strategy: object) -> list[str]:
    """The result of a search as text."""
    from motet.compiler.kernels.schedule import decode_schedule
    from motet.lab.strategies.learned import LearnedSearch
    from motet.tools.show import show_seconds

    chosen, best = state.chosen, state.best
    failed = [each for each in state.records if each.seconds is None]
    earlier = f", {known} known before" if known else ""
    lines = [f"{subject.listed.name} ({subject.listed.about}): {len(state.records)} trials{earlier}, "
             f"{len(failed)} failed"]
    if failed:
        lines.append(f"  failed            {failed[0].error}")
    if chosen is None or best is None or chosen.seconds is None or best.seconds is None:
        return lines
    lines += [
        f"  compiler's choice {show_seconds(chosen.seconds)}",
        f"  best              {show_seconds(best.seconds)}{_gain(state.gain)}, proposed by {best.origin}",
        f"  schedule          {subject.text(decode_schedule(best.schedule))}",
    ]
    if isinstance(strategy, LearnedSearch) and strategy.model.error is not None:
        lines.append(f"  cost model        {strategy.model.library}, mean error {strategy.model.error:.0%}")
    return lines
