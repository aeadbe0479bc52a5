"""Options in the names of devices, of which each platform of a driver has some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from motet.errors import DeviceError

OptionParser = tuple[Callable[[str], Any], str, str]
"""Parses a value, raising ValueError or returning None for a wrong one; what is expected; the only platform that has
the option, "" for all."""


def parse_option(parsers: Mapping[str, OptionParser], platform: str, name: str, value: str, where: str) -> Any:
    """The value of option `name` on `platform`. Raises DeviceError, prefixed with `where`, for an unknown option or a
    wrong value."""
    known = {key: entry for key, entry in parsers.items() if entry[2] in ("", platform)}
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
