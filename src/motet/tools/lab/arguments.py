"""Arguments that commands of `motet lab` share, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.errors import OptionError

if TYPE_CHECKING:
    from motet.compiler.kernels.microkernel_code import Microkernel
    from motet.compiler.kernels.schedule import KernelSchedule
    from motet.lab.subject import KernelSubject

LabProgramArgument = Annotated[str, typer.Argument(
    metavar="PROGRAM", show_default=False,
    help="An operator, such as matmul:512x512x512xf32, or the file of a program.",
)]
Kernel = Annotated[str, typer.Option(
    "--kernel", metavar="NAME", show_default=False,
    help="The kernel, by its name or key; by default the one with the most work.",
)]
LabDevice = Annotated[str, typer.Option(
    "--device", metavar="DEVICE", help="The device: host, host{cpu=x86-64-v3}, cuda:0, riscv:qemu, …",
)]
ScheduleText = Annotated[str, typer.Option(
    "--schedule", metavar="TEXT|@FILE", show_default=False,
    help='The schedule, as text (\'{"i": {"parallelize"}, "j#16": {"vectorize"}}\') or as @FILE; by default the '
    "compiler's choice.",
)]
Microkernels = Annotated[list[str] | None, typer.Option(
    "--microkernel", metavar="FILE", show_default=False,
    help="A microkernel that the schedule names (tensorize), in YAML; it is compared with its meaning first.",
)]
LabThreads = Annotated[int | None, typer.Option(
    "--threads", metavar="N", min=1, show_default=False, help="The threads of a call on the host; by default all.",
)]


def read_text(text: str) -> str:
    """`text`, or the content of the file `@FILE`. Raises OptionError if it cannot be read."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"--schedule {text}: cannot be read: {reason.lower()}") from None


def read_schedule(text: str, subject: KernelSubject, microkernels: Sequence[str] = ()) -> KernelSchedule:
    """The schedule of `--schedule`, or the compiler's choice."""
    if not text:
        return subject.chosen
    return subject.parse(read_text(text), read_microkernels(microkernels, subject))


def read_microkernels(files: Sequence[str], subject: KernelSubject) -> list[Microkernel]:
    """The microkernels of `--microkernel`, accepted for the subject's target."""
    from motet.lab.microkernels import accepted, read_microkernel

    return [accepted(read_microkernel(file), subject) for file in files]
