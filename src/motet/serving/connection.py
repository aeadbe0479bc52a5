"""uvicorn's HTTP connection with limits that it lacks: number of connections, size and time of headers; and JSON for
requests that are not HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from motet.serving.limits import Limits

_REASONS = {
    400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable",
}


class LimitedConnection(HttpToolsProtocol):
    """One client's connection; uvicorn makes the objects itself, so that the limits belong to a subclass."""

    limits = Limits()
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _in_headers = True  # also between requests
    _completed = 0  # requests
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, f"{self.limits.connections} connections are open already")
        else:
            self._start(self.limits.header_seconds, 408, f"no headers within {self.limits.header_seconds:g} s")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        if self._in_headers and self._timer is None:
            self._start(self.limits.header_seconds, 408, f"no headers within {self.limits.header_seconds:g} s")
        before = self._in_headers, self._completed
        super().data_received(data)
        if before == (True, self._completed) and self._in_headers and not self._refused:
            self._header_bytes += len(data)
            if self._header_bytes > self.limits.headers:
                self._refuse(431, f"headers of more than {self.limits.headers} bytes")

    def on_headers_complete(self) -> None:
        self._stop()
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > self.limits.headers:
            self._refuse(431, f"headers of more than {self.limits.headers} bytes")
            return
        try:
            super().on_headers_complete()
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
            self._refuse(400, "the path is not valid")
            return
        self._in_headers = False

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop()
        self._completed += 1
        self._in_headers, self._header_bytes = True, 0
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_headers:  # the rest of the body of a refused request is read, but not for ever
            self._start(self.limits.header_seconds, 0, "")

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "the request is not valid HTTP/1.1")

    def _start(self, seconds: float, status: int, message: str) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self._refuse, status, message)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int, message: str) -> None:
        """Sends an error, unless a response has begun, and closes the connection."""
        self._refused = True
        self._stop()
        if self.transport.is_closing():
            return
        answering = bool(self.cycle) and not self.cycle.response_complete
        if status and not answering:
            self.transport.write(error_response(status, message))
        self.transport.close()


def connection_class(limits: Limits) -> type[LimitedConnection]:
    """The class of connections with `limits`."""
    return type("Connection", (LimitedConnection,), {"limits": limits})


def error_response(status: int, message: str) -> bytes:
    """A whole response with one JSON error."""
    body = msgspec.json.encode({"error": message})
    lines: list[Any] = [
        f"HTTP/1.1 {status} {_REASONS[status]}", "content-type: application/json", f"content-length: {len(body)}",
        "connection: close", "", "",
    ]
    return "\r\n".join(lines).encode() + body
