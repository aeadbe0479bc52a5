"""motet c-library: builds the library by which programs in C run artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HELP = """Build the library by which programs in C run artifacts on this kind of processor, without Python.

Writes motet.h and libmotet.so, with the C compiler of this machine.

\b
Examples:
  motet c-library -o motet-c
  motet c-library -o motet-c --cc "clang -O3"
"""


# The parameters of this function are the options of `motet c-library`, read by typer.
def write_library(
    output: Annotated[str, typer.Option("--output", "-o", metavar="FOLDER", help="Where to write.")] = "motet-c",
    cc: Annotated[str, typer.Option(metavar="COMMAND", help="The C compiler, and options for it.")] = "cc",
) -> None:
    from motet.c_library.build import HEADER, build_library
    from motet.tools.show import show_bytes

    library = build_library(Path(output), cc)
    typer.echo(f"{library}: {show_bytes(library.stat().st_size)}, and {HEADER}")
