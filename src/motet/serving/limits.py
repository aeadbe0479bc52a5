"""Limits of a server, all of which a request may meet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, times in seconds. A request above a size gets 413 or 431, one above `requests` 429, one that
    waits longer than `seconds` for its call 503, and one whose call takes longer 504."""

    body: int = 64 << 20
    json: int = 16 << 20  # JSON needs up to 20 times its size when it is read
    headers: int = 64 << 10
    requests: int = 256  # requests that are read, queued or computed
    connections: int = 1024
    seconds: float = 30.0
    header_seconds: float = 10.0  # from the first byte of a request, or the connection, to the end of the headers
    idle_seconds: float = 15.0  # a connection without a request
    drain_seconds: float = 1.0  # after SIGTERM, new requests are still answered, and connections closed
