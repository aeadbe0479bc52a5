"""motet lab show: the kernels of a program, their loops, their schedules, and their code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from motet.errors import OptionError
from motet.tools.lab import arguments

if TYPE_CHECKING:
    from motet.compiler.build.listing import ListedKernel

HELP = """Show the kernels of a program: their loops, the schedule that the compiler chooses, and their code.

\b
Examples:
  motet lab show examples/fragment.mlir
  motet lab show matmul:512x512x512xf32 --code assembly
"""

LEVELS = ("program", "normalised", "kernels", "llvm", "assembly")


def show_kernels(
    program: arguments.LabProgramArgument,
    kernel: arguments.Kernel = "",
    device: arguments.LabDevice = "host",
    code: Annotated[str, typer.Option(
        "--code", metavar="LEVEL", show_default=False,
        help=f"Show the code too, at a level of the compiler: {', '.join(LEVELS)}, or all.",
    )] = "",
    schedule: arguments.ScheduleText = "",
) -> None:
    if code not in ("", "all", *LEVELS):
        raise OptionError(f"--code {code}: no such level; expected one of {', '.join(LEVELS)}, all")
    import tempfile
    from pathlib import Path

    from motet.compiler import service
    from motet.lab.subject import expect_legal, open_program, request_with, subject_of

    opened = open_program(program, device)
    subject = subject_of(opened, kernel) if kernel or schedule else None
    shown = [subject.listed] if subject is not None else list(opened.kernels)
    lines = [f"{opened.text} for {service.targets_of(opened.request)[0]}, on {opened.device}"]
    for each in shown:
        lines += ["", *kernel_lines(each)]
    typer.echo("\n".join(lines))
    if not code and not schedule:
        typer.echo("\ncode: --code LEVEL shows it, at " + ", ".join(LEVELS))
        return
    with tempfile.TemporaryDirectory(prefix="motet-lab-") as folder:
        request = opened.request
        if schedule and subject is not None:
            given = arguments.read_schedule(schedule, subject)
            expect_legal(subject, given)
            request = request_with(subject, given, Path(folder))
        for level in LEVELS if code == "all" else (code or "llvm",):
            typer.echo(f"\n-- {level}\n{service.emit(request, level).rstrip()}")


def kernel_lines(listed: ListedKernel) -> list[str]:
    """A kernel's facts, its loops and today's schedule."""
    from motet.compiler.kernels.loop_names import loop_names
    from motet.compiler.kernels.schedule import LaunchesSchedule, encode_schedule
    from motet.compiler.schedule_text.launches import choice_text, launches_text
    from motet.lab.language import format_schedule
    from motet.tools.show import show_computed

    lines = [f"kernel {listed.name}: {listed.about}"]
    if listed.names:
        lines.append(f"  computes  {show_computed(listed.names)}")
    if listed.kernel is None or listed.schedule is None:
        return [*lines, f"  no schedule: {listed.reason}"]
    lines += [f"  key       {listed.key}", f"  work      {listed.flops:,} operations, {listed.bytes:,} bytes"]
    names = loop_names(listed.kernel)
    for name, value in zip(names.values, listed.kernel.values, strict=True):
        shape = "x".join([*map(str, value.shape), value.dtype])
        lines.append(f"  {value.role:<9} {name}: {shape}")
    for number, (stage, dims) in enumerate(zip(listed.kernel.stages, names.dims, strict=True)):
        loops = ", ".join(
            f"{dim}={size} {kind}" for dim, size, kind in zip(dims, stage.sizes, stage.iterators, strict=True)
        )
        lines.append(f"  stage {number}   {loops}")
    kind = encode_schedule(listed.schedule)["class"]
    if isinstance(listed.schedule, LaunchesSchedule) and listed.choices:
        lines.append(f"  schedule  {launches_text(listed.schedule, listed.choices)}")
        lines += [f"  launch {number}  {choice_text(each)}" for number, choices in enumerate(listed.choices)
                  for each in choices]
    else:
        lines.append(f"  schedule  {format_schedule(listed.schedule, listed.kernel)}")
    return [*lines, f"  class     {kind}"]
