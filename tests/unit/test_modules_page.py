"""The page of modules that `checks.modules` generates."""

from __future__ import annotations

from pathlib import Path

from checks.modules import render_page
from checks.structure import Module, read_modules


def test_every_module_says_what_it_is():
    others = (module for module in read_modules() if module.path.name != "__init__.py")
    assert not [module.name for module in others if not module.text.startswith('"""')]


def test_a_row_is_the_first_paragraph_on_one_line():
    module = Module("motet.a.b", Path("motet/a/b.py"), '"""Adds a|b:\nand c.\n\nNot this."""\n')
    assert "## a/\n\n| module | contents |\n|---|---|\n| `b.py` | Adds a\\|b: and c. |\n" in render_page([module])
