"""URIs of devices: `host`, `cuda:0`, `riscv:qemu`, `null/1?lose-after=3`.

A URI is a driver's name, the part that distinguishes its devices, and options after a question mark, `key=value` joined
by `&`, which the driver reads when it opens the device. The option `required=true` is read by the session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from motet.errors import DeviceError

_REQUIRED = "required"
_FAMILY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def family_of(uri: str) -> str:
    """The name of the driver in a URI."""
    match = _FAMILY.match(uri)
    if match is None or uri[match.end() : match.end() + 1] not in ("", ":", "/", "?"):
        raise DeviceError(f"device {uri!r}: not the URI of a device; expected one such as host, cuda:0 or riscv:qemu")
    return match[0]


def split_uri(uri: str) -> tuple[str, dict[str, str]]:
    """The URI without its options, and the options."""
    base, question, query = uri.partition("?")
    options: dict[str, str] = {}
    for part in query.split("&") if question else ():
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise DeviceError(f"device {uri!r}: option {part!r}; expected key=value")
        if key in options:
            raise DeviceError(f"device {uri!r}: option {key!r} is given twice; expected each once")
        options[key] = value
    return base, options


def split_required(uri: str) -> tuple[str, bool]:
    """The URI without the option `required`, and its value: whether no other device may replace this one."""
    base, options = split_uri(uri)
    if _REQUIRED not in options:
        return uri, False
    value = options.pop(_REQUIRED)
    if value not in ("true", "false"):
        raise DeviceError(f"device {uri!r}: option {_REQUIRED}={value}; expected true or false")
    rest = "&".join(f"{key}={value}" for key, value in options.items())
    return f"{base}?{rest}" if rest else base, value == "true"


def number_options(uri: str, known: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The numeric options of a URI: `known` maps each to its default and minimum."""
    values = {key: default for key, (default, _) in known.items()}
    for key, text in split_uri(uri)[1].items():
        if key not in known:
            raise DeviceError(f"device {uri!r}: no option {key!r}; there are: {', '.join(known) or 'none'}")
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        least = known[key][1]
        if not value >= least:  # false for NaN
            raise DeviceError(f"device {uri!r}: option {key}={text}; expected a number, at least {least:g}")
        values[key] = value
    return values
