"""What `motet inspect` tells of launches on Intel's GPUs: registers, spills and work-groups, with units and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motet.artifact.launch_facts import INTEL_UNITS


def intel_lines(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of `launch_facts`."""
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
    value = {name: native[name]["value"] for name in INTEL_UNITS}
    spilled = value["spilled_registers"]
    return [
        fact["launch"], fact["binary"], items, str(value["max_work_group"]),
        f"{value['registers']} of {value['register_bytes']} B",
        f"{spilled} registers ({value['spilled_bytes']} B)" if spilled else "none",
        "yes" if value["matrix_engine"] else "no",
    ]
