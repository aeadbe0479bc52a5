"""motet lab explain: what limits a kernel, and what each change of its schedule would break or bring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.tools.lab import arguments

if TYPE_CHECKING:
    from motet.compiler.kernels.schedule import KernelSchedule
    from motet.lab.evaluation import Evaluation
    from motet.lab.subject import KernelSubject

_FAILURES = 3  # of a database, that are shown

HELP = """Explain a schedule: its place in the roofline, what limits it, counters, and the changes that are not legal.

\b
Examples:
  motet lab explain matmul:512x512x512xf32
  motet lab explain matmul:512x512x512xf32 --db lab.db --counters instructions
"""


def explain_kernel(
    program: arguments.LabProgramArgument,
    schedule: arguments.ScheduleText = "",
    kernel: arguments.Kernel = "",
    device: arguments.LabDevice = "host",
    counters: Annotated[str, typer.Option("--counters", metavar="NAME,…", help="Counters to show.")] = "instructions",
    db: Annotated[str, typer.Option(
        "--db", metavar="FILE", show_default=False, help="Compare with the best record of this database.",
    )] = "",
) -> None:
    from motet.lab.evaluation import evaluate
    from motet.lab.subject import open_program, subject_of
    from motet.tools.lab.evaluate import evaluation_lines
    from motet.tools.lab.show import kernel_lines

    subject = subject_of(open_program(program, device), kernel)
    given = arguments.read_schedule(schedule, subject)
    found = evaluate(subject, given, counters=[name for name in counters.split(",") if name], repeat=3)
    lines = [*kernel_lines(subject.listed), "", *evaluation_lines(found), "", *limit_lines(found), "",
             *_refused_lines(subject, given)]
    if db and Path(db).exists():
        lines += ["", *best_lines(subject, given, found, db)]
    typer.echo("\n".join(lines))


def limit_lines(found: Evaluation) -> list[str]:
    """What limits the kernel, by the roofline model (Williams et al. 2009)."""
    record = found.record
    if not record.flops or not record.bytes or found.of_peak is None or found.of_bandwidth is None:
        return ["limited by: unknown, since its operations or bytes are not counted"]
    intensity = record.flops / record.bytes
    by_memory = found.of_bandwidth > found.of_peak
    ridge = (record.flops / found.of_peak) / (record.bytes / found.of_bandwidth)
    limit = "memory bandwidth" if intensity < ridge else "arithmetic"
    share = max(found.of_peak, found.of_bandwidth)
    lines = [f"roofline: {intensity:,.1f} operations per byte; the ridge of this device is at {ridge:,.1f}: limited by "
             f"{limit}, of which it reaches {share:.0%}"]
    if share < 0.5:
        lines.append(f"  below half of the limit of {'memory' if by_memory else 'arithmetic'}: what costs time is not "
                     "in the model: latency, small tasks, unvectorised work, or other work on the machine")
    return lines


def _refused_lines(subject: KernelSubject, given: KernelSchedule) -> list[str]:
    """The changes of single fields, or of single loops, that are not legal, with the reasons."""
    from motet.compiler.kernels.schedule import NestSchedule
    from motet.lab.changes import refused_fields, refused_loops

    lines = ["changes that are not legal:"]
    if isinstance(given, NestSchedule):
        return [*lines, *(refused_loops(subject, given) or ["  none of those of single loops"])]
    return [*lines, *(refused_fields(subject, given) or ["  none of half or double each number"])]


def best_lines(subject: KernelSubject, given: KernelSchedule, found: Evaluation, db: str) -> list[str]:
    """The best record in comparison: measured now, in turn with `given`, since its figure is from another time."""
    from motet.compiler.kernels.schedule import decode_schedule
    from motet.lab.evaluation import compared
    from motet.lab.measuring import MeasurePlan, measuring
    from motet.records.database import Database
    from motet.records.record import canonical
    from motet.tools.show import show_seconds

    with Database(db) as database:
        listed = subject.listed
        records = database.query(kernel=listed.key, target=listed.target)
        best = next(iter(database.best(found.record.machine, kernel=listed.key, target=listed.target)), None)
    if best is None or best.seconds is None:
        return [f"{db}: no record of this kernel with a figure"]
    with measuring() as measurer:
        ratio = compared(measurer, subject, (given, decode_schedule(best.schedule)), MeasurePlan(most_seconds=2.0))
    told = "cannot be measured now" if ratio is None else f"{ratio.median:.2f} times as fast now{ratio.span}"
    failed = [each for each in records if each.seconds is None]
    more = len(failed) - _FAILURES
    return [
        f"{db}: {len(records) - len(failed)} records and {len(failed)} failures; best {show_seconds(best.seconds)}, "
        f"{told}{'' if best.trusted else ', not validated'}, on {best.machine}: {canonical(best.schedule)}",
        *(f"  failed: {each.error}" for each in failed[:_FAILURES]),
        *([f"  … and {more} more failures; motet lab records list {db} shows them"] if more > 0 else []),
    ]
