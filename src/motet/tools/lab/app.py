"""motet lab: the group of commands that evaluate, search, keep and explain schedules of kernels."""

from __future__ import annotations

import typer

from motet.tools.lab import diff, display, evaluate, explain, explore, records, show

HELP = """Evaluate, search, keep and explain schedules of kernels.

A program is a file (MLIR, ONNX, StableHLO, IR), or an operator: matmul:512x512x512xf32, conv2d:1x56x56x64,3x3x64x64.

\b
Examples:
  motet lab show examples/fragment.mlir
  motet lab evaluate matmul:512x512x512xf32 --counters instructions,cycles
  motet lab explore matmul:512x512x512xf32 --trials 64 --db lab.db
  motet compile model.onnx --option schedules=lab.db
"""


def make_lab_app() -> typer.Typer:
    """The group as a typer application."""
    app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command("show", help=show.HELP)(show.show_kernels)
    app.command("evaluate", help=evaluate.HELP)(evaluate.evaluate_schedule)
    app.command("explore", help=explore.HELP)(explore.explore_schedules)
    app.command("explain", help=explain.HELP)(explain.explain_kernel)
    app.command("display", help=display.HELP)(display.display_records)
    app.command("diff", help=diff.HELP)(diff.compare_records)
    app.add_typer(records.make_records_app(), name="records")
    return app
