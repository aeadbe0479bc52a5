"""The routes /v1/completions and /v1/chat/completions, with OpenAI's requests and responses, also as events.

Format: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from motet.decoding import decode_json
from motet.errors import CallError, OptionError
from motet.llm import Sampling
from motet.serving.language import Delta, LanguageService
from motet.serving.limits import Limits

_REASONS = {"end": "stop", "stop": "stop", "length": "length"}


class ChatMessage(msgspec.Struct):
    """One message of a conversation."""

    role: str
    content: str


class CompletionRequest(msgspec.Struct):
    """What both routes read; fields that are not here are not supported, and ignored."""

    model: str
    prompt: str | list[int] | None = None
    messages: list[ChatMessage] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False


@dataclass(frozen=True)
class _Answer:
    """What all parts of a response have in common."""

    number: str
    model: str
    is_chat: bool
    prompt: int

    def body(self, text: str, reason: str | None, *, begun: bool, whole: bool) -> dict[str, Any]:
        """A response, or a part of one. Parts of a chat name the speaker once."""
        kind = ("chat.completion" if self.is_chat else "text_completion") + (
            ".chunk" if self.is_chat and not whole else "")
        choice: dict[str, Any] = {"index": 0, "finish_reason": None if reason is None else _REASONS[reason]}
        if not self.is_chat:
            choice["text"] = text
        else:
            message = {"content": text} if begun else {"role": "assistant", "content": text}
            choice["message" if whole else "delta"] = message
        return {"id": self.number, "object": kind, "created": int(time.time()), "model": self.model,
                "choices": [choice]}


class CompletionRoutes:
    """The handlers of the routes."""

    def __init__(self, services: Mapping[str, LanguageService], limits: Limits) -> None:
        self._services, self._limits = services, limits
        self._numbers = itertools.count(1)
        self._admitted = 0

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]

    async def models(self, request: Request) -> Response:
        data = [{"id": name, "object": "model", "owned_by": "motet"} for name in self._services]
        return _json({"object": "list", "data": data})

    async def complete(self, request: Request) -> Response:
        return await self._answer(request, is_chat=False)

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, is_chat=True)

    async def _answer(self, request: Request, *, is_chat: bool) -> Response:
        if self._admitted >= self._limits.requests:
            return _error(429, f"{self._limits.requests} requests are in flight already")
        try:
            async with asyncio.timeout(self._limits.seconds):
                body = bytearray()
                async for part in request.stream():
                    body += part
                    if len(body) > self._limits.json:
                        return _error(413, f"a body of more than {self._limits.json} bytes")
            read = decode_json(body, CompletionRequest)
            return await self._respond(read, is_chat)
        except msgspec.DecodeError as error:
            return _error(400, f"the request is not valid: {error}")
        except TimeoutError:
            return _error(408, f"the body did not arrive within {self._limits.seconds:g} s")
        except ClientDisconnect:
            return _error(400, "the client closed the connection")
        except (OptionError, CallError) as error:
            return _error(400, str(error))

    async def _respond(self, read: CompletionRequest, is_chat: bool) -> Response:
        service = self._services.get(read.model)
        if service is None:
            return _error(404, f"no model {read.model[:80]!r}; there are: {', '.join(self._services) or 'none'}")
        wanted = "messages" if is_chat else "prompt"
        given = read.messages if is_chat else read.prompt
        if not given:
            return _error(400, f"{wanted}: not given, or empty")
        model = service.model
        tokens = (model.chat([{"role": each.role, "content": each.content} for each in read.messages or ()])
                  if is_chat else model.encode(read.prompt or ""))
        seed = read.seed if read.seed is not None else time.time_ns() % (1 << 32)
        sampling = Sampling(read.temperature, read.top_k, read.top_p, read.min_p, read.repetition_penalty, seed)
        limit = read.max_completion_tokens or read.max_tokens or (1 << 30 if is_chat else 16)
        stop = [read.stop] if isinstance(read.stop, str) else read.stop or []
        number = f"{'chatcmpl' if is_chat else 'cmpl'}-{next(self._numbers)}"
        answer = _Answer(number, service.name, is_chat, len(tokens))
        deltas = service.generate(tokens, limit, sampling, stop)
        if not read.stream:
            return await self._whole(answer, deltas)
        first = await anext(deltas)  # errors of the request are responses, not events
        return StreamingResponse(self._events(answer, first, deltas), media_type="text/event-stream")

    async def _whole(self, answer: _Answer, deltas: AsyncGenerator[Delta, None]) -> Response:
        self._admitted += 1
        try:
            made = [delta async for delta in deltas]
        finally:
            self._admitted -= 1
            await deltas.aclose()
        body = answer.body("".join(each.text for each in made), made[-1].reason, begun=False, whole=True)
        count = sum(each.tokens for each in made)
        body["usage"] = {"prompt_tokens": answer.prompt, "completion_tokens": count,
                         "total_tokens": answer.prompt + count}
        return _json(body)

    async def _events(self, answer: _Answer, first: Delta, deltas: AsyncGenerator[Delta, None]) -> AsyncIterator[bytes]:
        self._admitted += 1
        try:
            yield _event(answer.body(first.text, first.reason, begun=False, whole=False))
            async for delta in deltas:
                yield _event(answer.body(delta.text, delta.reason, begun=True, whole=False))
                await asyncio.sleep(0)  # the loop notices a closed connection before more is written to it
        except CallError as error:
            yield _event({"error": {"message": str(error), "type": "server_error"}})
        finally:
            self._admitted -= 1
            await deltas.aclose()
        yield b"data: [DONE]\n\n"


def _event(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _error(status: int, message: str) -> Response:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return _json({"error": {"message": message, "type": kind, "param": None, "code": None}}, status)
