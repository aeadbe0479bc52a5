"""motet devices: the devices of this machine, missing ones with the reason, and the families with a code generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from motet.errors import DeviceError, OptionError
from motet.tools import arguments

if TYPE_CHECKING:
    from motet.runtime.device import DeviceInfo

HELP = """Show the devices of this machine.

First the devices that are present, by the name for --device of run, and modelled ones, which stand for no hardware;
then those that are not, with the reason: a missing device, one whose address is not given, a driver that cannot be
loaded or has another version; last the families of devices that compile
generates code for, which need not be present.

\b
Examples:
  motet devices
  motet devices --json
  motet devices --measure -o rates.json        their rates, for compile --placement auto --option rates=rates.json
  python -m motet.runtime.conformance null     run the conformance suite of devices on one
"""


def show_devices(
    json: arguments.Json = False,
    measure: Annotated[bool, typer.Option(
        "--measure", help="Run small programs on the devices, one of each family, and show how fast they are.",
    )] = False,
    output: Annotated[str | None, typer.Option(
        "--output", "-o", metavar="FILE", show_default=False,
        help="With --measure: write what was measured, for --option rates=FILE of compile.",
    )] = None,
) -> None:
    from motet.runtime.device import devices

    if output is not None and not measure:
        raise OptionError("--output: what is to be written? expected it with --measure")
    found = devices()
    if measure:
        _measure(found, json, output)
        return
    if json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    present = [info for info in found if info.available]
    lines = [*_present([info for info in present if not info.is_modelled]),
             *_modelled([info for info in present if info.is_modelled]),
             *_missing([info for info in found if not info.available]), *_targets()]
    typer.echo("\n".join(lines))


def _measure(found: Sequence[DeviceInfo], json: bool, output: str | None) -> None:
    """Measures the first device of each family with a code generator."""
    import msgspec

    from motet.compiler.targets.families import families
    from motet.measuring.rates import measure_family
    from motet.tools.compile import write_text
    from motet.tools.progress import Progress
    from motet.tools.show import show_table

    known = families()
    first = {info.family: info for info in reversed(found) if info.available and info.family in known}
    values: dict[str, dict[str, float | bool]] = {}
    failed: list[str] = []
    with Progress("measuring") as progress:
        for number, (family, info) in enumerate(sorted(first.items())):
            progress.update(f"measuring {info.uri}", number / len(first))
            try:
                values[family] = measure_family(info)
            except DeviceError as error:
                failed.append(f"{info.uri}: cannot be measured: {_line(str(error))}")
    text = msgspec.json.format(msgspec.json.encode(values), indent=2).decode()
    if output is not None:
        write_text(text, output)
    if json:
        typer.echo(text)
    else:
        names = list(dict.fromkeys(name for rates in values.values() for name in rates))
        rows = [[name, *(_rate(rates[name]) if name in rates else "-" for rates in values.values())] for name in names]
        typer.echo("\n".join(show_table(["per second, or seconds", *values], rows)))
    for line in failed:
        typer.echo(line, err=True)


def _rate(value: float | bool) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:.3g}"


def _present(infos: Sequence[DeviceInfo]) -> list[str]:
    from motet.tools.show import show_bytes, show_table

    rows = [
        [info.uri, info.name, str(info.cores or "-"), str(info.threads or "-"), info.level or "-",
         show_bytes(info.memory) if info.memory else "-"]
        for info in infos
    ]
    return show_table(["device", "name", "cores", "threads", "level", "memory"], rows)


def _modelled(infos: Sequence[DeviceInfo]) -> list[str]:
    return [f"modelled, without hardware: {', '.join(info.uri for info in infos)}"] if infos else []


def _missing(infos: Sequence[DeviceInfo]) -> list[str]:
    return [f"{info.uri}: not available: {_line(info.reason) or 'its driver gives no reason'}" for info in infos]


def _targets() -> list[str]:
    """The families with a code generator, if the compiler is installed."""
    try:
        from motet.compiler.codegen.backends import families_without_code
        from motet.compiler.targets.families import broken_families, families
    except ImportError:
        return []
    without = families_without_code()
    reasons = broken_families() | without
    broken = [f"{name}: no code can be made for it: {_line(reason)}" for name, reason in reasons.items()]
    return [*broken, f"code can be made for: {', '.join(name for name in families() if name not in without)}"]


def _line(text: str) -> str:
    """The text of a driver or library, as one line."""
    return " ".join(text.split())
