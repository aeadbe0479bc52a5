"""Connections to devices that are reached through a stream: a socket or a serial line."""

from __future__ import annotations

import io
import os
import select
import socket
import termios
import time
import tty
from pathlib import Path

_LONGEST = 3600.0  # seconds of one wait of the system


class LinkLost(Exception):
    """The device cannot be reached any more; the message tells why."""


class DeviceLink:
    """The connected stream `descriptor`, which this object closes; messages call it `name`. The other end of a `serial`
    line does not notice that it is opened or closed. Methods raise LinkLost."""

    def __init__(self, descriptor: int, name: str, serial: bool = False) -> None:
        os.set_blocking(descriptor, False)
        self._stream = io.FileIO(descriptor, "r+")
        self.name = name
        self.serial = serial

    def receive(self, end: float) -> bytes:
        """What has arrived, or the first bytes that arrive before `end`, by the monotonic clock; empty at `end`."""
        try:
            while self._ready(select.POLLIN, end):
                data = self._stream.read(1 << 16)
                if data:
                    return data
                if data is not None:
                    raise LinkLost(f"{self.name} was closed")
        except OSError as error:
            raise self._failed(error) from None
        return b""

    def send(self, data: bytes, patience: float) -> None:
        """Send all of `data`; at most `patience` seconds pass between two parts of it."""
        try:
            while data:
                if not self._ready(select.POLLOUT, time.monotonic() + patience):
                    raise LinkLost(f"{self.name} accepts no bytes for {patience:g} s")
                data = data[self._stream.write(data) or 0 :]
        except OSError as error:
            raise self._failed(error) from None

    def close(self) -> None:
        self._stream.close()

    def _ready(self, event: int, end: float) -> bool:
        if self._stream.closed:
            raise LinkLost(f"{self.name} was closed")
        waiting = select.poll()
        waiting.register(self._stream, event)
        while (left := end - time.monotonic()) > 0:
            if waiting.poll(min(left, _LONGEST) * 1000):
                return True
        return False

    def _failed(self, error: OSError) -> LinkLost:
        return LinkLost(f"{self.name} failed: {error.strerror}")


def connect(address: str, baud: int) -> DeviceLink:
    """A connection to the GDB stub at `address`: HOST:PORT, the path of a Unix socket, or a serial port, whose speed is
    `baud`. Raises LinkLost."""
    host, colon, port = address.rpartition(":")
    name = f"the connection to the stub at {address}"
    try:
        if colon and port.isdecimal():
            connection = socket.create_connection((host or "localhost", int(port)), timeout=10)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return DeviceLink(connection.detach(), name)
        if Path(address).is_char_device():
            return open_port(address, baud)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(address)
            return DeviceLink(connection.detach(), name)
    except (OSError, OverflowError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise LinkLost(f"the stub at {address} cannot be reached: {reason}") from None


def open_port(path: str, baud: int) -> DeviceLink:
    """The serial port `path` without line editing, at `baud`. Raises LinkLost."""
    speed = getattr(termios, f"B{baud}", None)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise LinkLost(f"port {path}: {error.strerror}") from None
    try:
        tty.setraw(descriptor)
        attributes = termios.tcgetattr(descriptor)
        attributes[4] = attributes[5] = speed
        termios.tcsetattr(descriptor, termios.TCSANOW, attributes)
        termios.tcflush(descriptor, termios.TCIOFLUSH)
    except (OSError, termios.error) as error:
        os.close(descriptor)
        raise LinkLost(f"port {path}: not a serial line of {baud} baud: {error.args[1]}") from None
    return DeviceLink(descriptor, f"the line {path} of {baud} baud (baud=SPEED)", serial=True)
