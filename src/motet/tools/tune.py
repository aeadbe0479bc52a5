"""motet tune: measures the candidates in an artifact, and keeps the fastest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.errors import OptionError
from motet.tools import arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from motet.artifact.reader import Artifact
    from motet.runtime.tuning import Verdict

HELP = """Choose the fastest forms of an artifact's kernels by measuring them on a device.

The artifact must have been compiled with --option tune=candidates, on any machine, and contains several forms of each
kernel. The measurements are written to a file of tunings, which compile takes with --option tuning=FILE, for this and
all other programs with the same kernels; the artifact itself can be rewritten with the fastest forms only. No compiler
is needed for this.

\b
Examples:
  motet compile model.onnx --device cuda --option tune=candidates -o model.motet
  motet tune model.motet --device cuda:0 -o tunings.json         measures, and writes or completes tunings.json
  motet tune model.motet --device cuda:0 --prune fast.motet      writes an artifact with the fastest forms
  motet compile model.onnx --device cuda --option tuning=tunings.json
"""


def tune_artifact(
    file: Annotated[str, typer.Argument(
        metavar="FILE", show_default=False, help="An artifact compiled with --option tune=candidates.",
    )],
    device: Annotated[str, typer.Option(
        "--device", metavar="DEVICE", show_default=False,
        help="The physical device to measure on, such as cuda:0; by default the first one that the kernels are for.",
    )] = "",
    output: Annotated[str | None, typer.Option(
        "--output", "-o", metavar="FILE", show_default=False,
        help="The file of tunings. Its entries for other kernels and devices are kept.",
    )] = None,
    prune: Annotated[str | None, typer.Option(
        metavar="OUT", show_default=False, help="Write the artifact with the fastest forms only; may be FILE itself.",
    )] = None,
    shapes: Annotated[str, typer.Option(
        metavar="SHAPES", show_default=False,
        help="Shapes of the inputs for measurements with dynamic extents: 64x128xf32,128xf32, for several functions "
        "NAME:SHAPES;NAME:SHAPES. Kernels of functions without shapes are not measured.",
    )] = "",
    json: arguments.Json = False,
) -> None:
    from motet.artifact.candidates import pruned, read_index
    from motet.artifact.reader import Artifact
    from motet.artifact.tunings import Tunings, read_tunings
    from motet.artifact.writer import write_artifact

    if output is None and prune is None and not json:
        raise OptionError("what is to become of the measurements? expected -o FILE, --prune OUT or --json")
    artifact = Artifact.open(file)
    if not read_index(artifact):
        raise OptionError(f"{file}: it has one form of each kernel, so there is nothing to choose; expected an "
                          "artifact that was compiled with --option tune=candidates")
    earlier = read_tunings(output) if output is not None and Path(output).exists() else Tunings()
    verdicts = _measure(artifact, device, shapes)
    if output is not None:
        earlier.merged(verdict.tuning for verdict in verdicts if not verdict.skipped).write(output)
    if prune is not None:
        chosen = {(v.kernel.family, v.kernel.target, v.kernel.kernel): v.chosen for v in verdicts if not v.skipped}
        beside = artifact.manifest.external_parameters is not None
        write_artifact(*pruned(artifact, chosen), prune, external_parameters=beside)
    _show(verdicts, json)


def _measure(artifact: Artifact, device: str, shapes: str) -> list[Verdict]:
    from motet.artifact.candidates import read_index
    from motet.runtime.device import find_device, open_device
    from motet.runtime.tuning import tune_kernels
    from motet.tools.progress import Progress

    symbols = _symbols(artifact, shapes)
    opened = open_device(find_device(device or read_index(artifact)[0].family))
    try:
        with Progress(f"tuning {artifact.name}") as progress:
            return tune_kernels(artifact, opened, symbols, progress.update)
    finally:
        opened.close()


def _symbols(artifact: Artifact, shapes: str) -> Mapping[str, Mapping[str, int]]:
    """The values of the symbols of functions and regions that have none or whose extents `shapes` gives."""
    from msgspec import structs

    from motet.compiler.tuning.inputs import parse_inputs, region_symbols

    given = parse_inputs(shapes) if shapes else {}
    manifest = artifact.manifest
    known = [each for each in manifest.functions if not each.symbols or each.name in given or "" in given]
    return region_symbols(structs.replace(manifest, functions=known), given)


def _show(verdicts: Sequence[Verdict], json: bool) -> None:
    if json:
        import msgspec

        found = [{"kernel": v.kernel.kernel, "skipped": v.skipped} if v.skipped else v.tuning for v in verdicts]
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    from motet.tools.show import show_seconds, show_table

    rows: list[list[str]] = []
    for verdict in verdicts:
        generated, first = verdict.seconds[verdict.taken], verdict.seconds[0]
        if generated is None:
            rows.append([verdict.kernel.kernel, "-", verdict.skipped or "no form runs", "", ""])
            continue
        label, takes = verdict.kernel.candidates[verdict.taken].label, generated
        if verdict.library is not None:
            label, takes = f"{verdict.library.name}; behind it {label}", verdict.library.seconds
        gain = "" if first is None or takes == first else f"{first / takes:.2f}×"
        tried = sum(each is not None for each in verdict.seconds) + len(verdict.algorithms)
        rows.append([verdict.kernel.kernel, str(tried), label, show_seconds(takes), gain])
    typer.echo("\n".join(show_table(["kernel", "tried", "fastest form", "takes", "gain"], rows)))
