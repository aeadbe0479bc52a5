"""The commands of `motet`, one module for each, and the conversion of errors to messages and exit statuses."""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from motet.errors import MotetError
from motet.tools import (
    arguments,
    bench,
    c_library,
    compile,
    completion,
    devices,
    doctor,
    export,
    generate,
    inspect,
    new_codegen,
    new_device,
    opt,
    run,
    serve,
    tune,
)
from motet.tools.lab.app import make_lab_app

HELP = """Compile a tensor program once, ahead of time, into one file; run that file without a compiler.

\b
Examples:
  motet compile model.onnx -o model.motet
  motet run model.motet --input 1x3x224x224xf32=random:0
  motet bench model.motet
  motet inspect model.motet

motet COMMAND --help explains a command.
"""


_UsageError: Any = typer.BadParameter.__base__  # click's, which newer versions of typer contain


class Commands(TyperGroup):
    """The group of commands; prints an error as one line and sets the exit status."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except _UsageError as error:
            _refuse(error, info_name or "motet")

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            _refuse(error, f"{ctx.command_path} {ctx.invoked_subcommand or ''}".rstrip())
        except MotetError as error:
            _say(f"error: {error}")
            raise typer.Exit(1) from None
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if module in ("", "motet"):  # a defect
                raise
            _say(f"error: {module}, which this needs, is not installed; {doctor.advice(module)}")
            raise typer.Exit(1) from None
        except MemoryError as error:  # numpy's message says what the memory was for
            _say(f"error: not enough memory{f': {error}' if str(error) else ''}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:  # typer would report it differently
            _say("interrupted")
            raise typer.Exit(128 + signal.SIGINT) from None


def _refuse(error: Any, command: str) -> NoReturn:
    """Prints what is wrong with a command line, with the options that are spelt alike; `command` is the one that is
    read, if the error does not know."""
    if error.ctx is not None:
        command = error.ctx.command_path
        if error.message == error.ctx.get_help():  # nothing was given
            raise error
    near = getattr(error, "possibilities", None)
    said = (error.message if near else error.format_message()).rstrip(".")
    said = f"{said}. Did you mean {' or '.join(sorted(near))}?" if near else said
    said = re.sub(r"\. Did you mean (.+)\?$", r" (did you mean \1?)", said)
    _say(f"error: {said[:1].lower()}{said[1:]}; see {command} --help")
    raise typer.Exit(2) from None


def _say(line: str) -> None:
    """Prints one line on standard error; joins a message of several lines (a compiler's notes)."""
    typer.echo("; ".join(part.strip() for part in line.splitlines() if part.strip()), err=True)


def _show_version(wanted: bool) -> None:
    if wanted:
        from motet.version import VERSION

        typer.echo(f"motet {VERSION}")
        raise typer.Exit(0)


def _global_options(
    version: Annotated[bool, typer.Option(
        "--version", help="Print the version and exit.", callback=_show_version, is_eager=True,
    )] = False,
) -> None:
    """Options before the command."""


def make_app(only: str | None = None) -> typer.Typer:
    """The command line as a typer application: all commands, or `only` that one, because typer needs a tenth of a
    second to read the parameters of all. A name that is not among them gives all."""
    app = typer.Typer(
        name="motet", cls=Commands, help=HELP, no_args_is_help=True, add_completion=False,
        # Plain help: importing rich would take longer than everything else.
        rich_markup_mode=None, pretty_exceptions_enable=False, callback=_global_options,
    )
    commands: dict[str, tuple[Callable[..., None], str]] = {
        "compile": (compile.compile_program, compile.HELP), "run": (run.run_function, run.HELP),
        "bench": (bench.bench_function, bench.HELP), "devices": (devices.show_devices, devices.HELP),
        "inspect": (inspect.inspect_artifact, inspect.HELP), "generate": (generate.generate_text, generate.HELP),
        "serve": (serve.serve_models, serve.HELP), "tune": (tune.tune_artifact, tune.HELP),
        "export": (export.export_function, export.HELP), "c-library": (c_library.write_library, c_library.HELP),
        "opt": (opt.run_passes, opt.HELP),
        "doctor": (_doctor, doctor.HELP), "new-device": (new_device.write_device, new_device.HELP),
        "new-codegen": (new_codegen.write_codegen, new_codegen.HELP),
        "completion": (completion.print_script, completion.HELP),
    }
    for name in [only] if only in commands else commands:
        function, text = commands[name]
        epilog = compile.option_list() if name == "compile" else None
        app.command(name, help=text, epilog=epilog)(function)
    if only not in commands:
        app.add_typer(make_lab_app(), name="lab")
    return app


def _doctor(json: arguments.Json = False) -> None:
    raise typer.Exit(doctor.run_doctor(["--json"] if json else []))


class _WarningPrinter(logging.Handler):
    """Prints Motet's warnings as lines on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        _say(f"warning: {record.getMessage()}")


def run_app(context: object) -> None:
    """Runs the command of this process; `context` becomes the typer context's object."""
    logging.getLogger("motet").addHandler(_WarningPrinter(logging.WARNING))
    completion.prepare_completion()
    make_app(next(iter(sys.argv[1:]), None))(prog_name="motet", obj=context)
