"""Options in the names of devices and in variables of the environment, of which each platform of a driver has some."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from motet.artifact.uri import split_uri
from motet.errors import DeviceError

OptionParser = tuple[Callable[[str], Any], str, str]
"""Parses a value, raising ValueError or returning None for a wrong one; what is expected; the platforms that have the
option, separated by spaces, "" for all."""

STUB = "HOST:PORT, or the path of a socket or serial port"  # what is expected of the address of a GDB stub
_BAUDS = (9600, 19200, 38400, 57600, 115200, 230400, 460800, 921600)


def given_options(
    uri: str, variables: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    """The platform in a device's name, and the options in the variable of the platform and in the name, each after
    the place that errors name."""
    base, given = split_uri(uri)
    platform = base.partition(":")[2].partition("/")[0]
    variable = variables.get(platform, "")
    _, general = split_uri(f"{base}?{environment[variable]}") if environment.get(variable) else ("", {})
    return platform, [(f"environment variable {variable}", general), (f"device {uri}", given)]


def parse_option(parsers: Mapping[str, OptionParser], platform: str, name: str, value: str, where: str) -> Any:
    """The value of option `name` on `platform`. Raises DeviceError, prefixed with `where`, for an unknown option or a
    wrong value."""
    known = {key: entry for key, entry in parsers.items() if not entry[2] or platform in entry[2].split()}
    if name not in known:
        raise DeviceError(f"{where}: no option {name!r}; there are: {', '.join(known)}")
    parser, expected, _ = known[name]
    try:
        parsed = parser(value)
    except ValueError:
        parsed = None
    if parsed is None:
        raise DeviceError(f"{where}: option {name}={value}; expected {expected}")
    return parsed


def parse_bytes(text: str, units: str) -> int | None:
    """A number of bytes in one of `units`, the first of K, M and G."""
    match = re.fullmatch(rf"(\d+)([{units}]?)i?B?", text)
    return int(match[1]) << 10 * f"_{units}".index(match[2] or "_") if match else None


# -- kinds of options, for the platforms that have them ---------------------------------------------


def switch(platforms: str = "") -> OptionParser:
    return {"0": False, "1": True}.get, "0 or 1", platforms


def one_of(names: Sequence[str], platforms: str = "") -> OptionParser:
    expected = f"one of {', '.join(names)}" if len(names) > 2 else " or ".join(names)
    return lambda text: text if text in names else None, expected, platforms


def given(make: Callable[[str], Any], expected: str, platforms: str = "") -> OptionParser:
    """Any text but none, of which `make` makes the value."""
    return lambda text: make(text) if text else None, expected, platforms


def seconds(most: float, what: str = "seconds") -> OptionParser:
    return lambda text: value if 0 <= (value := float(text)) <= most else None, what, ""


def baud(platforms: str) -> OptionParser:
    """The speed of a serial line."""
    expected = "a speed from 9600 to 921600, such as 115200"
    return lambda text: value if (value := int(text)) in _BAUDS else None, expected, platforms
