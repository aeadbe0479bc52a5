"""motet lab diff: two schedules side by side: fields, figures, counters, and machine code."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.errors import OptionError
from motet.tools.lab import arguments

if TYPE_CHECKING:
    from motet.compiler.kernels.schedule import KernelSchedule
    from motet.lab.subject import KernelSubject

HELP = """Compare two schedules of a kernel: their fields, times, counters and machine code.

A and B are schedules as text, @FILE, `compiler` for the compiler's choice, or DB for the best record of a database.

\b
Examples:
  motet lab diff matmul:512x512x512xf32 compiler lab.db
  motet lab diff matmul:512x512x512xf32 compiler @mine.yaml --assembly
"""

COMPILER = "compiler"
_MOST_NAMES = 10


# The parameters of this function are the options of `motet lab diff`, read by typer.
def compare_records(
    program: arguments.LabProgramArgument,
    a: Annotated[str, typer.Argument(metavar="A", show_default=False, help="A schedule.")],
    b: Annotated[str, typer.Argument(metavar="B", show_default=False, help="Another schedule.")],
    kernel: arguments.Kernel = "",
    device: arguments.LabDevice = "host",
    counters: Annotated[str, typer.Option("--counters", metavar="NAME,…", help="Counters.")] = "instructions,cycles",
    assembly: Annotated[bool, typer.Option("--assembly", help="Show the differences of the machine code.")] = False,
    most: Annotated[int, typer.Option(
        "--most", metavar="N", min=0, help="The most lines of machine code to show; 0 for all.",
    )] = 200,
) -> None:
    from motet.lab.evaluation import evaluate
    from motet.lab.subject import open_program, subject_of
    from motet.tools.show import show_bytes, show_seconds, show_table

    subject = subject_of(open_program(program, device), kernel)
    schedules = [_schedule(text, subject) for text in (a, b)]
    names = [name for name in counters.split(",") if name]
    found = [evaluate(subject, each, counters=names, repeat=3) for each in schedules]
    texts = [_assembly(subject, each) for each in schedules]
    rows = [[name, *values] for name, *values in _fields(schedules)]
    rows += [
        ["time", *(show_seconds(each.seconds) for each in found)],
        *([name, *(_count(each.counters.get(name, "")) for each in found)] for name in names),
        ["code", *(show_bytes(each.record.code_size) for each in found)],
        ["machine instructions", *(str(sum(_mnemonics(text).values())) for text in texts)],
    ]
    counted = [_mnemonics(text) for text in texts]
    changed = sorted(counted[0].keys() | counted[1].keys(), key=lambda name: -abs(counted[0][name] - counted[1][name]))
    differing = [name for name in changed if counted[0][name] != counted[1][name]]
    rows += [[f"  {name}", str(counted[0][name]), str(counted[1][name])] for name in differing[:_MOST_NAMES]]
    typer.echo("\n".join(show_table(["", a, b], rows)))
    if len(differing) > _MOST_NAMES:
        typer.echo(f"… and {len(differing) - _MOST_NAMES} more instructions that differ; --assembly shows the code")
    if assembly:
        lines = list(difflib.unified_diff(texts[0].splitlines(), texts[1].splitlines(), a, b, lineterm="", n=1))
        typer.echo("\n".join(lines if most == 0 else lines[:most]))
        if 0 < most < len(lines):
            typer.echo(f"… and {len(lines) - most} more of {len(lines)} lines; --most N shows N of them, --most 0 all")


def _schedule(text: str, subject: KernelSubject) -> KernelSchedule:
    from motet.compiler.kernels.schedule import decode_schedule
    from motet.lab.subject import expect_legal
    from motet.records.best_schedules import this_host
    from motet.records.database import Database, is_database

    if is_database(text) or text.endswith(".db"):
        listed = subject.listed
        with Database(text) as database:
            best = database.best(this_host(), kernel=listed.key, target=listed.target)
        if not best:
            raise OptionError(f"{text}: no record of kernel {listed.name} for {listed.target}")
        return decode_schedule(best[0].schedule)
    given = subject.chosen if text == COMPILER else arguments.read_schedule(text, subject)
    expect_legal(subject, given)
    return given


def _fields(schedules: list[KernelSchedule]) -> list[list[str]]:
    """The fields that differ; the whole schedules if they are of different classes."""
    import msgspec

    left, right = (dict(msgspec.to_builtins(each)) for each in schedules)
    if left["class"] != right["class"]:
        return [["class", left["class"], right["class"]]]
    both: dict[str, Any] = {**left, **right}
    return [[name, _text(left.get(name)), _text(right.get(name))]
            for name in both if left.get(name) != right.get(name)]


def _text(value: object) -> str:
    import msgspec

    return "default" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _count(value: float | str) -> str:
    return "not available" if isinstance(value, str) else f"{value:,.0f}"


def _assembly(subject: KernelSubject, schedule: KernelSchedule) -> str:
    import tempfile
    from pathlib import Path

    from motet.compiler import service
    from motet.lab.subject import request_with

    with tempfile.TemporaryDirectory(prefix="motet-lab-") as folder:
        return service.emit(request_with(subject, schedule, Path(folder)), "assembly")


def _mnemonics(text: str) -> Counter[str]:
    """How often each instruction stands in the code."""
    words = (line.split()[0] for line in text.splitlines() if line.startswith("\t") and line.strip())
    return Counter(word for word in words if word[0].isalpha())
