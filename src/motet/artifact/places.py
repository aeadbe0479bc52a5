"""Splits names of devices on other machines: `rank:1/cuda:0`, and `host1/cuda:0` by the name of the machine.

What precedes the slash is the place; a device name without one is a device of rank 0. `host/1` has no place: what
follows the slash is no name of a driver.
"""

from __future__ import annotations

import re

_PLACE = re.compile(r"(rank:[0-9]{1,6}|[A-Za-z_][\w.-]*)/(?=[A-Za-z_])")
_RANK = re.compile(r"rank:([0-9]{1,6})")


def split_place(uri: str) -> tuple[str, str]:
    """The place of a device name, "" if it has none, and the name of the device there."""
    match = _PLACE.match(uri)
    return ("", uri) if match is None else (match[1], uri[match.end() :])


def rank_of(place: str) -> int | None:
    """The number in `rank:N`; None for the name of a machine."""
    match = _RANK.fullmatch(place)
    return None if match is None else int(match[1])


def on_rank(rank: int, uri: str) -> str:
    """The name of a device of a rank."""
    return f"rank:{rank}/{uri}"
