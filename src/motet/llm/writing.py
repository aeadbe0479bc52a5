"""The text of tokens: whole characters, and no part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_UNFINISHED = "\ufffd"  # what decoders write for an incomplete character


@dataclass
class TextWriter:
    """Turns tokens into text that is final: whole characters, and no part of a stop string."""

    tokenizer: Any
    stop: Sequence[str] = ()
    stopped: bool = False
    _tokens: list[int] = field(default_factory=list[int])
    _written: int = 0

    def add(self, token: int) -> str:
        """The text that `token` completes."""
        if self.tokenizer is None:
            return ""
        self._tokens.append(token)
        text: str = self.tokenizer.decode(self._tokens, skip_special_tokens=True)
        found = [place for string in self.stop if string and (place := text.find(string)) >= 0]
        self.stopped = bool(found)
        end = min(found) if found else len(text.rstrip(_UNFINISHED)) if text.endswith(_UNFINISHED) else len(text)
        if not found:
            end -= max((self._begun(text[:end], string) for string in self.stop), default=0)
        return self._until(text, end)

    def finish(self) -> str:
        """The text that was held back."""
        if self.tokenizer is None or self.stopped or not self._tokens:
            return ""
        text: str = self.tokenizer.decode(self._tokens, skip_special_tokens=True)
        return self._until(text, len(text))

    def _until(self, text: str, end: int) -> str:
        begin, self._written = self._written, max(self._written, end)
        return text[begin:end]

    @staticmethod
    def _begun(text: str, string: str) -> int:
        """How many characters at the end of `text` begin `string`."""
        return next((size for size in range(min(len(text), len(string) - 1), 0, -1) if text.endswith(string[:size])), 0)
