"""Reads the code blocks of a page in Markdown, and what a comment before each block says of it.

    <!-- run -->                    the block runs in the page's folder; it must end well and print what it shows
    <!-- run (slow) -->             the same, in slow tests alone
    <!-- run (needs qemu-system-riscv64) -->
                                    the same, where that command or Python module is installed
    <!-- run                        hidden lines before those of the block: of the shell, or Python for a Python block
    x = make_x()
    -->
    <!-- setup                      hidden commands of the shell that run in any case; no block follows
    python $MOTET/examples/models.py resnet18 model.onnx
    -->
    <!-- file: add.mlir -->         the block becomes a file of that name
    <!-- skip: needs a GPU -->      the block is not run, for that reason

Blocks of shell commands and of Python need one of these comments; others, such as output and syntax, may have one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_COMMENT = re.compile(
    r"<!-- (?P<kind>run|setup|file|skip)(?: \((?P<condition>[^)]*)\))?(?:: (?P<text>[^\n]*?))?\s*?"
    r"(?:\n(?P<hidden>.*?))?\s*-->\n", re.DOTALL,
)
_COMMAND = re.compile(r"^(\$ |(motet|python|pip|make|git|PYTHON=\S+) )", re.MULTILINE)
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of a page, with its comment."""

    line: int
    language: str
    text: str
    kind: str = ""  # run, setup, file, skip; "" without a comment
    hidden: str = ""
    about: str = ""  # the file's name, or why the block is skipped
    conditions: tuple[str, ...] = field(default=())

    @property
    def is_code(self) -> bool:
        """Whether a reader would run the block."""
        return self.language == "python" or (not self.language and bool(_COMMAND.search(self.text)))

    @property
    def is_slow(self) -> bool:
        return "slow" in self.conditions

    @property
    def needs(self) -> list[str]:
        """The commands and Python modules that the block needs."""
        return [each.removeprefix("needs ") for each in self.conditions if each.startswith("needs ")]

    def commands(self) -> list[tuple[str, list[str]]]:
        """The commands of a shell block, each with the lines that it is shown to print. Where no line begins with
        `$ `, all of them are commands."""
        found: list[tuple[str, list[str]]] = []
        prompts = any(line.startswith("$ ") for line in self.text.splitlines())
        open_line = False
        for line in self.text.splitlines():
            if open_line:
                found[-1] = (f"{found[-1][0]}\n{line}", [])
            elif line.startswith("$ ") or (not prompts and line.strip()):
                found.append((line.removeprefix("$ "), []))
            elif found:
                found[-1][1].append(line)
                continue
            open_line = line.endswith("\\")
        return found

    def printed(self) -> list[str]:
        """What a Python block's top-level calls of `print` are shown to print, in comments behind them."""
        return re.findall(r"^print\(.*\)  +# (.*)$", self.text, re.MULTILINE)


def read_blocks(page: str) -> Iterator[Block]:
    """The blocks of a page in order, and the set-ups between them."""
    at = 0
    while True:
        comment, fence = _COMMENT.search(page, at), _FENCE.search(page, at)
        if comment is not None and (fence is None or comment.start() < fence.start()):
            block = _commented(comment, page)
            following = _FENCE.match(page, comment.end())
            if following is not None and block.kind != "setup":
                yield _with_text(block, following)
                at = following.end()
                continue
            yield block
            at = comment.end()
        elif fence is not None:
            yield _with_text(Block(page.count("\n", 0, fence.start()) + 1, "", ""), fence)
            at = fence.end()
        else:
            return


def _commented(comment: re.Match[str], page: str) -> Block:
    conditions = tuple(each.strip() for each in (comment["condition"] or "").split(",") if each.strip())
    line = page.count("\n", 0, comment.start()) + 1
    return Block(line, "", "", comment["kind"], comment["hidden"] or "", comment["text"] or "", conditions)


def _with_text(block: Block, fence: re.Match[str]) -> Block:
    text = re.sub(f"^{fence['indent']}", "", fence["text"], flags=re.MULTILINE)
    return Block(block.line, fence["language"], text, block.kind, block.hidden, block.about, block.conditions)


_PARTS = re.compile(
    r"(?P<gap>…|\.\.\.)|(?P<host>host \([^()]*(?:\([^()]*\)[^()]*)*\))|(?P<level>x86-64-v\d|avx[\w, …]*)"
    r"|(?P<number>[-+]?[\d][\d,.]*(?:e[-+]?\d+)?(?: ?(?:[nµm]?s|min|B|[KMG]iB|[GM]?FLOP/s|[GM]B/s)\b)?)|(?P<space>\s+)"
)
_PATTERNS = {
    "gap": r".*", "host": r"host \(.*\)", "level": r"[\w, …-]+", "space": r"\s+",
    "number": r"[-+]?[\d][\d,.]*(?:e[-+]?\d+)?(?: ?(?:[nµm]?s|min|B|[KMG]iB|[GM]?FLOP/s|[GM]B/s)\b)?",
}


def pattern(line: str) -> str:
    """A line of shown output as a regular expression that leaves open numbers, their units, and processors."""
    text, at = "", 0
    for part in _PARTS.finditer(line):
        text += re.escape(line[at : part.start()]) + _PATTERNS[part.lastgroup or "gap"]
        at = part.end()
    return text + re.escape(line[at:])


def first_missing(shown: list[str], printed: str) -> str | None:
    """The first shown line that is not among the printed ones in their order; None if all are. Lines of a … alone,
    empty ones, and rows of arrays' elements are left open."""
    lines = [line.rstrip() for line in printed.splitlines()]
    for line in shown:
        if not line.strip(" …") or line.lstrip().startswith("[["):
            continue
        expected = re.compile(rf"\s*{pattern(line.strip())}\s*")
        while lines and not expected.fullmatch(lines[0]):
            lines.pop(0)
        if not lines:
            return line
    return None
