"""Connections to devices that are reached through a stream."""

from __future__ import annotations

import socket


class LinkLost(Exception):
    """The device cannot be reached any more; the message tells why."""


def connect(address: str) -> socket.socket:
    """A connection to the GDB stub at `address`, HOST:PORT or the path of a Unix socket. Raises LinkLost."""
    host, colon, port = address.rpartition(":")
    try:
        if colon and port.isdecimal():
            connection = socket.create_connection((host or "localhost", int(port)), timeout=10)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        return connection
    except (OSError, OverflowError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise LinkLost(f"the stub at {address} cannot be reached: {reason}") from None
