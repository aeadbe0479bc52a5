"""The site of the documentation has a place for every page and every command."""

from __future__ import annotations

from pathlib import Path

import typer
from checks.site import COMMANDS, GUIDES, settings

from motet.tools.app import make_app

DOCS = Path(__file__).parents[2] / "docs"


def test_every_page_stands_in_one_guide(tmp_path: Path):
    listed = [page for pages in GUIDES.values() for page in pages]
    generated = ["modules"]
    assert sorted(listed) == sorted([*generated, *(path.stem for path in DOCS.glob("*.md"))])
    settings(DOCS, tmp_path)  # exits if a page is missing


def test_every_command_has_a_page():
    assert set(COMMANDS) == set(typer.main.get_command(make_app()).commands)
