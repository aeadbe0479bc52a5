"""motet lab evaluate: the figures of one schedule."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from motet.errors import OptionError, WrongResults
from motet.tools import arguments as common
from motet.tools.lab import arguments

if TYPE_CHECKING:
    from motet.lab.evaluation import Evaluation

HELP = """Measure a schedule of a kernel: all samples, counters, its share of the device's limits, and its results.

\b
Examples:
  motet lab evaluate matmul:512x512x512xf32
  motet lab evaluate matmul:512x512x512xf32 --schedule '{"i": {"parallelize"}, "j": {}, "k": {}, "i#4": {"unroll"}, \
"j#32": {"vectorize"}}' --counters instructions,cycles
  motet lab evaluate model.onnx --kernel main_kernel_3 --db lab.db
"""


# The parameters of this function are the options of `motet lab evaluate`, read by typer.
def evaluate_schedule(
    program: arguments.LabProgramArgument,
    schedule: arguments.ScheduleText = "",
    kernel: arguments.Kernel = "",
    device: arguments.LabDevice = "host",
    repeat: Annotated[int, typer.Option(metavar="N", min=1, help="Samples to take.")] = 5,
    number: Annotated[int | None, typer.Option(
        metavar="N", min=1, show_default=False, help="Calls in a sample; by default chosen by --min-repeat-ms.",
    )] = None,
    min_repeat_ms: Annotated[float, typer.Option(metavar="MS", min=0.0, help="The least length of a sample.")] = 10.0,
    warmup: Annotated[int, typer.Option(metavar="N", min=0, help="Calls before the first sample.")] = 1,
    counters: Annotated[str, typer.Option(
        metavar="NAME,…", show_default=False,
        help="Counters: instructions, cycles, cache-misses, branches, energy, valgrind, registers, occupancy, …",
    )] = "",
    validate: Annotated[bool, typer.Option(
        "--validate/--no-validate", help="Compare the results on fresh inputs with the oracle's.",
    )] = True,
    cold: Annotated[bool, typer.Option("--cold", help="Clear the caches before each call.")] = False,
    threads: arguments.LabThreads = None,
    microkernel: arguments.Microkernels = None,
    db: Annotated[str, typer.Option(
        "--db", metavar="FILE", show_default=False, help="Add the record to this database.",
    )] = "",
    peers: Annotated[str, typer.Option(
        metavar="NAME,…", show_default=False,
        help="Measure other libraries too, if PROGRAM is an operator on the host: numpy, torch.",
    )] = "",
    json: common.Json = False,
) -> None:
    from motet.lab.evaluation import evaluate, expect_counters, wrong_record
    from motet.lab.subject import open_program, subject_of
    from motet.records.database import Database

    wanted = _names(counters)
    beside = _names(peers)
    expect_counters(wanted)
    _expect_peers(beside, program, device)
    subject = subject_of(open_program(program, device), kernel)
    given = arguments.read_schedule(schedule, subject, microkernel or [])
    with Database(db, create=True) if db else nullcontext() as database:
        try:
            found = evaluate(
                subject, given, repeat=repeat, number=number, min_repeat_ms=min_repeat_ms, warmup=warmup,
                counters=wanted, validate=validate, cold=cold, threads=threads,
            )
        except WrongResults as error:
            if database is not None:
                database.add([wrong_record(subject, given, error)])
            raise
        if database is not None:
            database.add([found.record])
    if json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(found.record), indent=2).decode())
        return
    typer.echo("\n".join([*evaluation_lines(found), *_peer_lines(found, beside, program)]))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _expect_peers(names: list[str], program: str, device: str) -> None:
    from motet.lab.operators import is_operator
    from motet.lab.peers import expect_peers

    expect_peers(names)
    if names and not (is_operator(program) and device.startswith("host")):
        raise OptionError(f"--peers {','.join(names)}: they measure operators on the host, such as "
                          f"matmul:512x512x512xf32; expected one instead of {program} on {device}")


def _peer_lines(found: Evaluation, names: list[str], program: str) -> list[str]:
    """The best sample of each library, and how many times as long its samples are."""
    from motet.lab.peers import measure_peers
    from motet.measuring.ratios import ratio_of
    from motet.tools.show import show_seconds

    lines: list[str] = []
    for each in measure_peers(program, names, found.threads, len(found.samples)):
        told = each.reason
        if each.samples:
            ratio = ratio_of(zip(each.samples, found.samples, strict=False))
            told = f"min {show_seconds(min(each.samples))}, {ratio.median:.2f} times as long{ratio.span}"
        lines.append(f"  {each.name:<13} {told}")
    return lines


def evaluation_lines(found: Evaluation) -> list[str]:
    """The figures as text."""
    from motet.tools.show import show_bytes, show_rate, show_seconds

    record = found.record
    calls = "1 call" if found.number == 1 else f"{found.number} calls"
    threads = f", {found.threads} threads" if record.target.startswith("host") else ""  # others have no such choice
    lines = [
        f"{record.name} ({record.about}) of {record.subject}, {record.target} on {record.machine}",
        f"  samples       {', '.join(show_seconds(each) for each in found.samples)}; "
        f"{calls} each{threads}",
        f"  time          min {show_seconds(found.seconds)}, median {show_seconds(found.median)}",
    ]
    if record.flops:
        share = "" if found.of_peak is None else f", {found.of_peak:.0%} of the peak"
        lines.append(f"  computing     {show_rate(record.flops / found.seconds, 'FLOP/s')}{share}")
    if record.bytes:
        share = "" if found.of_bandwidth is None else f", {found.of_bandwidth:.0%} of the memory bandwidth"
        lines.append(f"  moving        {show_rate(record.bytes / found.seconds, 'B/s')}{share}")
    if found.limit:
        lines.append(f"  limit         {show_seconds(found.limit)}, {found.seconds / found.limit:.2f} times as long")
    for name, count in found.counters.items():
        lines.append(f"  {name:<13} {count if isinstance(count, str) else f'{count:,.6g}'}")
    lines.append(f"  code          {show_bytes(record.code_size)}")
    return [*lines, *(f"  validated     {line}" for line in found.validated or ("no",))]
