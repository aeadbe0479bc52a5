"""motet lab display: pages about the records of a database, or of XTC's results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.errors import OptionError

HELP = """Write an HTML page (or PNG) about a database: distribution of times, the best over trials, parallel
coordinates of the parameters, and the roofline. The page needs no network. XTC's results (CSV) can be read too.

\b
Examples:
  motet lab display lab.db -o lab.html
  motet lab display results.csv -o results.html
  motet lab display lab.db -o lab.png              if matplotlib is installed
"""


def display_records(
    file: Annotated[str, typer.Argument(metavar="DB|CSV", show_default=False, help="A database, or XTC's results.")],
    output: Annotated[str, typer.Option(
        "--output", "-o", metavar="FILE", show_default=False, help="The page (.html) or the picture (.png).",
    )],
    kernel: Annotated[str, typer.Option(
        "--kernel", metavar="KEY", show_default=False, help="Only of this kernel.",
    )] = "",
) -> None:
    from motet.artifact.files import write_atomically
    from motet.lab.display.charts import charts_of
    from motet.lab.display.page import page_of
    from motet.lab.display.picture import picture_of
    from motet.lab.display.trials import read_trials
    from motet.tools.origin import origin

    kind = Path(output).suffix
    if kind not in (".html", ".png"):
        raise OptionError(f"--output {output}: expected a name that ends in .html or .png")
    groups = [group for group in read_trials(file) if kernel in ("", group.key)]
    if not groups:
        raise OptionError(f"{file}: no records{f' of kernel {kernel}' if kernel else ''}; motet lab records list shows "
                          "which there are")
    charts = [charts_of(group) for group in groups]
    made = origin()
    facts = [("page", f"{made.date}, on {made.machine}"), ("command", made.command)]
    data = page_of(file, charts, facts).encode() if kind == ".html" else picture_of(charts)
    write_atomically(Path(output), [memoryview(data)])
    typer.echo(f"{output}: {sum(len(group.trials) for group in groups)} trials of {len(groups)} kernels")
