"""The routes of a server: health, metadata, metrics and inference. Every error is one JSON object, `{"error": …}`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from motet.errors import OutOfMemoryError
from motet.serving import protocol
from motet.serving.batching import ModelQueue, QueuedRequest, Results
from motet.serving.errors import RequestError
from motet.serving.limits import Limits
from motet.serving.metrics import Metrics
from motet.serving.model import VERSION
from motet.version import VERSION as MOTET

_LOG = logging.getLogger("motet.serving")
_LONG = 64 << 10  # bytes of JSON from which reading and writing leave the event loop


@dataclass
class ServerState:
    """What the routes share. `language` are the routes of language models.
    `draining` is set by SIGTERM: responses then close their connections."""

    queues: Mapping[str, ModelQueue]
    metrics: Metrics
    limits: Limits
    draining: bool = False
    admitted: int = 0
    language: Sequence[Route] = ()
    abandoned: set[asyncio.Future[Results]] = field(default_factory=set[asyncio.Future[Results]])


def make_application(state: ServerState) -> Starlette:
    """The ASGI application of a server."""
    handlers = _Handlers(state)
    model = "/v2/models/{name}"
    routes = [
        Route("/v2", handlers.server, methods=["GET"]),
        Route("/v2/health/live", handlers.live, methods=["GET"]),
        Route("/v2/health/ready", handlers.ready, methods=["GET"]),
        Route("/metrics", handlers.metrics, methods=["GET"]),
        *state.language,
    ]
    for prefix in (model, model + "/versions/{version}"):
        routes += [
            Route(prefix, handlers.model, methods=["GET"]),
            Route(prefix + "/ready", handlers.model_ready, methods=["GET"]),
            Route(prefix + "/infer", handlers.infer, methods=["POST"]),
        ]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        tasks = [asyncio.create_task(queue.run()) for queue in state.queues.values()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return Starlette(routes=routes, exception_handlers={HTTPException: handlers.http_error}, lifespan=lifespan)


class _Handlers:
    """The functions of the routes."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def server(self, request: Request) -> Response:
        return self._json({"name": "motet", "version": MOTET, "extensions": ["binary_tensor_data"]})

    async def live(self, request: Request) -> Response:
        return self._json({"live": True})

    async def ready(self, request: Request) -> Response:
        ready = not self._state.draining
        return self._json({"ready": ready}, 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        return self._respond(self._state.metrics.text(), 200, CONTENT_TYPE_LATEST)

    async def model(self, request: Request) -> Response:
        return await self._answer(request, self._describe, counted=False)

    async def model_ready(self, request: Request) -> Response:
        return await self._answer(request, self._describe_ready, counted=False)

    async def infer(self, request: Request) -> Response:
        return await self._answer(request, self._infer, counted=True)

    def http_error(self, request: Request, error: Exception) -> Response:
        """The response for a path without a route, or a method that a route lacks."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        reason = {
            404: f"no path {request.url.path[:200]}; models are at /v2/models/NAME",
            405: f"{request.method} is not allowed for {request.url.path[:200]}",
        }.get(status, str(error))
        self._state.metrics.requests.labels("", str(status)).inc()
        headers = dict((error.headers if isinstance(error, HTTPException) else None) or {})
        return self._json({"error": reason}, status, headers)

    # -- models ----------------------------------------------------------------------------------

    async def _describe(self, request: Request, queue: ModelQueue) -> Response:
        return self._json(queue.model.describe())

    async def _describe_ready(self, request: Request, queue: ModelQueue) -> Response:
        ready = not self._state.draining
        return self._json({"name": queue.model.name, "ready": ready}, 200 if ready else 503)

    async def _infer(self, request: Request, queue: ModelQueue) -> Response:
        length = _check_headers(request, self._state.limits)
        body = await _read_body(request, self._state.limits, length is not None)
        if (length or len(body)) > self._state.limits.json:
            raise RequestError(413, f"{length or len(body)} bytes of JSON; expected at most {self._state.limits.json}; "
                                    "send tensors as binary data")  # fmt: skip
        model = queue.model
        read = await _run(protocol.read_request, length or len(body), body, length, model.inputs, model.results)
        del body
        kind = protocol.BINARY if any(binary for _, binary in read.wanted) else protocol.JSON
        if not _accepts(request, kind):
            accepted = request.headers.get("accept", "")[:80]
            raise RequestError(406, f"accept: {accepted!r}; the response would be of type {kind}")
        values = await self._wait(queue, queue.add(read.inputs))
        size = sum(value.size for value in values) * 8
        content, head = await _run(protocol.write_response, size, model.name, read, values, model.results)
        if head is None:
            return self._respond(content, 200, protocol.JSON)
        return self._respond(content, 200, protocol.BINARY, {protocol.HEADER_LENGTH: str(head)})

    async def _wait(self, queue: ModelQueue, entry: QueuedRequest) -> Results:
        """The results of a request. Raises RequestError if they take too long."""
        limit = self._state.limits.seconds
        done, _ = await asyncio.wait([entry.future], timeout=limit)
        if done:
            return entry.future.result()
        if entry.started:
            self._abandon(entry.future)
            raise RequestError(504, f"model {queue.model.name}: the call takes longer than {limit:g} s")
        queue.discard(entry)
        raise RequestError(503, f"model {queue.model.name}: no call was free for {limit:g} s", retry_after=1)

    def _abandon(self, future: asyncio.Future[Results]) -> None:
        """Counts a call without a reader as in flight until it ends: it still takes its place."""
        self._state.admitted += 1
        self._state.abandoned.add(future)

        def end(ended: asyncio.Future[Results]) -> None:
            self._state.admitted -= 1
            self._state.abandoned.discard(ended)
            if not ended.cancelled():
                ended.exception()

        future.add_done_callback(end)

    # -- all requests ----------------------------------------------------------------------------

    async def _answer(
        self, request: Request, handle: Callable[[Request, ModelQueue], Awaitable[Response]], *, counted: bool
    ) -> Response:
        """Calls `handle` with the model that the path names; its errors become responses."""
        name, start = "", perf_counter()
        try:
            queue = self._find(request)
            name = queue.model.name
            response = await (self._admit(request, queue, handle) if counted else handle(request, queue))
        except RequestError as error:
            headers = {"retry-after": str(error.retry_after)} if error.retry_after else {}
            response = self._json({"error": str(error)}, error.status, headers)
        except ClientDisconnect:
            response = self._json({"error": "the client closed the connection"}, 400)
        except (OutOfMemoryError, MemoryError):
            response = self._json({"error": "not enough memory for the request"}, 503, {"retry-after": "1"})
        except Exception as error:
            _LOG.exception("%s %s", request.method, request.url.path)
            response = self._json({"error": f"internal error: {type(error).__name__}"}, 500)
        if counted:
            self._state.metrics.requests.labels(name, str(response.status_code)).inc()
            self._state.metrics.seconds.labels(name).observe(perf_counter() - start)
        return response

    async def _admit(
        self, request: Request, queue: ModelQueue, handle: Callable[[Request, ModelQueue], Awaitable[Response]]
    ) -> Response:
        """Counts the request as in flight while it is handled."""
        state = self._state
        if state.admitted >= state.limits.requests:
            raise RequestError(429, f"{state.limits.requests} requests are in flight already", retry_after=1)
        state.admitted += 1
        state.metrics.in_flight.set(state.admitted)
        try:
            return await handle(request, queue)
        finally:
            state.admitted -= 1
            state.metrics.in_flight.set(state.admitted)

    def _find(self, request: Request) -> ModelQueue:
        name, version = request.path_params["name"], request.path_params.get("version", VERSION)
        queue = self._state.queues.get(name)
        if queue is None:
            raise RequestError(404, f"no model {name[:80]!r}; there are: {', '.join(self._state.queues)}")
        if version != VERSION:
            raise RequestError(404, f"model {name}: no version {version[:80]!r}; there is: {VERSION}")
        return queue

    def _json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        return self._respond(msgspec.json.encode(value), status, protocol.JSON, headers)

    def _respond(
        self, content: bytes, status: int, kind: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        closing = {"connection": "close"} if self._state.draining else {}
        return Response(content, status, {**closing, **(headers or {}), "content-type": kind})


# -- reading -------------------------------------------------------------------------------------------------


def _check_headers(request: Request, limits: Limits) -> int | None:
    """The length of the JSON if binary tensors follow it. Raises RequestError for unsuitable headers."""
    headers = request.headers
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise RequestError(415, f"content-encoding {encoding[:40]!r}; expected none")
    kind = headers.get("content-type", protocol.JSON).partition(";")[0].strip().lower()
    if kind not in (protocol.JSON, protocol.BINARY):
        raise RequestError(415, f"content-type {kind[:80]!r}; expected {protocol.JSON}, or {protocol.BINARY} with "
                                "binary tensors")  # fmt: skip
    if int(headers.get("content-length", "0")) > limits.body:  # a number: the server's parser has read it
        raise RequestError(413, f"a body of {headers['content-length']} bytes; expected at most {limits.body}")
    given = headers.get(protocol.HEADER_LENGTH)
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 12:
        raise RequestError(400, f"{protocol.HEADER_LENGTH}: {given[:40]!r} given; expected a number of bytes")
    return int(given)


async def _read_body(request: Request, limits: Limits, binary: bool) -> bytes:
    """The body, of a limited size, within a limited time."""
    most = limits.body if binary else min(limits.body, limits.json)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise RequestError(413, f"a body of more than {most} bytes; expected at most {most}"
                                            f"{'' if binary else ' of JSON; send tensors as binary data'}")  # fmt: skip
                parts.append(part)
    except TimeoutError:
        raise RequestError(408, f"the body did not arrive within {limits.seconds:g} s") from None
    return b"".join(parts)


def _accepts(request: Request, needed: str) -> bool:
    """Whether the header Accept permits a response of type `needed`."""
    family = needed.partition("/")[0] + "/*"
    for entry in request.headers.get("accept", "*/*").split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        if kind in (needed, family, "*/*") and not any(part in ("q=0", "q=0.0") for part in parameters):
            return True
    return False


async def _run(function: Callable[..., Any], size: int, *arguments: Any) -> Any:
    """Calls `function`, on a thread if it handles much data."""
    if size < _LONG:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
