"""motet devices: what this machine can run on, and what is missing and why."""

from __future__ import annotations

import typer

from motet.tools import arguments

HELP = """Show the devices of this machine.

\b
Examples:
  motet devices
  motet devices --json
"""


def show_devices(json: arguments.Json = False) -> None:
    from motet.runtime.device import devices

    found = devices()
    if json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    from motet.tools.show import show_bytes, show_table

    present = [
        [device.uri, device.name, str(device.cores or "-"), str(device.threads or "-"), device.level or "-",
         show_bytes(device.memory) if device.memory else "-"]
        for device in found if device.available
    ]
    typer.echo("\n".join(show_table(["device", "name", "cores", "threads", "level", "memory"], present)))
    for device in found:
        if not device.available:
            typer.echo(f"{device.uri}: not available: {device.reason}")
