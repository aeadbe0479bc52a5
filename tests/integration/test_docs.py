"""Every block of the pages runs as printed, in an empty folder after the page's own set-up (`doc_blocks.py`)."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.doc_blocks import Block, first_missing, read_blocks

pytestmark = pytest.mark.usefixtures("all_levels")

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
READ = {page: list(read_blocks((ROOT / page).read_text(encoding="utf-8"))) for page in PAGES}
LINKED = [*PAGES, *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs" / "notes").glob("*.md")))]
RUN = [page for page in PAGES if any(block.kind == "run" for block in READ[page])]
SLOW = [page for page in PAGES if any(block.is_slow for block in READ[page])]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_code_runs_or_says_why_not(page: str) -> None:
    silent = [f"{page}:{block.line}" for block in READ[page] if block.is_code and not block.kind]
    assert not silent


@pytest.mark.parametrize("page", PAGES)
def test_skipped_blocks_give_a_reason(page: str) -> None:
    silent = [f"{page}:{block.line}" for block in READ[page] if block.kind in ("skip", "file") and not block.about]
    assert not silent


@pytest.mark.parametrize("page", RUN)
def test_blocks_run_as_printed(page: str, tmp_path: Path) -> None:
    run_blocks(page, [block for block in READ[page] if not block.is_slow], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW)
def test_slow_blocks_run_as_printed(page: str, tmp_path: Path) -> None:
    run_blocks(page, READ[page], tmp_path)


def run_blocks(page: str, blocks: list[Block], folder: Path) -> None:
    """Runs the blocks in order; the first one that fails, or does not print what it shows, fails the test."""
    (folder / "work").mkdir()
    commands = folder / "bin"
    commands.mkdir()
    write_command(commands / "motet", "-m motet")
    write_command(commands / "python", "")
    for block in blocks:
        if all(is_there(name) for name in block.needs):
            for problem in problems(block, folder / "work", commands):
                pytest.fail(f"{page}:{block.line}: {problem}")


def problems(block: Block, folder: Path, commands: Path) -> Iterator[str]:
    """Runs one block; what it does otherwise than the page says."""
    if block.kind == "file":
        (folder / block.about).write_text(block.text, encoding="utf-8")
    elif block.kind == "setup":
        yield from failures(shell(block.hidden, folder, commands), block.hidden)
    elif block.kind == "run" and block.language == "python":
        done = shell(["python", "-c", f"{block.hidden}\n{block.text}"], folder, commands)
        yield from failures(done, "the program")
        if (line := first_missing(block.printed(), done.stdout)) is not None:
            yield f"shows {line!r}, prints\n{done.stdout}"
    elif block.kind == "run":
        if block.hidden:
            yield from failures(shell(block.hidden, folder, commands), block.hidden)
        for command, shown in block.commands():
            done = shell(command, folder, commands)
            yield from failures(done, command)
            if (line := first_missing(shown, done.stdout + done.stderr)) is not None:
                yield f"{command}: shows {line!r}, prints\n{done.stdout}{done.stderr}"


def failures(done: subprocess.CompletedProcess[str], command: str) -> Iterator[str]:
    if done.returncode:
        yield f"{command}: status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def shell(command: str | list[str], folder: Path, commands: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "MOTET": str(ROOT), "COLUMNS": "120",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
    }
    arguments = ["sh", "-ec", command] if isinstance(command, str) else command
    return subprocess.run(
        arguments, cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=600,
    )


def write_command(path: Path, module: str) -> None:
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def is_there(name: str) -> bool:
    """Whether a command or a Python module is installed."""
    return shutil.which(name) is not None or importlib.util.find_spec(name) is not None


def test_shown_output_leaves_numbers_open() -> None:
    shown = ["entry on x86-64-v4, 4 threads", "  moving 24.34 GB/s", "…", "verified: agrees; max 7.63e-06"]
    printed = "entry on x86-64-v3, 2 threads\n  moving   3 GB/s\nmore\nverified: agrees; max 0\n"
    assert first_missing(shown, printed) is None


def test_shown_output_must_be_printed_in_order() -> None:
    assert first_missing(["one", "two"], "two\none\n") == "two"


def test_python_comments_behind_print_are_its_output() -> None:
    [block] = read_blocks("<!-- run\nimport os\n-->\n```python\nx = 1  # one\nprint(x)      # [2.5 1]\n```\n")
    assert (block.kind, block.hidden, block.printed()) == ("run", "import os", ["[2.5 1]"])


def test_commands_continue_over_lines_and_show_their_output() -> None:
    [block] = read_blocks("<!-- run (slow, needs qemu) -->\n```\n$ motet a \\\n  b\nout\n$ motet c\n```\n")
    assert block.commands() == [("motet a \\\n  b", ["out"]), ("motet c", [])]
    assert block.is_slow and block.needs == ["qemu"]


@pytest.mark.parametrize("page", LINKED)
def test_links_within_the_repository_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    lost: list[str] = []
    for file, heading in re.findall(r"\]\(([^)#\s:]*)(?:#([^)\s]*))?\)", text):
        target = (ROOT / page).parent / file if file else ROOT / page
        if not target.exists() or (heading and heading not in anchors(target)):
            lost.append(f"{file}#{heading}")
    assert not lost


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
