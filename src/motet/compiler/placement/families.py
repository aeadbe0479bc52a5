"""The families that the devices of a program may be bound to."""

from __future__ import annotations

from collections.abc import Sequence

from motet.artifact.schema import LogicalDevice


def device_families(devices: Sequence[LogicalDevice], name: str) -> list[str]:
    """The families of a device and of the devices it falls back to, in the order in which they are tried."""
    by_name = {device.name: device for device in devices}
    found: list[str] = []
    seen: set[str] = set()

    def visit(device: str) -> None:
        if device in seen or device not in by_name:
            return
        seen.add(device)
        for alternative in by_name[device].alternatives:
            if alternative.fallback:
                visit(alternative.fallback)
            elif alternative.family and alternative.family not in found:
                found.append(alternative.family)

    visit(name)
    return found


def program_families(devices: Sequence[LogicalDevice]) -> list[str]:
    """The distinct families of all devices."""
    return list(dict.fromkeys(family for device in devices for family in device_families(devices, device.name)))
