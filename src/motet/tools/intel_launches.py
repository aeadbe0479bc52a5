"""What `motet inspect` tells of launches on Intel's GPUs: registers, spills and work-groups, with units and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from motet.artifact.launch import Launch, Native
from motet.artifact.reader import Artifact
from motet.artifact.schema import Variant
from motet.decoding import decode_json

FAMILY = "intel"
_UNITS = {
    "registers": "registers of a sub-group", "register_bytes": "bytes of a register",
    "spilled_registers": "registers of a sub-group", "spilled_bytes": "bytes of a sub-group",
    "max_work_group": "work-items", "matrix_engine": "is used",
}


def intel_facts(artifact: Artifact, variant: Variant) -> list[dict[str, Any]]:
    """The resources of each tile program of a variant for Intel's GPUs."""
    facts: list[dict[str, Any]] = []
    for name in variant.objects:
        path = PurePosixPath(name)
        if path.suffix != ".json":
            continue
        launch = decode_json(artifact.member(name), Launch)
        facts.append({
            "launch": launch.kernel,
            "binary": "spv" if launch.native is None else "zebin",
            "work_items": launch.warps * launch.sub_group,
            "sub_group": launch.sub_group,
            "local_bytes": launch.shared,
            **({} if launch.native is None else {"native": _native(launch.native)}),
        })
    return facts


def _native(native: Native) -> dict[str, Any]:
    return {
        "device": native.device, "compiler": native.compiler, "flags": native.flags,
        **{
            name: {"value": getattr(native, name), "unit": unit, "source": native.sources.get(name, "not stated")}
            for name, unit in _UNITS.items()
        },
        "retries": msgspec.to_builtins(native.retries),
        "passed_over": None if native.passed_over is None else msgspec.to_builtins(native.passed_over),
    }


def intel_lines(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same as a table."""
    from motet.tools.show import show_bytes, show_table

    rows = [[*_row(fact), show_bytes(fact["local_bytes"])] for fact in facts]
    heads = ["launch", "code", "work-items", "at most", "registers", "spills", "matrix engine", "local memory"]
    notes = [
        f"  {fact['launch']}: again with {retry['flags']}: {'taken' if retry['taken'] else 'not taken'}, "
        f"{retry['reason']}"
        for fact in facts for retry in fact.get("native", {}).get("retries", [])
    ]
    notes += [
        f"  {fact['launch']}: sub-groups of {other['sub_group']} not taken, {other['reason']}"
        for fact in facts if (other := fact.get("native", {}).get("passed_over")) is not None
    ]
    return [*show_table(heads, rows, indent="  "), *notes] if rows else []


def _row(fact: Mapping[str, Any]) -> list[str]:
    items = f"{fact['work_items']} in {fact['sub_group']}s"
    native = fact.get("native")
    if native is None:
        return [fact["launch"], fact["binary"], items, "", "", "", ""]
    value = {name: native[name]["value"] for name in _UNITS}
    spilled = value["spilled_registers"]
    return [
        fact["launch"], fact["binary"], items, str(value["max_work_group"]),
        f"{value['registers']} of {value['register_bytes']} B",
        f"{spilled} registers ({value['spilled_bytes']} B)" if spilled else "none",
        "yes" if value["matrix_engine"] else "no",
    ]
