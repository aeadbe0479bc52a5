"""motet serve: serves models over HTTP, in the KServe v2 inference protocol."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.errors import CallError, OptionError
from motet.tools import arguments

if TYPE_CHECKING:
    from motet.serving.batching import ModelQueue
    from motet.serving.language import LanguageService
    from motet.serving.limits import Limits
    from motet.serving.metrics import Metrics
    from motet.serving.model import ServedModel

HELP = """Serve models over HTTP, in the KServe v2 inference protocol, with tensors in JSON or binary.

\b
Examples:
  motet serve model.motet
  motet serve models/                          every .motet file in the folder
  motet serve digits=mlp.motet photos=resnet18.motet --port 8080
  motet serve model.motet --max-batch 32 --max-delay-ms 2
  curl http://127.0.0.1:8000/v2/models/model
  motet serve SmolLM-135M --weights int4 --max-batch 4

Language models, folders or GGUF files, answer /v1/completions and /v1/chat/completions as OpenAI's API does.

SIGTERM and SIGINT drain: the server answers what it has received, and exits with status 0; a second signal ends it at
once. /metrics is for Prometheus.
"""
_NEEDED = ("uvicorn", "starlette", "httptools", "prometheus_client")


# The parameters of this function are the options of `motet serve`, read by typer.
def serve_models(
    models: Annotated[list[str], typer.Argument(
        metavar="[NAME=]FILE...", show_default=False,
        help="Artifacts, or programs to compile first, each with the name of its URL; by default the file's name. A "
        "folder stands for the artifacts in it.",
    )],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="The port; 0 for any free one.")] = 8000,
    max_batch: Annotated[int, typer.Option(
        "--max-batch", metavar="ROWS", min=1,
        help="Join requests into calls of at most ROWS rows, for models with a dynamic leading extent and independent "
        "rows; 1: never.",
    )] = 1,
    max_delay: Annotated[float, typer.Option(
        "--max-delay-ms", metavar="MS", min=0, max=60000,
        help="How long a request waits for others to join. Requests also gather while calls run.",
    )] = 0,
    calls: Annotated[int, typer.Option(
        "--in-flight", metavar="N", min=1, help="The number of concurrent calls of each model.",
    )] = 2,
    context: Annotated[int, typer.Option(
        metavar="N", min=1, help="Language models: the longest text; --max-batch is for how many the cache has room.",
    )] = 2048,
    weights: Annotated[str | None, typer.Option(
        metavar="KIND", show_default=False, help="Language models: how matrices are stored, as for `motet generate`.",
    )] = None,
    threads: arguments.Threads = None,
    device: arguments.Bindings = None,
    max_body: Annotated[int, typer.Option("--max-body", metavar="BYTES", min=1, help="The largest body.")] = 64 << 20,
    max_json: Annotated[int, typer.Option(
        "--max-json", metavar="BYTES", min=1, help="The largest JSON part of a body.")] = 16 << 20,
    max_requests: Annotated[int, typer.Option(
        "--max-requests", metavar="N", min=1, help="Requests in flight; further ones get status 429.")] = 256,
    max_connections: Annotated[int, typer.Option(
        "--max-connections", metavar="N", min=1, help="Open connections; further ones get status 503.")] = 1024,
    timeout: Annotated[float, typer.Option(
        "--timeout", metavar="S", min=0.001, max=86400,
        help="Seconds for a body to arrive (else 408), for a call to start (503) and to end (504).")] = 30,
    header_timeout: Annotated[float, typer.Option(
        "--header-timeout", metavar="S", min=0.001, max=86400,
        help="Seconds for headers to arrive (else 408).")] = 10,
) -> None:
    _check_installed()
    from motet.serving.limits import Limits
    from motet.serving.metrics import Metrics
    from motet.serving.server import bind

    limits = Limits(body=max_body, json=max_json, requests=max_requests, connections=max_connections, seconds=timeout,
                    header_seconds=header_timeout)
    named, language = _kinds(_names(models))
    with bind(host, port) as bound:
        metrics = Metrics()
        loaded = [_load(name, file, device or [], threads, calls) for name, file in named]
        queues = _make_queues(loaded, metrics, max_batch, max_delay / 1000, calls)
        services = [_load_language(name, file, context, max_batch, weights, threads) for name, file in language]
        _serve(bound, queues, services, metrics, limits)
    for model in loaded:
        model.session.close()


def _serve(
    bound: socket.socket, queues: Sequence[ModelQueue], services: Sequence[LanguageService], metrics: Metrics,
    limits: Limits,
) -> None:
    """Answers requests until a signal."""
    from motet.serving.application import ServerState
    from motet.serving.server import serve

    state = ServerState({queue.model.name: queue for queue in queues}, metrics, limits)
    if services:
        from motet.serving.completions import CompletionRoutes

        state.language = CompletionRoutes({service.name: service for service in services}, limits).routes()
    address = bound.getsockname()

    def started() -> None:
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        names = [*state.queues, *(service.name for service in services)]
        typer.echo(f"serving {', '.join(names)} on http://{shown}:{address[1]}")

    serve(state, bound, started)
    for service in services:
        service.close()


def _check_installed() -> None:
    """Raises OptionError if a package of the extra `serve` is missing."""
    missing: list[str] = []
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    if missing:
        raise OptionError(f"serve: not installed: {', '.join(missing)}; run: pip install 'motet[serve]'")


def _names(models: Sequence[str]) -> list[tuple[str, str]]:
    """The name and the file of each model. Raises OptionError for a name that is no part of a URL, or occurs twice."""
    named: dict[str, str] = {}
    for text in [each for model in models for each in _in_folder(model)]:
        name, equals, file = text.partition("=")
        if not equals:
            name, file = Path(text).stem, text
        if not name or not file or not all(letter.isalnum() or letter in "-_." for letter in name):
            raise OptionError(f"{text}: expected NAME=FILE, with letters, digits, '-', '_' and '.' in the name")
        if name in named:
            raise OptionError(f"{text}: a model {name} is served already; give another name: NAME=FILE")
        named[name] = file
    return list(named.items())


def _in_folder(model: str) -> list[str]:
    """The artifacts of a folder that is no language model, in order; `model` itself otherwise. Raises OptionError for a
    folder without any."""
    folder = Path(model)
    if not folder.is_dir() or (folder / "config.json").exists():
        return [model]
    if not (found := sorted(str(file) for file in folder.glob("*.motet"))):
        raise OptionError(f"{model}: a folder with neither an artifact (*.motet) nor a language model (config.json)")
    return found


def _kinds(named: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Programs, and language models: GGUF files and folders with a config.json."""
    language = [
        (name, file) for name, file in named
        if Path(file).suffix == ".gguf" or (Path(file) / "config.json").exists()
    ]
    return [each for each in named if each not in language], language


def _load_language(
    name: str, file: str, context: int, batch: int, weights: str | None, threads: int | None
) -> LanguageService:
    from motet.llm import load
    from motet.serving.language import LanguageService

    model = load(file, context=context, batch=batch, weights=weights, threads=threads)
    for note in model.notes:
        typer.echo(f"note: {name}: {note}", err=True)
    return LanguageService(name, model)


def _load(name: str, file: str, devices: Sequence[str], threads: int | None, calls: int) -> ServedModel:
    from motet.runtime import load
    from motet.serving.model import ServedModel
    from motet.tools.opening import open_bound

    opened, bindings = open_bound(file, devices=devices)
    session = load(opened.artifact, devices=bindings or None, threads=threads, in_flight=calls)
    return ServedModel(name, session)


def _make_queues(
    models: Sequence[ServedModel], metrics: Metrics, max_batch: int, delay: float, calls: int
) -> list[ModelQueue]:
    """The queues of the models. Raises CallError if requests are to be joined and no model permits it."""
    from motet.serving.batching import ModelQueue
    from motet.serving.rows import why_not_joined

    queues: list[ModelQueue] = []
    reasons: list[str] = []
    for model in models:
        reason = why_not_joined(model) if max_batch > 1 else None
        if reason is not None:
            reasons.append(f"model {model.name}: requests cannot be joined: {reason}")
        most = max_batch if max_batch > 1 and reason is None else 0
        queues.append(ModelQueue(model, metrics, calls=calls, most=most, delay=delay))
    if reasons and len(reasons) == len(models):
        raise CallError(f"--max-batch {max_batch}: {'; '.join(reasons)}")
    for reason in reasons:
        typer.echo(f"note: {reason}", err=True)
    return queues
