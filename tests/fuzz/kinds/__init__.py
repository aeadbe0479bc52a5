"""Other kinds of programs than graphs of operators, each with what it tries and what is right.

A kind is a module with `attempt(seed, say)`, which tries the program of a seed, and `show(seed)`, its text for people.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

_NEEDS = {"bodies": "", "hostile": "", "placements": "", "schedules": "yaml", "shardings": "", "exported": "torch"}


def kinds() -> list[str]:
    """The kinds that can be tried here."""
    return [name for name, needs in _NEEDS.items() if not needs or importlib.util.find_spec(needs) is not None]


def kind_module(name: str) -> ModuleType:
    return importlib.import_module(f"tests.fuzz.kinds.{name}")
