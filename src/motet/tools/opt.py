"""motet opt: runs passes on MLIR text and prints the result."""

from __future__ import annotations

from typing import Annotated

import typer

from motet.errors import OptionError
from motet.tools import arguments
from motet.tools.opening import STANDARD_INPUT, open_for_reading

HELP = """Run passes on MLIR and print the result.

Any pass of upstream MLIR, and Motet's own, in the text form of a pass pipeline. --device is for the passes
assign-devices and place.

\b
Examples:
  motet opt model.mlir --pipeline canonicalize,cse
  motet opt model.mlir --pipeline 'func.func(linalg-fuse-elementwise-ops)' -o fused.mlir
  motet opt model.mlir --pipeline read-devices,assign-devices,verify-devices --device gpu=cuda,@cpu --device cpu=host
"""


def run_passes(
    input: Annotated[str, typer.Argument(
        metavar="INPUT", help="MLIR text; - for standard input.", show_default=False,
    )],
    pipeline: Annotated[str, typer.Option(metavar="P", help="Passes, separated by commas.", show_default=False)],
    output: Annotated[str | None, typer.Option(
        "--output", "-o", metavar="OUT", show_default=False,
        help="Where to write; by default standard output.",
    )] = None,
    device: arguments.Devices = None,
) -> None:
    import sys

    from motet.compiler.targets.device_flags import parse_device_flags
    from motet.tools.compile import write_text

    if input == STANDARD_INPUT:
        data, file = sys.stdin.buffer.read(), "<stdin>"
    else:
        with open_for_reading(input) as stream:
            data, file = stream.read(), input
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"{file}: byte {error.start} is no UTF-8; expected MLIR text") from None
    from motet.compiler import service

    write_text(service.optimise(text, file, pipeline, parse_device_flags(device or [])), output)
