"""motet devices: what this machine can run on, what is missing and why, and what code can be made for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from motet.tools import arguments

if TYPE_CHECKING:
    from motet.runtime.device import DeviceInfo

HELP = """Show the devices of this machine.

First what is here, by the name that --device of run takes; then what could be here, and why it is not: a device
that is missing, a driver that cannot be loaded or speaks another version; last the families of devices that
compile makes code for, which need not be here.

\b
Examples:
  motet devices
  motet devices --json
  python -m motet.runtime.conformance null     put one through the contract that devices keep to
"""


def show_devices(json: arguments.Json = False) -> None:
    from motet.runtime.device import devices

    found = devices()
    if json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    lines = [*_present([info for info in found if info.available]),
             *_missing([info for info in found if not info.available]), *_targets()]
    typer.echo("\n".join(lines))


def _present(infos: Sequence[DeviceInfo]) -> list[str]:
    from motet.tools.show import show_bytes, show_table

    rows = [
        [info.uri, info.name, str(info.cores or "-"), str(info.threads or "-"), info.level or "-",
         show_bytes(info.memory) if info.memory else "-"]
        for info in infos
    ]
    return show_table(["device", "name", "cores", "threads", "level", "memory"], rows)


def _missing(infos: Sequence[DeviceInfo]) -> list[str]:
    return [f"{info.uri}: not available: {_line(info.reason) or 'its driver gives no reason'}" for info in infos]


def _targets() -> list[str]:
    """What code can be made for, where the compiler is installed."""
    try:
        from motet.compiler.targets.families import broken_families, families
    except ImportError:
        return []
    broken = [f"{name}: no code can be made for it: {_line(reason)}" for name, reason in broken_families().items()]
    return [*broken, f"code can be made for: {', '.join(families())}"]


def _line(text: str) -> str:
    """Text of others, as one line."""
    return " ".join(text.split())
