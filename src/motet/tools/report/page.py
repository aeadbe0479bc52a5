"""Renders the page: one self-contained HTML file that loads nothing from the network.

Text from files, names above all, is inserted by `safe`, or as JSON without characters that could open or close tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from string import Template

from msgspec import structs

from motet.artifact.files import atomic_file, unreadable
from motet.artifact.reader import Artifact
from motet.compiler.placement.machine import rates_of_families
from motet.compiler.targets.rates import RateTable, read_rates
from motet.errors import OptionError
from motet.lab.display.page import theme
from motet.runtime.selection import HOST
from motet.tools.benching.roof import host_roof
from motet.tools.origin import Origin, origin
from motet.tools.report.binding import ReportedDevice, bound_devices, traced_devices
from motet.tools.report.facts import Detail, FunctionFacts, details, gather
from motet.tools.report.graph import graph_html, module_details
from motet.tools.report.head import head_html
from motet.tools.report.measured import Trace, read_trace
from motet.tools.report.memory import memory_details, memory_html
from motet.tools.report.model import read_program
from motet.tools.report.roofline import roofline_html
from motet.tools.report.tables import contents_html, kernel_table
from motet.tools.report.timeline import idle_details, idle_share, moves, timeline_html
from motet.tools.report.writing import COLOURED, amount, colour, safe, share
from motet.tools.show import show_bytes, show_seconds, show_signature

_SCRIPTS = ("page.js", "graph.js", "timeline.js", "table.js", "search.js")


def write_report(
    artifact: Artifact, file: str, target: str, bindings: Mapping[str, str], trace_files: Sequence[str] = (),
    rates_file: str | None = None,
) -> None:
    """Writes the page of `artifact`, read from `file`, to `target`. `bindings` are physical devices by the program's
    names; `trace_files` are a trace by `motet run --trace`, and an earlier one to compare it with; `rates_file` is a
    file of `motet devices --measure`.

    Raises OptionError for an invalid trace or one of another program, and for an invalid file of rates; ArtifactError
    if `target` cannot be written.
    """
    traces = [read_trace(path) for path in trace_files]
    sources = PageSources(
        traces[-1] if traces else None, traces[0] if len(traces) > 1 else None, _rates(rates_file),
        None if rates_file is not None else machine_limits, origin(),
    )
    page = render(artifact, Path(file).name, bindings, sources)
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


@dataclass(frozen=True)
class PageSources:
    """What a page is made from beside the artifact: a trace, and an earlier one to compare it with; the rates of
    devices, by default the families'; what measures the limits of a device, None to take those of the rates; and who
    makes the page."""

    trace: Trace | None = None
    earlier: Trace | None = None
    rates: RateTable | None = None
    limits: Callable[[ReportedDevice], tuple[float, float] | None] | None = None
    made: Origin | None = None


def machine_limits(bound: ReportedDevice) -> tuple[float, float] | None:
    """Operations and bytes per second of a device of this machine, measured the first time; None if unknown."""
    if bound.family != HOST:
        return None
    roof = host_roof(bound.threads)
    return None if roof is None else (roof.flops, roof.bytes)


def render(artifact: Artifact, title: str, bindings: Mapping[str, str], sources: PageSources | None = None) -> str:
    """The page's text."""
    manifest, given = artifact.manifest, sources or PageSources()
    trace, earlier = given.trace, given.earlier
    for each in filter(None, (trace, earlier)):
        _check_function(each, artifact)
    if trace is not None and earlier is not None and trace.function != earlier.function:
        raise OptionError(f"--trace {trace.path}: it is of {trace.function}, and {earlier.path} of {earlier.function}; "
                          "expected two traces of one function")
    rates = given.rates or rates_of_families()
    if trace is not None and trace.devices:
        devices = traced_devices(manifest, rates, trace.devices, trace.path)
    else:
        devices = bound_devices(manifest, bindings, rates, artifact.name)
    if given.limits is not None:
        devices = [_limited(bound, given.limits(bound)) for bound in devices]
    known: dict[str, Detail] = {}
    sections: list[str] = []
    for number, signature in enumerate(manifest.functions):
        own, before = (each if each is not None and each.function == signature.name else None
                       for each in (trace, earlier))
        program = read_program(manifest, signature, devices, None if own is None else own.shapes)
        facts = gather(program, own, f"f{number}")
        if before is not None:
            facts = replace(facts, earlier=gather(program, before, f"e{number}"))
        known |= details(facts) | moves(facts) | idle_details(facts) | memory_details(facts) | module_details(facts)
        if facts.earlier is not None:  # its bars stand for the same operations
            known |= {f"{facts.earlier.key}o{at}": known[f"{facts.key}o{at}"] for at in range(len(program.operations))}
        sections.append(_section(facts))
    return Template(_part("page.html")).substitute(
        title=safe(title), style=theme() + _part("page.css"), script="\n".join(map(_part, _SCRIPTS)), data=_json(known),
        origin=head_html(artifact, given.made, trace, earlier),
        notes="".join(f'<p class="note">{safe(text)}</p>' for text in _notes(devices)),
        legend=_legend(content := "".join(sections)), functions=content, contents=contents_html(manifest, devices),
    )


def _check_function(trace: Trace, artifact: Artifact) -> None:
    names = [signature.name for signature in artifact.manifest.functions]
    if trace.function not in names:
        raise OptionError(
            f"--trace {trace.path}: a trace of another program: it is of {trace.function}; {artifact.name} has "
            f"{', '.join(names) or 'no functions'}"
        )


def _limited(bound: ReportedDevice, limits: tuple[float, float] | None) -> ReportedDevice:
    """A device with measured limits; without them its limits are unknown."""
    if limits is None:
        return replace(bound, is_measured=False)
    return replace(bound, peak=limits[0], rates=structs.replace(bound.rates, memory=limits[1]))


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


def _legend(content: str) -> str:
    """The colours of `content`."""
    present = set(re.findall(r"\bk-[a-z]+\b", content))
    return "".join(f'<span><i class="dot {colour(kind)}"></i>{kind}</span>' for kind in COLOURED
                   if colour(kind) in present)


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
        '<button data-zoom="in" title="zoom in (+)" aria-label="zoom in">+</button>'
        '<button data-zoom="out" title="zoom out (-)" aria-label="zoom out">−</button>'
        '<button data-zoom="fit" title="the whole graph (0)">fit</button><button data-zoom="one">1:1</button></div>'
        f'{graph_html(facts)}</div><aside class="details" aria-live="polite"><p class="quiet">Click a node, a bar or a '
        "buffer for what is known of it. Drag to move, turn the wheel with ctrl to zoom. Enter or a double click on a "
        "module shows what is in it. Press ? for the keys.</p></aside></div>"
        '<h3>Timeline <span class="tools"><button data-time="in" title="wider" aria-label="wider">+</button>'
        '<button data-time="out" title="narrower" aria-label="narrower">−</button></span></h3>'
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
        if facts.earlier is not None and facts.earlier.elapsed:
            tiles.append(("before", show_seconds(facts.earlier.elapsed)))
            tiles.append(("now ÷ before", f"{elapsed / facts.earlier.elapsed:.2f} ×"))
        tiles.append(("idle", share(idle_share(facts), 1.0) if idle_share(facts) else "none"))
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
