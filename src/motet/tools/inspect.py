"""motet inspect: what an artifact holds: signatures, code for each target, kernels, sizes, memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from motet.tools import arguments

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.artifact.schema import Expr, Schedule, Signature, Variant

HELP = """Show what an artifact holds.

Its functions; for each target the kernels (what each was made of, how it was generated, its work), the
dispatches of every function and the memory that a call takes.

\b
Examples:
  motet inspect model.motet
  motet inspect model.motet --json
"""

GENERIC = "generic"


def inspect_artifact(
    file: arguments.Runnable, format: arguments.Format = "auto", json: arguments.Json = False
) -> None:
    from motet.tools.opening import open_artifact

    artifact = open_artifact(file, format=format).artifact
    if json:
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(describe(artifact)), indent=2)
        typer.echo(text.decode())
        return
    typer.echo("\n".join(_lines(artifact, file)))


def describe(artifact: Artifact) -> dict[str, Any]:
    """Everything that the text shows, as JSON values. Sizes are bytes; those that depend on dynamic extents
    are the manifest's expressions."""
    manifest = artifact.manifest
    return {
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
                "generic_kernels": [kernel.name for kernel in variant.kernels if kernel.kind == GENERIC],
                "schedules": {
                    name: {
                        "dispatches": sum(command.op == "dispatch" for command in schedule.commands),
                        "copies": sum(command.op == "copy" for command in schedule.commands),
                        "memory": memory_plan(schedule),
                    }
                    for name, schedule in variant.schedules.items()
                },
            }
            for variant in manifest.variants
        ],
        "parameters": manifest.parameters,
        "external_parameters": manifest.external_parameters,
        "members": manifest.members,
    }


def memory_plan(schedule: Schedule) -> dict[str, Expr]:
    """Bytes that one call uses: parameters (shared by all calls), arena, results, and scratch per thread."""
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


def _lines(artifact: Artifact, file: str) -> list[str]:
    from motet.tools.show import show_bytes, show_signature

    manifest = artifact.manifest
    lines = [f"{file}: {show_bytes(len(artifact.data))}, made by {manifest.producer}", "", "functions"]
    lines += [f"  {show_signature(signature)}" for signature in manifest.functions]
    if manifest.parameters:
        size = show_bytes(_parameter_bytes(artifact))
        place = manifest.external_parameters or "the artifact"
        lines += ["", f"parameters: {len(manifest.parameters)}, {size}, in {place}"]
    for variant in manifest.variants:
        lines += ["", *_variant_lines(artifact, variant, manifest.functions)]
    return lines


def _parameter_bytes(artifact: Artifact) -> int:
    from math import prod

    from motet.artifact.dtypes import DTYPES

    return sum(
        prod(parameter.shape) * DTYPES[parameter.dtype].itemsize for parameter in artifact.manifest.parameters
    )


def _variant_lines(artifact: Artifact, variant: Variant, functions: list[Signature]) -> list[str]:
    from motet.tools.show import show_bytes, show_table

    code = show_bytes(sum(artifact.manifest.members[name].size for name in variant.objects))
    needs = ", ".join(variant.features) or "nothing beyond the base level"
    lines = [f"target {variant.family} {variant.target}: {variant.triple}, {code} of code; needs {needs}"]
    for signature in functions:
        if (schedule := variant.schedules.get(signature.name)) is not None:
            lines.append(f"  {signature.name}: {_schedule_text(schedule)}")
    if variant.kernels:
        rows = [
            [kernel.name, kernel.kind, _amount(kernel.flops), _amount(kernel.bytes), kernel.source]
            for kernel in variant.kernels
        ]
        lines += show_table(["kernel", "class", "flops", "bytes", "made of"], rows, indent="  ")
        generic = [kernel.name for kernel in variant.kernels if kernel.kind == GENERIC]
        if generic:
            lines.append(f"  took the generic path: {', '.join(generic)}")
    return lines


def _amount(count: int) -> str:
    return f"{count:,}" if count else "-"


def _schedule_text(schedule: Schedule) -> str:
    from motet.tools.show import show_bytes, show_expression

    dispatches = sum(command.op == "dispatch" for command in schedule.commands)
    copies = len(schedule.commands) - dispatches
    sizes = {
        name: show_bytes(size) if isinstance(size, int) else f"{show_expression(size)} B"
        for name, size in memory_plan(schedule).items()
    }
    plan = ", ".join(f"{name.replace('_', ' ')} {size}" for name, size in sizes.items())
    return f"{dispatches} dispatches, {copies} copies; memory: {plan}"
