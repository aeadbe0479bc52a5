"""Schedules as a language: text that is parsed for a kernel and written back, and primitives over loops in Python."""

from motet.compiler.schedule_text.formatting import format_schedule, schedule_mapping
from motet.compiler.schedule_text.launches import parse_launches
from motet.compiler.schedule_text.parsing import parse_schedule
from motet.lab.language.launches import LaunchSchedule, launch_schedule
from motet.lab.language.primitives import Cursor, LoopSchedule, schedule

__all__ = [
    "Cursor", "LaunchSchedule", "LoopSchedule", "format_schedule", "launch_schedule", "parse_launches",
    "parse_schedule", "schedule", "schedule_mapping",
]
