"""The routes of language models, asked over ASGI: answers, events, requests that are refused, readers that leave."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import motet.llm

gguf: Any = pytest.importorskip("gguf", reason="needs gguf: pip install 'motet[llm]'")
pytest.importorskip("starlette", reason="needs starlette: pip install 'motet[serve]'")
pytest.importorskip("jinja2", reason="needs jinja2: pip install 'motet[llm]'")

from starlette.applications import Starlette  # noqa: E402

from motet.serving.completions import CompletionRoutes  # noqa: E402
from motet.serving.language import LanguageService  # noqa: E402
from motet.serving.limits import Limits  # noqa: E402

EXAMPLE = Path(__file__).parents[3] / "examples" / "make_gguf.py"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageService]:
    file = tmp_path_factory.mktemp("served") / "tiny.gguf"
    specification = importlib.util.spec_from_file_location("make_gguf", EXAMPLE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    module.write_model(file, gguf.GGMLQuantizationType.Q8_0)
    made = LanguageService("tiny", motet.llm.load(file, context=64, batch=2, device="host{cpu=native}"))
    yield made
    made.close()


async def ask(app: Starlette, path: str, body: Any) -> tuple[int, bytes]:
    """One request, without a socket."""
    sent: list[dict[str, Any]] = []
    parts = [{"type": "http.request", "body": body if isinstance(body, bytes) else json.dumps(body).encode()}]

    async def receive() -> dict[str, Any]:
        if parts:
            return parts.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "http_version": "1.1"}
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


def asked(service: LanguageService, *requests: tuple[str, Any]) -> list[tuple[int, bytes]]:
    app = Starlette(routes=CompletionRoutes({"tiny": service}, Limits()).routes())

    async def all_of_them() -> list[tuple[int, bytes]]:
        return await asyncio.gather(*(ask(app, path, body) for path, body in requests))

    return asyncio.run(all_of_them())


def test_answers_at_once_and_as_events_are_those_of_the_model(service: LanguageService) -> None:
    prompts = ["Once", "the thin", "x"]
    common = {"model": "tiny", "max_tokens": 7, "temperature": 0}
    requests = [("/v1/completions", {**common, "prompt": prompt, "stream": stream})
                for prompt in prompts for stream in (False, True)]
    chat = {**common, "messages": [{"role": "user", "content": "hi"}]}
    answers = asked(service, *requests, ("/v1/chat/completions", chat))
    for number, prompt in enumerate(prompts):
        wanted = service.model.generate(prompt, tokens=7)
        (status, whole), (_, events) = answers[2 * number : 2 * number + 2]
        body = json.loads(whole)
        assert status == 200 and body["choices"][0]["text"] == wanted.text
        assert body["usage"]["completion_tokens"] == len(wanted.tokens)
        lines = [line[6:] for line in events.decode().split("\n\n") if line]
        assert lines[-1] == "[DONE]"
        assert "".join(json.loads(line)["choices"][0]["text"] for line in lines[:-1]) == wanted.text
        assert json.loads(lines[-2])["choices"][0]["finish_reason"] == body["choices"][0]["finish_reason"]
    message = json.loads(answers[-1][1])["choices"][0]["message"]
    tokens = service.model.chat(chat["messages"])
    assert message == {"role": "assistant", "content": service.model.generate(tokens, tokens=7).text}


@pytest.mark.parametrize(("body", "status", "message"), [
    (b"{", 400, "not valid"), ({"model": "x", "prompt": "a"}, 404, "there are: tiny"),
    ({"model": "tiny"}, 400, "prompt: not given"), ({"model": "tiny", "prompt": "a" * 99}, 400, "context of 64"),
    ({"model": "tiny", "prompt": "a", "top_p": 2}, 400, "top_p"),
    ({"model": "tiny", "prompt": [999]}, 400, "vocabulary"),
    ({"model": "tiny", "prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
])
def test_unsuitable_requests_are_refused(service: LanguageService, body: Any, status: int, message: str) -> None:
    got, answer = asked(service, ("/v1/completions", body))[0]
    assert got == status and message in json.loads(answer)["error"]["message"]


def test_a_reader_that_leaves_frees_its_places(service: LanguageService) -> None:
    async def leave() -> None:
        deltas = service.generate([1, 2, 3], 50, motet.llm.Sampling(), [])
        await anext(deltas)
        await deltas.aclose()
        async for _ in service.generate([5], 2, motet.llm.Sampling(), []):
            pass

    asyncio.run(leave())
    for _ in range(100):
        if not service.model.engine.busy:
            break
        asyncio.run(asyncio.sleep(0.05))
    assert sorted(service.model.engine.pool.free) == list(range(128))
