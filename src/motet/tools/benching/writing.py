"""The JSON of `motet bench --json`: what was measured, on which machine, by which version."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from motet.version import VERSION

JSON_VERSION = 1  # raised when a field is renamed, removed, or changes its meaning; new fields do not raise it


def machine() -> str:
    """This machine's processor, level and threads, as in records of the lab."""
    from motet.records.machine import fingerprint
    from motet.runtime.device import probe

    return next((fingerprint(info) for info in probe("host")), "")


def bench_json(kind: str, found: Any, disturbances: list[str]) -> str:
    """The JSON of a result, a dataclass, of `kind`: `calls`, `throughput`, `versus` or `placements`."""
    import msgspec

    head = {"version": JSON_VERSION, "kind": kind, "motet": VERSION, "machine": machine()}
    values = {**head, **asdict(found), "disturbances": disturbances}
    return msgspec.json.format(msgspec.json.encode(values), indent=2).decode()
