"""Runs the application on uvicorn until a signal, and drains it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from motet.errors import OptionError
from motet.serving.application import ServerState, make_application
from motet.serving.connection import connection_class


class DrainingServer(uvicorn.Server):
    """A server whose first signal starts draining and whose second one ends it at once.

    While it drains, it is not ready, new requests are answered, and every response closes its connection. After
    `drain_seconds` the port is closed, and the requests that are left are completed.
    """

    def __init__(self, config: uvicorn.Config, state: ServerState, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._state = state
        self._tell_started = started
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._tell_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._state.draining or self._loop is None:
            self.should_exit = self.force_exit = True
            return
        self._state.draining = True
        self._loop.call_soon_threadsafe(self._loop.call_later, self._state.limits.drain_seconds, self._stop)

    def _stop(self) -> None:
        self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` and `port`; port 0 is any free one. Raises OptionError."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, number)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"--host {host} --port {port}: cannot be bound: {why[:1].lower()}{why[1:]}") from None
    return bound


def serve(state: ServerState, bound: socket.socket, started: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT; returns when all requests are answered. `started` is called when the port is
    open."""
    limits = state.limits
    config = uvicorn.Config(
        make_application(state), http=connection_class(limits), ws="none", lifespan="on", log_config=None,
        log_level="error", access_log=False, server_header=False, timeout_keep_alive=int(limits.idle_seconds),
        backlog=2048, timeout_graceful_shutdown=int(2 * limits.seconds) + 1,
    )
    DrainingServer(config, state, started).run(sockets=[bound])
