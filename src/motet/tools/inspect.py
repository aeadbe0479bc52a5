"""motet inspect: shows the contents of an artifact: signatures, code for each target, kernels, sizes, memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.errors import OptionError
from motet.tools import arguments

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.artifact.schema import Expr, Schedule, Signature, Variant

HELP = """Show the contents of an artifact.

Its functions; for a program for several devices also the devices, and the steps of its plans; for each target the
kernels (their source operations, kernel class and work), the dispatches of every function and the memory of a call.

\b
Examples:
  motet inspect model.motet
  motet inspect model.motet --json
  motet inspect model.motet --schedules   the schedule of each kernel
  motet inspect model.motet --kernel main_kernel_0     the source of a kernel for GPUs
  motet inspect model.motet --measure     the steps of a plan over devices, as estimated and as measured here
  motet inspect model.motet --html report.html --trace trace.json     an HTML page, with a trace of motet run
  motet inspect model.motet --html report.html --trace old.json --trace new.json     the same, comparing two traces
"""

GENERIC = "generic"
JSON_VERSION = 1  # of `describe`; raised when a field is renamed, removed, or changes its meaning

# The seconds of the steps of every plan; None if all its devices are one device here.
Measured = dict[str, list[float] | None]


# The parameters of this function are the options of `motet inspect`, read by typer.
def inspect_artifact(
    file: arguments.Runnable,
    format: arguments.Format = "auto",
    measure: Annotated[bool, typer.Option(
        "--measure", help="Run every plan over this machine's devices, on random inputs, and time "
        "its steps.",
    )] = False,
    kernel: Annotated[str, typer.Option(
        "--kernel", metavar="NAME", show_default=False,
        help="Show the source of one kernel's programs, if the artifact has it: for GPUs.",
    )] = "",
    device: arguments.Bindings = None,
    placement: arguments.Placement = "default",
    html: Annotated[str | None, typer.Option(
        "--html", metavar="FILE.html", show_default=False,
        help="Write a page that shows the graph, the timeline, the memory plan and the kernels, and print nothing.",
    )] = None,
    trace: Annotated[list[str] | None, typer.Option(
        "--trace", metavar="FILE.json", show_default=False,
        help="A trace of the artifact by motet run or bench --trace: the page shows measurements next to predictions. "
        "Given twice, the page compares the first with the second.",
    )] = None,
    rates: Annotated[str | None, typer.Option(
        metavar="FILE.json", show_default=False,
        help="The rates of this machine's devices, as motet devices --measure -o FILE.json writes them: for the page's "
        "predictions and limits.",
    )] = None,
    schedules: Annotated[bool, typer.Option(
        "--schedules", help="Show the schedule of each kernel, for each target; with --json as a file for motet "
        "compile --option schedules=FILE.",
    )] = False,
    json: arguments.Json = False,
) -> None:
    from motet.tools.opening import open_bound

    _check_options(html, trace or [], rates, json, measure)
    opened, bindings = open_bound(file, format=format, devices=device or [], placement=placement)
    artifact = opened.artifact
    if html is not None:
        from motet.tools.report.page import write_report

        write_report(artifact, file, html, bindings, trace or [], rates)
        return
    if kernel:
        typer.echo("\n".join(_source_lines(artifact, kernel)))
        return
    if schedules:
        from motet.tools.schedules import schedule_lines, schedules_file

        typer.echo(schedules_file(artifact) if json else "\n".join(schedule_lines(artifact)))
        return
    measured = _measure(artifact, bindings, file) if measure else None
    if json:
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(describe(artifact, measured)), indent=2)
        typer.echo(text.decode())
        return
    typer.echo("\n".join(_lines(artifact, file, measured)))


def _check_options(html: str | None, traces: Sequence[str], rates: str | None, json: bool, measure: bool) -> None:
    """Raises OptionError for incompatible options."""
    if traces and html is None:
        raise OptionError(f"--trace {traces[0]}: what it says is shown in a page; expected --html FILE.html with it")
    if len(traces) > 2:
        raise OptionError(f"--trace {traces[2]}: {len(traces)} traces given; expected one, or two to compare")
    if rates is not None and html is None:
        raise OptionError(f"--rates {rates}: what they say is shown in a page; expected --html FILE.html with it")
    if html is not None and (json or measure):
        raise OptionError(f"--html {html}: not with {'--json' if json else '--measure'}; expected one of them")


def _measure(artifact: Artifact, bindings: Mapping[str, str], file: str) -> Measured:
    """The measured seconds of each step of every plan."""
    from motet import runtime
    from motet.tools.benching.inputs import random_inputs
    from motet.tools.plans import measure_steps

    if not artifact.manifest.plans:
        raise OptionError(f"--measure: {file} has no plans over devices; motet bench --profile measures its kernels")
    with runtime.load(artifact, devices=dict(bindings) or None) as session:
        return {
            name: measure_steps(session, name, random_inputs(session[name].signature, file))
            for name in session.functions
        }


def _source_lines(artifact: Artifact, kernel: str) -> list[str]:
    """The resources and the source of each of the kernel's programs, for every target that has it. Kernels of equal
    structure share programs."""
    sources = [name for name in artifact.manifest.members if name.endswith((".py", ".llir"))]
    symbols = sorted({PurePosixPath(name).stem for name in sources})
    wanted = [symbol for symbol in symbols if re.fullmatch(re.escape(kernel) + r"(_\d+|_keep)?", symbol)]
    if kernel in symbols:
        wanted = [symbol for symbol in wanted if symbol == kernel or not _is_kernel(artifact, symbol)]
    if not wanted:
        listing = ", ".join(symbols) or "none: only code for GPUs is kept as source"
        raise OptionError(f"--kernel {kernel}: no source of it; available: {listing}")
    lines: list[str] = []
    for name in sources:
        if PurePosixPath(name).stem in wanted:
            facts = bytes(artifact.member(str(PurePosixPath(name).with_suffix(".json")))).decode()
            lines += [f"# {name}", f"# {' '.join(facts.split())}", bytes(artifact.member(name)).decode()]
    return lines


def _is_kernel(artifact: Artifact, symbol: str) -> bool:
    return any(symbol == entry.name for variant in artifact.manifest.variants for entry in variant.kernels)


def describe(artifact: Artifact, measured: Measured | None = None) -> dict[str, Any]:
    """The contents of the text output as JSON values. Sizes are in bytes; dynamic ones are the manifest's expressions.
    `measured` are the seconds of the steps of plans."""
    from motet.artifact.launch_facts import launch_facts

    manifest = artifact.manifest
    return {
        "version": JSON_VERSION,
        "schema": manifest.schema,
        "producer": manifest.producer,
        "bytes": len(artifact.data),
        "functions": manifest.functions,
        "variants": [
            {
                "family": variant.family, "target": variant.target, "triple": variant.triple,
                "features": variant.features,
                "code_bytes": sum(manifest.members[name].size for name in variant.objects),
                "kernels": variant.kernels,
                "launches": launch_facts(artifact, variant),
                "generic_kernels": [kernel.name for kernel in variant.kernels if kernel.kind == GENERIC],
                "schedules": {
                    name: {
                        "dispatches": sum(command.op == "dispatch" for command in schedule.commands),
                        "copies": sum(command.op == "copy" for command in schedule.commands),
                        "memory": memory_plan(schedule),
                        "arena_lower_bound": schedule.least,
                        "arena_serial": schedule.serial,
                        "trials": schedule.trials,
                        "tried_on": schedule.tried_on,
                    }
                    for name, schedule in variant.schedules.items()
                },
            }
            for variant in manifest.variants
        ],
        "parameters": manifest.parameters,
        "external_parameters": manifest.external_parameters,
        "devices": manifest.devices,
        "default_device": manifest.default_device,
        "links": manifest.links,
        "plans": manifest.plans,
        "regions": manifest.regions,
        "measured": measured,
        "members": manifest.members,
    }


def memory_plan(schedule: Schedule) -> dict[str, Expr]:
    """The bytes that one call uses: parameters (shared by all calls), arena, results, and scratch per thread."""
    return {
        "parameters": _sum(buffer.bytes for buffer in schedule.buffers if buffer.kind == "parameter"),
        "arena": schedule.arena,
        "results": _sum(buffer.bytes for buffer in schedule.buffers if buffer.kind == "result"),
        "scratch_per_thread": schedule.scratch,
    }


def _sum(sizes: Iterable[Expr]) -> Expr:
    known = 0
    total: Expr = 0
    for size in sizes:
        if isinstance(size, int):
            known += size
        else:
            total = size if total == 0 else ["+", total, size]
    if total == 0:
        return known
    return ["+", total, known] if known else total


def _lines(artifact: Artifact, file: str, measured: Measured | None) -> list[str]:
    from motet.artifact.states import initial_states
    from motet.tools.plans import plan_lines
    from motet.tools.show import show_bytes, show_signature, show_tensor

    manifest = artifact.manifest
    lines = [f"{file}: {show_bytes(len(artifact.data))}, made by {manifest.producer}", "", "functions"]
    lines += [f"  {show_signature(signature)}" for signature in artifact.callable_functions]
    if states := initial_states(artifact.functions):
        lines += ["", "state, which a session keeps between calls"]
        lines += [*(f"  @{name}: {show_tensor(spec)}" for name, spec in states.items())]
    if manifest.parameters:
        size = show_bytes(_parameter_bytes(artifact))
        place = manifest.external_parameters or "the artifact"
        lines += ["", f"parameters: {len(manifest.parameters)}, {size}, in {place}"]
    if manifest.devices:
        lines += ["", *plan_lines(manifest, measured)]
    for variant in manifest.variants:
        lines += ["", *_variant_lines(artifact, variant, [*manifest.functions, *manifest.regions.values()])]
    return lines


def _parameter_bytes(artifact: Artifact) -> int:
    from math import prod

    from motet.artifact.dtypes import DTYPES

    return sum(
        prod(parameter.shape) * DTYPES[parameter.dtype].itemsize for parameter in artifact.manifest.parameters
    )


def _variant_lines(artifact: Artifact, variant: Variant, functions: list[Signature]) -> list[str]:
    from motet.artifact.kernels import KernelTable
    from motet.tools.show import show_bytes, show_computed, show_table

    code = show_bytes(sum(artifact.manifest.members[name].size for name in variant.objects))
    needs = ", ".join(variant.features) or "nothing beyond the base level"
    lines = [f"target {variant.family} {variant.target}: {variant.triple}, {code} of code; needs {needs}"]
    for signature in functions:
        if (schedule := variant.schedules.get(signature.name)) is not None:
            lines.append(f"  {signature.name}: {_schedule_text(schedule)}")
            lines += _trial_lines(schedule)
    if variant.kernels:
        table = KernelTable([variant])
        rows = [
            [kernel.name, kernel.kind, _amount(known.flops), _amount(known.bytes), kernel.source,
             show_computed(kernel.names)]
            for kernel in variant.kernels if (known := table.find(kernel.name))
        ]
        lines += show_table(["kernel", "class", "flops", "bytes", "made of", "computes"], rows, indent="  ")
        lines += _launch_lines(artifact, variant)
        generic = [kernel.name for kernel in variant.kernels if kernel.kind == GENERIC]
        if generic:
            lines.append(f"  took the generic path: {', '.join(generic)}")
    return lines


def _launch_lines(artifact: Artifact, variant: Variant) -> list[str]:
    from motet.artifact.launch_facts import INTEL, launch_facts
    from motet.tools.intel_launches import intel_lines
    from motet.tools.show import show_bytes, show_table

    facts = launch_facts(artifact, variant)
    if not facts or variant.family == INTEL:
        return intel_lines(facts)
    rows = [
        [
            fact["launch"], fact["binary"], str(fact["threads"]), str(fact["max_threads"]), str(fact["registers"]),
            f"{fact['spills']} B ({-(-fact['spills'] // 4)} registers)" if fact["spills"] else "none",
            show_bytes(fact["shared"]), show_bytes(fact["scratch"]),
        ]
        for fact in facts
    ]  # fmt: skip
    heads = ["launch", "code", "threads", "at most", "registers", "spills", "shared", "scratch"]
    return [*show_table(heads, rows, indent="  "), *_library_lines(facts)]


def _library_lines(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The launches that a library replaces if it is installed."""
    from motet.artifact.library import UnknownLibrary, read_call, show_version
    from motet.tools.show import show_bytes, show_table

    rows: list[list[str]] = []
    for fact in facts:
        if "library" not in fact:
            continue
        try:
            call = read_call(fact["library"])
        except UnknownLibrary as error:
            rows.append([fact["launch"], str(error), "", "", ""])
            continue
        except ValueError as error:
            rows.append([fact["launch"], f"damaged: {error}", "", "", ""])
            continue
        measured = call.algorithm
        added = [name for name, given in (("addend", call.addend), ("bias", call.bias)) if given is not None]
        batch = f"{call.batch} × " if call.batch > 1 else ""
        extents = f"{batch}{call.rows}×{call.columns}×{call.depth}"
        rows.append([
            fact["launch"], f"{extents} {call.left.dtype}, sums of {call.precision}",
            " + ".join(["product", *added]) + (f", {call.activation}" if call.activation else ""),
            f"libcublasLt {show_version(measured.library)}" if measured is not None else "libcublasLt",
            show_bytes(measured.workspace) if measured is not None else "",
        ])
    if not rows:
        return []
    heads = ["cuBLASLt before", "rows × columns × depth", "calculates", "needs", "workspace"]
    return [*show_table(heads, rows, indent="  "), "  where it is not installed, the generated kernels run"]


def _trial_lines(schedule: Schedule) -> list[str]:
    """The schedules of the function that were measured when compiling."""
    from motet.artifact.expressions import show
    from motet.tools.show import show_bytes, show_seconds, show_table

    if not schedule.trials:
        return []
    rows = [
        [
            trial.name, show_seconds(trial.seconds), show_seconds(trial.median),
            show_bytes(trial.arena) if isinstance(trial.arena, int) else f"{show(trial.arena, space='')} B",
            "taken" if trial.chosen else "",
        ]
        for trial in schedule.trials
    ]
    table = show_table(["schedule", "fastest", "median", "arena", ""], rows, indent="    ")
    return [f"    measured on {schedule.tried_on}", *table]


def _amount(count: int) -> str:
    return f"{count:,}" if count else "-"


def _schedule_text(schedule: Schedule) -> str:
    from motet.artifact.expressions import show
    from motet.tools.show import show_bytes

    dispatches = sum(command.op == "dispatch" for command in schedule.commands)
    copies = len(schedule.commands) - dispatches
    sizes = {
        name: show_bytes(size) if isinstance(size, int) else f"{show(size, space='')} B"
        for name, size in memory_plan(schedule).items()
    }
    if schedule.least is not None and schedule.serial is not None and schedule.arena != 0:
        least, serial = show_bytes(schedule.least), show_bytes(schedule.serial)
        sizes["arena"] += f" (lower bound {least}, without concurrency {serial})"
    plan = ", ".join(f"{name.replace('_', ' ')} {size}" for name, size in sizes.items())
    return f"{dispatches} dispatches, {copies} copies; memory: {plan}"
