"""Schedules as a language: text that is parsed for a kernel and written back, and primitives over loops in Python."""

from motet.lab.language.formatting import format_schedule, schedule_mapping
from motet.lab.language.parsing import parse_schedule
from motet.lab.language.primitives import Cursor, LoopSchedule, schedule

__all__ = ["Cursor", "LoopSchedule", "format_schedule", "parse_schedule", "schedule", "schedule_mapping"]
