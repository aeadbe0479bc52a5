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
        lines += ["", *_best_lines(subject, found, db)]
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
    """The changes of single fields that are not legal, with the reasons; of a nest, the classes only."""
    import msgspec

    from motet.compiler.kernels.schedule import NestSchedule

    lines = ["changes that are not legal:"]
    if isinstance(given, NestSchedule):
        return [*lines, "  for nests, motet lab evaluate --schedule names the loop and the reason"]
    for name in given.__struct_fields__:
        value = getattr(given, name)
        if isinstance(value, bool):
            tried: list[object] = [not value]
        elif isinstance(value, int):
            tried = [max(1, value // 2), value * 2]
        else:
            continue
        for other in tried:
            changed = msgspec.structs.replace(given, **{name: other})
            reasons = subject.reasons(changed) if other != value else ()
            lines += [f"  {name} {value} → {other}: {reason}" for reason in reasons]
    return lines if len(lines) > 1 else [*lines, "  none of half or double each number"]


def _best_lines(subject: KernelSubject, found: Evaluation, db: str) -> list[str]:
    """The best record in comparison."""
    from motet.lab.database import Database
    from motet.lab.records import canonical
    from motet.tools.show import show_seconds

    with Database(db) as database:
        records = database.query(kernel=subject.listed.key, target=subject.listed.target)
    done = [each for each in records if each.seconds is not None]
    if not done or done[0].seconds is None:
        return [f"{db}: no record of this kernel"]
    best, seconds = done[0], done[0].seconds
    return [
        f"{db}: {len(done)} records and {len(records) - len(done)} failures; best {show_seconds(seconds)} "
        f"({found.seconds / seconds:.2f} times as fast) on {best.machine}: {canonical(best.schedule)}",
        *(f"  failed: {each.error}" for each in records[len(done) : len(done) + 3]),
    ]
