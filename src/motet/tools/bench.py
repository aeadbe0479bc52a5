"""motet bench: how fast a function runs."""

from __future__ import annotations

from typing import Annotated

import typer

from motet.tools import arguments

HELP = """Measure how long a call takes.

\b
Examples:
  motet bench model.motet
  motet bench model.mlir --input 64x128xf32=random:1 --repeat 20 --threads 1
  motet bench model.motet --json
"""

def bench_function() -> None:
    pass
