"""motet lab records: lists, exports, imports and merges the records of databases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.errors import OptionError
from motet.tools import arguments as common

if TYPE_CHECKING:
    from motet.records.record import Record

HELP = "List, export, import and merge records."

_Database = Annotated[str, typer.Argument(metavar="DB", show_default=False, help="A database.")]


def make_records_app() -> typer.Typer:
    """The group as a typer application."""
    app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command("list")(list_records)
    app.command("best")(best_records)
    app.command("export")(export_records)
    app.command("import")(import_records)
    app.command("schedules")(write_schedules)
    return app


def list_records(
    db: _Database,
    kernel: Annotated[str, typer.Option("--kernel", metavar="KEY", show_default=False, help="Of this kernel.")] = "",
    target: Annotated[str, typer.Option("--target", metavar="NAME", show_default=False, help="For this target.")] = "",
    most: Annotated[int, typer.Option("--most", metavar="N", min=1, help="The most records to show.")] = 20,
    json: common.Json = False,
) -> None:
    """List records, the fastest first."""
    from motet.records.database import Database

    with Database(db) as database:
        found = database.query(**{name: value for name, value in (("kernel", kernel), ("target", target)) if value})
    _show(found[:most], json)
    if len(found) > most and not json:
        typer.echo(f"… and {len(found) - most} more; --most N shows them")


def best_records(db: _Database, json: common.Json = False) -> None:
    """List the fastest record of each kernel and target."""
    from motet.records.database import Database

    with Database(db) as database:
        _show(database.best(), json)


def export_records(
    db: _Database,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The file of JSON lines.")],
) -> None:
    """Write all records as lines of JSON."""
    from motet.records.database import Database

    with Database(db) as database:
        typer.echo(f"{database.export(output)} records written to {output}")


def import_records(
    db: _Database,
    files: Annotated[list[str], typer.Argument(
        metavar="FILE...", show_default=False,
        help="Exported records, other databases, or tunings of motet tune, which become records of their forms.",
    )],
) -> None:
    """Add the records of other files."""
    from motet.lab.tunings import is_tunings, records_of_tunings
    from motet.records.database import Database, is_database, read_lines

    for file in files:
        if not Path(file).exists():
            raise OptionError(f"{file}: no such file")
    with Database(db, create=True) as database:
        for file in files:
            if is_database(file):
                with Database(file) as other:
                    records = other.query()
            elif is_tunings(file):
                records = records_of_tunings(file)
            else:
                records = read_lines(file)
            typer.echo(f"{file}: {database.add(records)} of {len(records)} records are new or faster")


def write_schedules(
    db: _Database,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The file of schedules.")],
) -> None:
    """Write the best schedule of each kernel as a file for --option schedules=FILE."""
    from motet.artifact.files import write_atomically
    from motet.records.best_schedules import best_schedules

    write_atomically(Path(output), [memoryview(best_schedules(db))])


def _show(records: Sequence[Record], json: bool) -> None:
    import msgspec

    from motet.records.record import canonical
    from motet.tools.show import show_seconds, show_table

    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(records), indent=1).decode())
        return
    rows = [
        [each.kernel[:8], each.name, each.target, show_seconds(each.seconds) if each.seconds else "failed",
         "yes" if each.validated else "no", each.origin, each.subject, canonical(each.schedule)[:80]]
        for each in records
    ]
    typer.echo("\n".join(show_table(
        ["key", "kernel", "target", "time", "validated", "origin", "program", "schedule"], rows)))
