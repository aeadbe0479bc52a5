"""The lab: schedules as a language, measured, searched, kept and explained."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.lab.derivation import derived_space
    from motet.lab.evaluation import evaluate
    from motet.lab.language import format_schedule, parse_schedule
    from motet.lab.search import Budget, Search
    from motet.lab.space import ScheduleSpace as Space
    from motet.lab.strategies.named import strategy_of
    from motet.lab.subject import open_program, subject_of
    from motet.lab.workers import workers_of

__all__ = [
    "Budget", "Search", "Space", "derived_space", "evaluate", "format_schedule", "open_program", "parse_schedule",
    "strategy_of", "subject_of", "workers_of",
]

_LAZY = {
    "Space": ("space", "ScheduleSpace"),
    "derived_space": ("derivation", "derived_space"),
    "evaluate": ("evaluation", "evaluate"), "format_schedule": ("language", "format_schedule"),
    "open_program": ("subject", "open_program"), "parse_schedule": ("language", "parse_schedule"),
    "strategy_of": ("strategies.named", "strategy_of"), "subject_of": ("subject", "subject_of"),
    "Search": ("search", "Search"), "Budget": ("search", "Budget"), "workers_of": ("workers", "workers_of"),
}


if not TYPE_CHECKING:  # type checkers would take any name for an attribute

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'motet.lab' has no attribute '{name}'")
        module, attribute = _LAZY[name]
        return getattr(importlib.import_module(f"motet.lab.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
