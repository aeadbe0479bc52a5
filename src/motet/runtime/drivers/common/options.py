"""Options in the names of devices, of which each platform of a driver has some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from motet.errors import DeviceError

OptionParser = tuple[Callable[[str], Any], str, str]
"""Parses a value, raising ValueError or returning None for a wrong one; what is expected; the platforms that have the
option, separated by spaces, "" for all."""

BAUDS = (9600, 19200, 38400, 57600, 115200, 230400, 460800, 921600)
BAUD = "a speed from 9600 to 921600, such as 115200"


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


def parse_baud(text: str) -> int | None:
    """The speed of a serial line: what `BAUD` says."""
    return value if (value := int(text)) in BAUDS else None
