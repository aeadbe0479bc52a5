"""Renders the page: one self-contained HTML file that loads nothing from the network.

Text from files, names above all, is inserted by `safe`, or as JSON without characters that could open or close tags.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

from motet.artifact.files import atomic_file, unreadable
from motet.artifact.reader import Artifact
from motet.compiler.placement.machine import rates_of_families
from motet.compiler.placement.rates import RateTable, read_rates
from motet.errors import OptionError
from motet.tools.report.binding import ReportedDevice, bound_devices, traced_devices
from motet.tools.report.facts import Detail, FunctionFacts, details, gather
from motet.tools.report.graph import graph_svg
from motet.tools.report.measured import Trace, read_trace
from motet.tools.report.memory import memory_details, memory_html
from motet.tools.report.model import read_program
from motet.tools.report.roofline import roofline_html
from motet.tools.report.tables import contents_html, kernel_table
from motet.tools.report.timeline import moves, timeline_html
from motet.tools.report.writing import COLOURED, amount, colour, safe, share
from motet.tools.show import show_bytes, show_seconds, show_signature


def write_report(
    artifact: Artifact, file: str, target: str, bindings: Mapping[str, str], trace_file: str | None = None,
    rates_file: str | None = None,
) -> None:
    """Writes the page of `artifact`, read from `file`, to `target`. `bindings` are physical devices by the program's
    names; `trace_file` is a trace by `motet run --trace`, `rates_file` a file of `motet devices --measure`.

    Raises OptionError for an invalid trace or one of another program, and for an invalid file of rates; ArtifactError
    if `target` cannot be written.
    """
    trace = None if trace_file is None else read_trace(trace_file)
    page = render(artifact, Path(file).name, bindings, trace, _rates(rates_file))
    with atomic_file(Path(target)) as stream:
        stream.write(page.encode("utf-8", "replace"))


def _rates(path: str | None) -> RateTable:
    if path is None:
        return rates_of_families()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise OptionError(f"--rates {unreadable(Path(path), error)}; expected a file that motet devices --measure -o "
                          "FILE writes") from None
    return rates_of_families(read_rates(text, f"--rates {path}"))


def render(
    artifact: Artifact, title: str, bindings: Mapping[str, str], trace: Trace | None = None,
    rates: RateTable | None = None,
) -> str:
    """The page's text; `rates` are the rates of devices, by default the families'."""
    manifest = artifact.manifest
    if trace is not None and trace.function not in [signature.name for signature in manifest.functions]:
        raise OptionError(
            f"--trace {trace.path}: a trace of another program: it is of {trace.function}; {artifact.name} has "
            f"{', '.join(signature.name for signature in manifest.functions) or 'no functions'}"
        )
    known_rates = rates or rates_of_families()
    if trace is not None and trace.devices:
        devices = traced_devices(manifest, known_rates, trace.devices, trace.path)
    else:
        devices = bound_devices(manifest, bindings, known_rates, artifact.name)
    known: dict[str, Detail] = {}
    sections: list[str] = []
    for number, signature in enumerate(manifest.functions):
        own = trace if trace is not None and trace.function == signature.name else None
        program = read_program(manifest, signature, devices, None if own is None else own.shapes)
        facts = gather(program, own, f"f{number}")
        known |= details(facts) | moves(facts) | memory_details(facts)
        sections.append(_section(facts))
    return Template(_part("page.html")).substitute(
        title=safe(title), style=_part("page.css"), script=_part("page.js"), data=_json(known),
        subtitle=f"{safe(show_bytes(len(artifact.data)))}, made by {safe(manifest.producer)}"
        + ("" if trace is None else f"; measured: {safe(Path(trace.path).name)}"),
        notes="".join(f'<p class="note">{safe(text)}</p>' for text in _notes(devices)),
        legend=_legend(), functions="".join(sections), contents=contents_html(manifest, devices),
    )


def _part(name: str) -> str:
    return resources.files("motet.tools.report").joinpath(name).read_text("utf-8")


def _json(known: Mapping[str, Detail]) -> str:
    """JSON for a script element: `<` is escaped."""
    text = json.dumps(known, separators=(",", ":"), ensure_ascii=False)
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _notes(devices: list[ReportedDevice]) -> list[str]:
    return list(dict.fromkeys(f"@{bound.name}: {bound.note}" if bound.name else bound.note
                              for bound in devices if bound.note))


def _legend() -> str:
    return "".join(f'<span><i class="dot {colour(kind)}"></i>{kind}</span>' for kind in COLOURED)


def _section(facts: FunctionFacts) -> str:
    signature, symbols = facts.program.signature, facts.program.symbols
    extents = ""
    if symbols:
        given = ", ".join(f"{name} = {value}" for name, value in symbols.items())
        extents = f'<p class="note">Extents known only in a call; sizes here are for {safe(given)}.</p>'
    tiles = "".join(
        f'<div class="tile"><b>{safe(value)}</b><span>{safe(name)}</span></div>' for name, value in _tiles(facts)
    )
    return (
        f'<section class="function" id="{facts.key}"><h2>{safe(signature.name)}</h2>'
        f"<p><code>{safe(show_signature(signature))}</code></p>{extents}"
        f'<div class="tiles">{tiles}</div>'
        '<h3>Graph</h3><div class="panes"><div class="canvas"><div class="tools">'
        '<button data-zoom="in" title="zoom in">+</button><button data-zoom="out" title="zoom out">−</button>'
        '<button data-zoom="fit">fit</button><button data-zoom="one">1:1</button></div>'
        f'{graph_svg(facts)}</div><aside class="details"><p class="quiet">Click a node, a bar or a buffer for what is '
        "known of it. Drag to move, turn the wheel with ctrl to zoom.</p></aside></div>"
        '<h3>Timeline <span class="tools"><button data-time="in" title="wider">+</button>'
        '<button data-time="out" title="narrower">−</button></span></h3>'
        f"{timeline_html(facts)}<h3>Memory plan</h3>{memory_html(facts)}"
        f"<h3>Kernels</h3>{kernel_table(facts)}{roofline_html(facts)}</section>"
    )


def _tiles(facts: FunctionFacts) -> list[tuple[str, str]]:
    operations = facts.program.operations
    kernels = [number for number, operation in enumerate(operations) if operation.kind in ("kernel", "copy")]
    flops = sum(operations[number].flops for number in kernels)
    limit = sum(facts.limit(number) for number in kernels)
    moved = sum(operation.bytes for operation in operations if operation.kind == "transfer")
    tiles = [("predicted", show_seconds(facts.prediction.seconds))]
    elapsed = facts.elapsed
    if elapsed is not None:
        tiles.append(("measured", show_seconds(elapsed)))
    if limit:
        seconds = elapsed or facts.prediction.seconds
        tiles.append(("limit of its kernels", show_seconds(limit)))
        tiles.append(("of the limit reached", share(limit, seconds)))
    if flops:
        tiles.append(("work", amount(flops, "FLOP")))
        seconds = elapsed or facts.prediction.seconds
        tiles.append(("rate", amount(flops / seconds, "FLOP/s") if seconds else "-"))
    tiles.append(("kernels", str(sum(operations[number].kind == "kernel" for number in kernels))))
    if moved:
        tiles.append(("between devices", show_bytes(moved)))
    arenas = sum(region.arena for region in facts.program.regions)
    tiles.append(("arena", show_bytes(arenas)))
    return tiles
