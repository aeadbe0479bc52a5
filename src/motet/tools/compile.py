"""motet compile: compiles a program to an artifact; or, with --emit, prints the program at a stage of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from motet.errors import OptionError
from motet.tools import arguments
from motet.tools.opening import STANDARD_INPUT, make_request, reason

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.compiler.job import ListedWait
    from motet.compiler.service import CompileRequest

_NAMES = 8  # of kernels in a line

HELP = """Compile a program into an artifact.

The result is one file with code for every requested device; it runs without a compiler.

\b
Examples:
  motet compile model.onnx                         writes model.motet
  motet compile model.mlir -o out.motet --device host{cpu=x86-64-v3}
  motet compile model.mlir --emit llvm             prints the code of each kernel
  motet compile model.onnx --option tune-schedule=measure
                                                   runs each function here in several schedules (its kernels one
                                                   after the other or at once, in other orders, with more memory)
                                                   and keeps the fastest; motet inspect shows the measurements
  motet compile rows.mlir --option tune-schedule=measure --option tune-inputs=64x128xf32,128xf32
                                                   the same for dynamic extents: with inputs of these shapes
  motet compile model.onnx --option keep-source=true
                                                   keeps the model in the artifact, for motet run --verify; weights
                                                   that Motet uses unchanged are stored once, all others twice
  motet compile model.mlir --print-changed -o out.motet
                                                   prints the program after each pass that changes it; motet opt
                                                   runs the same passes one by one
  motet compile model.onnx --prove                 proves that no schedule has a race, and prints what was compared
  motet compile kernels.mlir --prove --json        the same as JSON, and which waits of asynchronous launches are
                                                   missing or not needed
"""


def option_list() -> str:
    """The options of the compiler, for the end of the help."""
    return "\n".join(["\b", "Options of the compiler, by --option KEY=VALUE:", *_option_lines()])


def _option_lines() -> list[str]:
    import textwrap

    from motet.options import option_help

    lines: list[str] = []
    for name, text in option_help().items():
        first, *others = textwrap.wrap(text, 76 - 20)
        lines += [f"  {name:<18}{first}", *(" " * 20 + line for line in others)]
    return lines


def _list_options(given: list[str] | None) -> list[str] | None:
    """Prints the options of the compiler for the option `help`, which needs no program."""
    if "help" in (given or []):
        typer.echo("\n".join(_option_lines()))
        raise typer.Exit(0)
    return given


Emit = Annotated[str | None, typer.Option(
    metavar="STAGE", show_default=False,
    help="Print what this stage makes of the program instead: program, normalised, kernels, scheduled, "
    "llvm, assembly, …; 'help' lists them (with any INPUT).",
)]
Prove = Annotated[bool, typer.Option(
    "--prove", help="Prove for every schedule that all orders of its commands that it allows give the same results, "
    "and print what was proved; fail, without writing the artifact, if that is impossible. For asynchronous operations "
    "of the dialect gpu, also list the waits that are missing and those that are not needed.",
)]
ProofsAsJson = Annotated[bool, typer.Option(
    "--json", help="Print what --prove prints as JSON, for programs to read, and nothing else.",
)]
PrintAfter = Annotated[list[str] | None, typer.Option(
    metavar="PASS", show_default=False,
    help="Print the program on standard error after each run of this pass, such as hoist-constants. May be given "
    "several times.",
)]
PrintChanged = Annotated[bool, typer.Option(
    "--print-changed", help="Print the program on standard error after each pass that changes it, and the names of "
    "those that do not.",
)]
TimePasses = Annotated[bool, typer.Option(
    "--time-passes", help="Print on standard error how long each pass takes.",
)]


# The parameters of this function are the options of `motet compile`, read by typer.
def compile_program(
    context: typer.Context,
    input: arguments.Program,
    output: Annotated[str | None, typer.Option(
        "--output", "-o", metavar="OUT", show_default=False,
        help="Where to write; by default INPUT's name with .motet in the current folder, or standard output "
        "with --emit.",
    )] = None,
    device: arguments.Devices = None,
    emit: Emit = None,
    format: arguments.Format = "auto",
    option: Annotated[list[str] | None, typer.Option(
        metavar="KEY=VALUE", show_default=False, callback=_list_options, is_eager=True,
        help="An option of the compiler, see below; 'help' lists them. May be given several times.",
    )] = None,
    parameters: Annotated[str, typer.Option(
        metavar="embedded|external", help="Whether large constants are stored in the artifact or next to it.",
    )] = "embedded",
    placement: arguments.Placement = "default",
    place: arguments.Places = None,
    mesh: arguments.Mesh = "",
    shard: arguments.Shards = None,
    no_cache: Annotated[bool, typer.Option(
        "--no-cache", help="Do not read or write the cache.",
    )] = False,
    prove: Prove = False,
    json: ProofsAsJson = False,
    print_after: PrintAfter = None,
    print_changed: PrintChanged = False,
    time_passes: TimePasses = False,
) -> None:
    if parameters not in ("embedded", "external"):
        raise OptionError(f"--parameters {parameters}: expected embedded or external")
    if json and not prove:
        raise OptionError("--json: prints what --prove proves; expected --prove, too")
    if emit is not None:
        _check_stage(emit)
    from motet.compiler.targets.device_flags import parse_device_flags

    request = make_request(
        input, format=format, devices=parse_device_flags(device or []), options=option or [], cache=not no_cache,
        placement=placement, places=place or [])
    request = _with_reports(request, print_after or [], print_changed, time_passes)
    request = replace(request, mesh=mesh, shards=tuple(shard or []))
    if emit is not None:
        _print_stage(request, emit, output)
        return
    path = Path(output) if output is not None else default_output(input)
    _check_writable(path)
    from motet.compiler import service
    from motet.compiler.process.prefork import Standby
    from motet.tools.progress import Progress

    worker = context.obj if isinstance(context.obj, Standby) else None
    with Progress(f"compiling {request.path}") as progress:
        artifact = service.compile(request, progress.update, worker)
    if prove:
        _print_proofs(artifact, service.list_waits(request), json)
    save(artifact, path, "external" if parameters == "external" else "embedded")
    _report(artifact, path, dict(request.options).get("schedules"), quiet=json)


def _report(artifact: Artifact, path: Path, schedules: str | None, quiet: bool) -> None:
    """Prints what was written, with the file of schedules that was used; if it is to be `quiet`, only warnings."""
    from motet.tools.show import show_bytes
    from motet.tools.slow_kernels import warn_of_slow_kernels

    warn_of_slow_kernels(artifact)
    if quiet:
        return
    names = ", ".join(each.name for each in artifact.callable_functions)
    typer.echo(f"{path}: {show_bytes(path.stat().st_size)}, functions: {names}")
    if schedules:
        typer.echo(_records(artifact, schedules), nl=False)


def _records(artifact: Artifact, file: str) -> str:
    """A line that says which kernels got the schedule of a record; "" for a file of schedules."""
    from motet.artifact.kernel_schedules import FOR_EXTENTS, schedules_of
    from motet.records.database import is_database

    if not is_database(file):
        return ""
    every = schedules_of(artifact)
    names = list(dict.fromkeys(name for each in every if each.origin for name in each.names))
    near = {name for each in every if FOR_EXTENTS in each.origin for name in each.names}
    count = len({name for each in every for name in each.names})
    more = f", … ({len(names) - _NAMES} more)" if len(names) > _NAMES else ""
    listed = f": {', '.join(names[:_NAMES])}{more}; motet inspect --schedules shows them" if names else ""
    told = f", {len(near)} of them by the nearest record of their operators" if near else ""
    return f"{file}: records for {len(names)} of {count} kernels{told}{listed}\n"


def _with_reports(
    request: CompileRequest, print_after: Sequence[str], print_changed: bool, time_passes: bool
) -> CompileRequest:
    if not print_after and not print_changed and not time_passes:
        return request
    from motet.compiler.job import PassReports

    return replace(request, reports=PassReports(tuple(print_after), print_changed, time_passes))


def _print_proofs(artifact: Artifact, waits: Sequence[ListedWait], json: bool) -> None:
    """Prints the proof of each schedule, and the waits. Raises CompileError if the checker cannot prove one."""
    from motet.compiler.scheduling.checker import check_manifest
    from motet.tools.show import show_table

    proofs = check_manifest(artifact.manifest)
    if json:
        import msgspec

        text = msgspec.json.encode({"schedules": proofs, "waits": waits})
        typer.echo(msgspec.json.format(text, indent=2).decode())
        return
    rows = [
        [proof.function, proof.target, f"{proof.commands:,}", f"{proof.pairs:,}", f"{proof.buffers:,}"]
        for proof in proofs
    ]
    typer.echo("proved: every order of commands that a schedule allows gives the same results")
    typer.echo("\n".join(show_table(["function", "target", "commands", "pairs", "buffers"], rows)))
    for wait in waits:
        typer.echo(f"{wait.kind}: {wait.place}: {wait.text}")


def default_output(input: str) -> Path:
    """The default name of the artifact: `net.motet` in the current folder for `models/net.onnx`."""
    if input == STANDARD_INPUT:
        raise OptionError("-: standard input has no name to derive one from; name the artifact: -o OUT.motet")
    return Path(Path(input).with_suffix(".motet").name)


def save(artifact: Artifact, path: Path, parameters: Literal["embedded", "external"]) -> None:
    """Writes `artifact` to `path` atomically, with its parameters embedded or in a file next to it."""
    if parameters == "embedded" or not artifact.manifest.parameters:
        artifact.save(path)
        return
    from motet.artifact.reader import PARAMETERS
    from motet.artifact.writer import write_artifact

    manifest = artifact.manifest
    write_artifact(
        manifest,
        {name: artifact.member(name) for name in manifest.members if name != PARAMETERS},
        {parameter.key: artifact.parameter(i) for i, parameter in enumerate(manifest.parameters)},
        path,
        external_parameters=True,
    )


def _check_writable(path: Path) -> None:
    """Checks that the artifact can be written, before the work is done."""
    try:
        is_folder, has_folder = path.is_dir(), path.parent.is_dir()
    except OSError as error:  # such as a name that is too long
        raise OptionError(f"{path}: cannot be written: {reason(error)}") from None
    if is_folder:
        raise OptionError(f"{path}: cannot be written: is a directory; expected the name of a file")
    if not has_folder:
        raise OptionError(f"{path}: cannot be written: there is no folder {path.parent}")


def _check_stage(stage: str) -> None:
    from motet.compiler import service

    if stage == "help":
        from motet.tools.show import show_table

        rows = [[name, text] for name, text in service.STAGES.items()]
        typer.echo("\n".join(show_table(["stage", "what it prints"], rows)))
        raise typer.Exit(0)
    if stage not in service.STAGES:
        raise OptionError(f"--emit {stage}: no such stage; expected one of {', '.join(service.STAGES)}")


def _print_stage(request: CompileRequest, stage: str, output: str | None) -> None:
    from motet.compiler import service

    write_text(service.emit(request, stage), output)


def write_text(text: str, output: str | None) -> None:
    """Prints `text`, or writes it to the file `output`."""
    text = text if text.endswith("\n") else text + "\n"
    if output in (None, STANDARD_INPUT):
        typer.echo(text, nl=False)
        return
    try:
        Path(output).write_text(text)
    except OSError as error:
        raise OptionError(f"{output}: cannot be written: {reason(error)}") from None
