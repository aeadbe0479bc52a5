"""Language models that are served: a thread runs each, and joins the requests that are there into common calls."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from motet.errors import CallError, MotetError
from motet.llm import LanguageModel, Sampling
from motet.llm.engine import Text
from motet.llm.writing import TextWriter


@dataclass(frozen=True)
class Delta:
    """What a text has grown by: `tokens` more, and `text`, with the reason if it has ended."""

    text: str
    tokens: int
    reason: str | None = None


@dataclass(eq=False)
class _ServedText:
    text: Text
    writer: TextWriter
    loop: asyncio.AbstractEventLoop
    deltas: asyncio.Queue[Delta | Exception] = field(default_factory=asyncio.Queue["Delta | Exception"])

    def send(self, delta: Delta | Exception) -> None:
        try:
            self.loop.call_soon_threadsafe(self.deltas.put_nowait, delta)
        except RuntimeError:  # the loop has ended, and its readers with it
            self.text.reason = "stop"


class LanguageService:
    """One model and its thread."""

    def __init__(self, name: str, model: LanguageModel) -> None:
        self.name, self.model = name, model
        self._asked = queue.SimpleQueue[_ServedText | None]()
        self._running: dict[Text, _ServedText] = {}
        self._thread = threading.Thread(target=self._run, name=f"motet-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, and closes the session."""
        self._asked.put(None)
        self._thread.join()
        self.model.session.close()

    async def generate(
        self, tokens: Sequence[int], limit: int, sampling: Sampling, stop: Sequence[str]
    ) -> AsyncGenerator[Delta, None]:
        """The text after `tokens`, as it grows. Raises CallError as `Engine.add` does."""
        running = _ServedText(
            Text(list(tokens), limit, sampling), TextWriter(self.model.tokenizer, stop), asyncio.get_running_loop())
        self._asked.put(running)
        try:
            while True:
                delta = await running.deltas.get()
                if isinstance(delta, Exception):
                    raise delta
                yield delta
                if delta.reason is not None:
                    return
        finally:
            if running.text.reason is None:  # the reader has gone: the thread removes the text
                running.text.reason = "stop"

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        engine = self.model.engine
        while True:
            if not self._take():
                return
            for text in [text for text in self._running if text.reason is not None]:
                engine.remove(text, "stop")
                del self._running[text]
            try:
                given = engine.step()
            except Exception as error:  # no text can go on
                for running in self._running.values():
                    engine.remove(running.text, "stop")
                    running.send(error if isinstance(error, MotetError) else CallError(f"{type(error).__name__}"))
                self._running.clear()
                continue
            for text, token in given:
                self._give(text, token)

    def _take(self) -> bool:
        """Takes what is asked for; waits if there is nothing to do. Returns False at the end."""
        while True:
            try:
                running = self._asked.get(block=not self._running)
            except queue.Empty:
                return True
            if running is None:
                return False
            try:
                self.model.engine.add(running.text)
            except MotetError as error:
                running.send(error)
                continue
            self._running[running.text] = running

    def _give(self, text: Text, token: int) -> None:
        running = self._running.get(text)
        if running is None:
            return
        piece = running.writer.add(token) if text.reason != "end" else ""
        if running.writer.stopped:
            text.reason = "stop"
        if text.reason is not None:  # also if its reader has gone during the call
            self.model.engine.remove(text, "stop")
            piece += running.writer.finish()
            del self._running[text]
        running.send(Delta(piece, 0 if text.reason == "end" else 1, text.reason))
