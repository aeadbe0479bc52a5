"""The devices of this machine, found by drivers.

A driver is an object (a module will do) with a function `probe() -> Sequence[DeviceInfo]` that looks for its
devices without side effects and says why one is not available. Drivers are found through the entry-point
group `motet.drivers`; the host's is always there. One that cannot be imported or fails is unavailable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Protocol, cast

GROUP = "motet.drivers"
HOST = "motet.runtime.host"


@dataclass(frozen=True)
class DeviceInfo:
    """A device, or one that could be here: then `available` is False and `reason` says why it is not.

    `uri` names it to `load` (`host`, `cuda:0`); `cores` are those it has for us, `threads` those used by
    default; `level` is what its code may need (`x86-64-v4`); `memory` is in bytes.
    """

    name: str
    uri: str
    cores: int = 0
    threads: int = 0
    level: str = ""
    memory: int = 0
    available: bool = True
    reason: str = ""


class Driver(Protocol):
    def probe(self) -> Sequence[DeviceInfo]: ...


def devices() -> list[DeviceInfo]:
    """Every device of this machine that a driver knows of, the host first."""
    drivers = {entry.name: entry for entry in metadata.entry_points(group=GROUP)}
    # In a source tree that is not installed there are no entry points, but there is a host.
    drivers.setdefault("host", metadata.EntryPoint("host", HOST, GROUP))
    others = sorted(drivers.keys() - {"host"})
    return [device for name in ("host", *others) for device in _probe(drivers[name])]


def _probe(entry: metadata.EntryPoint) -> list[DeviceInfo]:
    try:
        return list(cast(Driver, entry.load()).probe())
    except Exception as error:  # a plug-in may fail in any way, and must not take the others along
        reason = f"driver {entry.value!r}: {type(error).__name__}: {error}"
        return [DeviceInfo(entry.name, entry.name, available=False, reason=reason)]
