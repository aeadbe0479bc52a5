"""`docs/modules.md` is what `checks.modules` generates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from checks.modules import render_page, summary
from checks.structure import Module, read_modules

PAGE = Path(__file__).parents[2] / "docs" / "modules.md"


@pytest.fixture(scope="module")
def modules() -> Sequence[Module]:
    return read_modules()


def test_the_page_of_modules_is_up_to_date(modules: Sequence[Module]):
    stale = "docs/modules.md is stale: run python -m checks.modules --write docs/modules.md"
    assert PAGE.read_text(encoding="utf-8") == render_page(modules), stale


def test_every_module_says_what_it_is(modules: Sequence[Module]):
    silent = [module.name for module in modules if module.path.name != "__init__.py" and not summary(module)]
    assert not silent


def test_a_row_is_the_first_paragraph_on_one_line():
    module = Module("motet.a.b", Path("motet/a/b.py"), '"""Adds a|b:\nand c.\n\nNot this."""\n')
    assert "## a/\n\n| module | contents |\n|---|---|\n| `b.py` | Adds a\\|b: and c. |\n" in render_page([module])
