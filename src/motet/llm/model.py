"""A compiled language model, and generation."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import motet
from motet.argument_kinds import count_of, path_of
from motet.errors import OptionError, OutOfMemoryError
from motet.llm.architecture import Architecture
from motet.llm.decoder import BITS, WEIGHTS, build_decoder
from motet.llm.engine import Embeddings, Engine, Text
from motet.llm.model_source import ModelSource
from motet.llm.sampling import Sampling
from motet.llm.source import open_source
from motet.llm.writing import TextWriter


@dataclass(frozen=True)
class TextPiece:
    """One generated token, and the text that it completes: empty within a character or a possible stop string. The
    token is -1 for text that was held back until the end."""

    token: int
    text: str


@dataclass(frozen=True)
class Generation:
    """What a call generated. `reason` is `end` (the model's own end), `stop` (a stop string) or `length`. Times are in
    seconds: `first` until the first token, `rest` for all others."""

    tokens: list[int]
    text: str
    reason: str
    first: float
    rest: float


def load(
    path: str | os.PathLike[str], *, context: int = 2048, weights: str | None = None, chunk: int = 256,
    batch: int = 1, threads: int | None = None, device: str | tuple[str, int] | None = None,
) -> LanguageModel:
    """The model in the folder or GGUF file `path`, compiled, for texts of up to `context` tokens (at most what the
    model allows; longer ones if all layers have sliding windows).

    `weights` is how matrices are stored: `f32`, `bf16`, `int8` or `int4`, in blocks of 32 or, as in `int4:128`, of 64
    or 128, or `stored`, as the file has them, the default for GGUF files; otherwise `f32`. `chunk` is how many tokens
    of prompts one call reads, `batch` for how many texts of full length the cache has room. `device` is a device
    expression, or one with the number of the last layers that are there, all others being on the host. Raises
    OptionError for a file that is not a supported model, OutOfMemoryError, before anything is loaded, if the model does
    not fit, CompileError.
    """
    context, chunk, batch = count_of("context", context), count_of("chunk", chunk), count_of("batch", batch)
    source = open_source(path_of("path", path, "the path of a model's folder, or of a GGUF file"))
    kind, _, size = (weights or ("stored" if source.is_gguf else "f32")).partition(":")
    if size and (not size.isdigit() or kind not in BITS):
        raise OptionError(f"weights: {weights!r}; expected a group only for {', '.join(BITS)}, as in int4:128")
    group = int(size) if size else 32
    device, gpu_layers = device if isinstance(device, tuple) else (device, None)
    if kind not in WEIGHTS:
        raise OptionError(f"weights: {kind!r} is not known; expected one of {', '.join(WEIGHTS)}")
    a = source.architecture
    if gpu_layers is not None and not 0 <= gpu_layers <= a.layers:
        raise OptionError(f"gpu_layers: {gpu_layers}; expected 0 to {a.layers}, the model's layers")
    context = min(context, a.context)
    _check_memory(source, context * batch, kind)
    graph = build_decoder(a, source.tensors, kind, group, gpu_layers or None)
    devices = {"gpu": device or "cuda,@cpu", "cpu": "host"} if gpu_layers else device
    session = motet.load(motet.compile(graph, devices=devices, cache=False), threads=threads)
    positions = source.tensors.get("model.positions.weight")
    learnt = None if positions is None else np.asarray(positions, np.float32)
    embeddings = Embeddings(source.tensors["model.embed_tokens.weight"], learnt, a.embedding_scale)
    engine = Engine(a, embeddings, session, context, chunk, context * batch)
    return LanguageModel(a, engine, source.tokenizer, source.template, source.special, source.notes)


def _check_memory(source: ModelSource, places: int, kind: str) -> None:
    """Raises OutOfMemoryError if the artifact, what compiling it needs, and the cache exceed the memory there is."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return
    a = source.architecture
    available = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")), None)
    width = {"f32": 4.0, "bf16": 2.0}.get(kind, 1.0)
    stored = BITS.get(kind, 8 * width) / 8 + 0.0625
    matrices = sum(tensor.size for tensor in source.tensors.values() if len(tensor.shape) == 2) * (width + stored)
    needed = int(matrices) + 8 * a.layers * a.key_heads * places * a.head_size
    if available is not None and needed > available:
        raise OutOfMemoryError(needed, f"host ({available:,} bytes available)")


@dataclass
class LanguageModel:
    """A model that generates texts. Not thread-safe. `special` are the texts of the tokens that begin and end texts,
    for chat templates; `notes` say what of a file is not stored as it was."""

    architecture: Architecture
    engine: Engine
    tokenizer: Any
    template: str | None
    special: Mapping[str, str]
    notes: Sequence[str] = ()

    @property
    def session(self) -> motet.Session:
        return self.engine.session

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        """The logits of the token after `tokens`, f32 [vocabulary]. Raises CallError for no tokens, tokens outside the
        vocabulary, or more than the context has room for."""
        text = Text(list(tokens), 1, Sampling())
        self.engine.add(text)
        try:
            return self.engine.logits(text)
        finally:
            self.engine.remove(text, "stop")

    def encode(self, prompt: str | Sequence[int]) -> list[int]:
        """The tokens of a prompt. Raises OptionError for text if the model has no tokenizer."""
        if not isinstance(prompt, str):
            return list(prompt)
        if self.tokenizer is None:
            raise OptionError("prompt: the model has no tokenizer.json; expected tokens, and no stop strings")
        return self.tokenizer.encode(prompt).ids

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens of a conversation, by the model's chat template, up to where the answer begins. Raises OptionError
        if it has none, or the template refuses the messages."""
        if self.template is None:
            raise OptionError("messages: the model has no chat template; expected a prompt")
        try:
            sandbox = importlib.import_module("jinja2.sandbox")
        except ModuleNotFoundError:
            raise OptionError("messages: chat templates need jinja2; pip install 'motet[llm]'") from None
        environment = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])

        def refuse(message: str) -> None:
            raise OptionError(f"messages: the chat template refuses them: {message}")

        environment.globals["raise_exception"] = refuse
        try:
            text = environment.from_string(self.template).render(
                messages=list(messages), add_generation_prompt=True, **self.special)
        except OptionError:
            raise
        except Exception as error:  # a template is a program of the model's author
            raise OptionError(f"messages: the chat template fails: {error}") from None
        if self.tokenizer is None:
            raise OptionError("messages: the model has no tokenizer.json; expected tokens")
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def stream(
        self, prompt: str | Sequence[int], *, tokens: int = 128, sampling: Sampling | None = None,
        stop: Sequence[str] = (),
    ) -> Iterator[TextPiece]:
        """Generate up to `tokens` tokens after `prompt`, one at a time. Raises CallError as `read` does."""
        for _, piece, _ in self.stream_all([prompt], tokens=tokens, sampling=[sampling or Sampling()], stop=stop):
            if piece is not None:
                yield piece

    def stream_all(
        self, prompts: Sequence[str | Sequence[int]], *, tokens: int, sampling: Sequence[Sampling],
        stop: Sequence[str] = (),
    ) -> Iterator[tuple[int, TextPiece | None, str | None]]:
        """Generate after several prompts in common calls: the number of the prompt, with a piece, and the reason when
        the text has ended. Raises CallError as `read` does."""
        if tokens < 1:
            raise OptionError(f"tokens: {tokens}; expected 1 or more")
        if stop and self.tokenizer is None:
            raise OptionError("stop: the model has no tokenizer.json; expected no stop strings")
        texts = [Text(self.encode(prompt), tokens, each) for prompt, each in zip(prompts, sampling, strict=True)]
        running: dict[Text, tuple[int, TextWriter]] = {}
        try:
            for number, text in enumerate(texts):
                self.engine.add(text)
                running[text] = number, TextWriter(self.tokenizer, stop)
            while running:
                for text, token in self.engine.step():
                    if text in running:
                        yield from self._written(text, token, *running[text])
                        if text.reason is not None:
                            del running[text]
        finally:
            for text in texts:
                self.engine.remove(text, "stop")

    def _written(
        self, text: Text, token: int, number: int, writer: TextWriter
    ) -> Iterator[tuple[int, TextPiece | None, str | None]]:
        """The pieces that a token makes, and the end of the text."""
        if text.reason != "end":
            yield number, TextPiece(token, writer.add(token)), None
        if writer.stopped:
            self.engine.remove(text, "stop")
            text.reason = "stop"
        if text.reason is not None:
            rest = writer.finish()
            yield number, TextPiece(-1, rest) if rest else None, text.reason

    def generate(
        self, prompt: str | Sequence[int], *, tokens: int = 128, sampling: Sampling | None = None,
        stop: Sequence[str] = (),
    ) -> Generation:
        """Generate up to `tokens` tokens after `prompt`. The text ends before a string of `stop`. Raises CallError as
        `read` does, OptionError if text is given or `stop` is, and the model has no tokenizer."""
        return self.generate_all([prompt], tokens=tokens, sampling=sampling, stop=stop)[0]

    def generate_all(
        self, prompts: Sequence[str | Sequence[int]], *, tokens: int = 128, sampling: Sampling | None = None,
        stop: Sequence[str] = (),
    ) -> list[Generation]:
        """Generate after each prompt as `generate` does, in common calls; texts that find no room in the cache wait for
        others to end."""
        begin = time.perf_counter()
        pieces: list[list[TextPiece]] = [[] for _ in prompts]
        reasons, firsts, ends = [""] * len(prompts), [begin] * len(prompts), [begin] * len(prompts)
        settings = [sampling or Sampling()] * len(prompts)
        for number, piece, reason in self.stream_all(prompts, tokens=tokens, sampling=settings, stop=stop):
            now = time.perf_counter()
            if piece is not None:
                if not pieces[number]:
                    firsts[number] = now
                pieces[number].append(piece)
            if reason is not None:
                reasons[number], ends[number] = reason, now
        return [
            Generation([piece.token for piece in own if piece.token >= 0], "".join(piece.text for piece in own),
                       reason, first - begin, end - first)
            for own, reason, first, end in zip(pieces, reasons, firsts, ends, strict=True)
        ]
