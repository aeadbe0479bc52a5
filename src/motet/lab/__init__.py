"""The lab: schedules as a language, measured, searched, kept and explained."""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "Space": ("space", "ScheduleSpace"),
    "derived_space": ("derivation", "derived_space"),
    "evaluate": ("evaluation", "evaluate"), "format_schedule": ("language", "format_schedule"),
    "open_program": ("subject", "open_program"), "parse_schedule": ("language", "parse_schedule"),
    "strategy_of": ("strategies.named", "strategy_of"), "subject_of": ("subject", "subject_of"),
    "Search": ("search", "Search"), "Budget": ("search", "Budget"), "workers_of": ("workers", "workers_of"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'motet.lab' has no attribute '{name}'")
    module, attribute = _LAZY[name]
    return getattr(importlib.import_module(f"motet.lab.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted(_LAZY)
