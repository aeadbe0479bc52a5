"""Measured figures next to the limits of this machine, which are measured once and kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.runtime.session import Session


@dataclass(frozen=True)
class Roof:
    """Operations per second on f32 numbers, and bytes per second from and to memory, that this machine reaches with
    `threads` threads."""

    threads: int
    flops: float
    bytes: float


def roof_of(session: Session) -> Roof | None:
    """The limits of the host with the session's threads, measured the first time on each machine; None for a session
    on other devices, and without the code generator that measures them."""
    if any(variant.family != "host" for variant in session.variants):
        return None
    return host_roof(session.threads)


def host_roof(threads: int) -> Roof | None:
    """The limits of the host with `threads` threads; None without the code generator that measures them."""
    from motet.runtime.device import probe

    try:
        from motet.lab.limits import limits_of
    except ImportError:  # the runtime alone is installed
        return None
    info = next((info for info in probe("host") if info.available), None)
    if info is None:
        return None
    limits = limits_of(info, threads)
    return Roof(threads, limits.flops, limits.bandwidth)
