"""The token stream of an MLIR text, edits on it, and the map from positions in edited text to the user's.

This module knows no operations; `spellings.py` has the rewritten syntax. The text is never reprinted: edits replace
ranges of it, so that everything else keeps its position, and positions in the edited text (in the parser's messages and
on parsed operations) map back exactly.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate

from motet.errors import CompileError, Location

# A whole `dense<…>` without nested brackets or strings is one token: decimal lists of weights have millions of
# characters, which no rewriting reads.
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<string>"[^"\\]*(?:\\.[^"\\]*)*")
      | (?P<resources>\{-\#.*?\#-\})
      | (?P<data>\bdense<[^<>"]*>)
      | (?P<name>[%^][\w$.\-]+(?:\#\d+)?|[@\#!]?[\w$.]+)
      | (?P<mark>->|::|>=|<=|==|.)""",
    re.VERBOSE | re.DOTALL,
)

_OPENING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_CLOSING = frozenset(_OPENING.values())


@dataclass(frozen=True)
class Token:
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Edit:
    """Replaces the characters `[start, end)` of the user's text."""

    start: int
    end: int
    text: str


class TextLines:
    """Converts between offsets of a text and lines and columns; a column counts UTF-8 bytes from 1, as in MLIR."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def offset(self, line: int, column: int) -> int:
        if not 1 <= line <= len(self.starts):
            return len(self.text)
        start = self.starts[line - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        content = self.text[start:end]
        if content.isascii():
            return min(start + column - 1, end)
        return start + len(content.encode()[: column - 1].decode(errors="ignore"))

    def position(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset; the column counts characters from 1."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1


@dataclass
class Source:
    """An MLIR text as the user wrote it, with its significant tokens."""

    text: str
    file: str
    tokens: list[Token] = field(init=False)
    lines: TextLines = field(init=False)

    def __post_init__(self) -> None:
        self.lines = TextLines(self.text)
        self.tokens = [
            Token(match.group(), match.start())
            for match in _TOKEN.finditer(self.text)
            if match.lastgroup != "space"
        ]

    def location(self, offset: int) -> Location:
        return Location(self.file, *self.lines.position(offset))

    def error(self, message: str, index: int) -> CompileError:
        """An error at the token with this index (the end of the text, if there is none)."""
        return self.error_at(message, self.tokens[index].start if index < len(self.tokens) else len(self.text))

    def error_at(self, message: str, offset: int) -> CompileError:
        """An error at the character with this offset."""
        return CompileError(message, self.location(offset))

    def at(self, index: int) -> str:
        """The token with this index, or the empty string past the end."""
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def slice(self, begin: int, end: int) -> str:
        """The text from token `begin` up to token `end`, the latter exclusive."""
        return self.text[self.tokens[begin].start : self.tokens[end - 1].end] if begin < end else ""

    def check_depth(self, most: int) -> None:
        """Raises CompileError if more than `most` brackets are inside each other."""
        depth = 0
        for index, token in enumerate(self.tokens):
            if token.text in _OPENING:
                depth += 1
                if depth > most:
                    raise self.error(f"{depth:,} brackets inside each other; expected at most {most:,}", index)
            elif token.text in _CLOSING:
                depth -= 1

    def group_end(self, index: int) -> int:
        """The token after the bracket that closes the one at `index`."""
        expected: list[str] = []
        for i in range(index, len(self.tokens)):
            text = self.tokens[i].text
            if text in _OPENING:
                expected.append(_OPENING[text])
            elif expected and text == expected[-1]:
                expected.pop()
                if not expected:
                    return i + 1
        raise self.error(f"`{self.at(index)}` is never closed; expected `{_OPENING[self.at(index)]}`", index)

    def type_end(self, index: int) -> int:
        """The token after the type that begins at `index`."""
        if self.at(index) == "(":
            index = self.group_end(index)
            return self.type_end(index + 1) if self.at(index) == "->" else index
        if not re.match(r"[\w!]", self.at(index)):
            raise self.error(f"expected a type, there is `{self.at(index) or 'the end of the text'}`", index)
        return self.group_end(index + 1) if self.at(index + 1) == "<" else index + 1


class Edited:
    """A source with edits applied. Raises no error: overlapping edits are a defect of the rules."""

    def __init__(self, source: Source, edits: list[Edit]) -> None:
        self.source = source
        self.edits = sorted(edits, key=lambda edit: (edit.start, edit.end))
        pieces: list[str] = []
        done = 0
        for edit in self.edits:
            pieces += [source.text[done : edit.start], edit.text]
            done = edit.end
        pieces.append(source.text[done:])
        self.text = "".join(pieces)
        lengths = accumulate(len(piece) for piece in pieces)
        self._ends = list(lengths)  # of kept and replaced pieces, alternating
        self._lines = TextLines(self.text)

    def location(self, line: int, column: int) -> Location:
        """The user's location of the character at `line`, `column` of the edited text."""
        offset = self._lines.offset(line, column)
        piece = min(bisect_right(self._ends, offset), len(self._ends) - 1)
        if piece % 2:  # inside a replacement: the start of the replaced text
            return self.source.location(self.edits[piece // 2].start)
        before = self.edits[piece // 2 - 1].end if piece else 0
        return self.source.location(before + offset - (self._ends[piece - 1] if piece else 0))
