"""The lab: schedules as a language, measured, searched, kept and explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet.on_use import imported_on_use

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

if not TYPE_CHECKING:
    __getattr__ = imported_on_use("motet.lab", {
        "Budget": "motet.lab.search:Budget", "Search": "motet.lab.search:Search",
        "Space": "motet.lab.space:ScheduleSpace", "derived_space": "motet.lab.derivation:derived_space",
        "evaluate": "motet.lab.evaluation:evaluate", "format_schedule": "motet.lab.language:format_schedule",
        "open_program": "motet.lab.subject:open_program", "parse_schedule": "motet.lab.language:parse_schedule",
        "strategy_of": "motet.lab.strategies.named:strategy_of", "subject_of": "motet.lab.subject:subject_of",
        "workers_of": "motet.lab.workers:workers_of",
    })  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
